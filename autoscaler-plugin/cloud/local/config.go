package local

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// When the traces of a market start to play.
const (
	startAtLaunch = "launch" // with the first launch from this state_dir
	startManual   = "manual" // when `market start` is called; until then every trace stands at its first tick
)

// block is the body of `provider "local" { … }`.
type block struct {
	StateDir   string     `hcl:"state_dir"`
	Notice     string     `hcl:"notice,optional"`
	TimeScale  *float64   `hcl:"time_scale,optional"`
	TraceStart string     `hcl:"trace_start,optional"`
	KeepDisk   bool       `hcl:"keep_disk,optional"`
	Private    []string   `hcl:"private_dirs,optional"`
	Templates  []template `hcl:"template,block"`
	Processes  []process  `hcl:"process,block"`
}

// template is a file that is rendered into the instance's directory before its processes start.
type template struct {
	Name   string `hcl:"name,label" json:"name"` // file name in the instance's directory
	Source string `hcl:"source" json:"source"`   // absolute path of a Go text/template
}

// process is one program of an instance. The order in the pool file is the order of the starts.
type process struct {
	Name    string            `hcl:"name,label" json:"name"`
	Argv    []string          `hcl:"argv" json:"argv"`                  // each element is a template
	Env     map[string]string `hcl:"env,optional" json:"env,omitempty"` // added to the environment; values are templates
	WaitFor string            `hcl:"wait_for,optional" json:"wait_for"` // a path; the next process starts once it exists
}

// offeringBlock is what this provider reads from an `offering` block.
type offeringBlock struct {
	Trace string `hcl:"trace,optional"`
}

// config is a checked block.
type config struct {
	pool       string
	stateDir   string
	notice     time.Duration // between a notice and the end of the instance, on the wall clock
	timeScale  float64       // market seconds per wall second
	traceStart string
	keepDisk   bool
	private    []string // host directories that each instance sees as empty ones of its own
	templates  []template
	processes  []process
	offerings  map[string]offering
}

type offering struct {
	cloud.Offering
	tracePath string
	tape      tape // empty: always available
}

var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// decode reads and checks the provider's part of a pool file. It reports all faults together.
func decode(setup cloud.Setup) (config, error) {
	var b block
	if diags := gohcl.DecodeBody(setup.Body, nil, &b); diags.HasErrors() {
		return config{}, diagnostics(`provider "local"`, diags)
	}
	faults := &faultList{prefix: `provider "local"`}
	c := config{
		pool:       setup.Pool,
		stateDir:   b.StateDir,
		timeScale:  1,
		traceStart: b.TraceStart,
		keepDisk:   b.KeepDisk,
		private:    b.Private,
		templates:  b.Templates,
		processes:  b.Processes,
		offerings:  map[string]offering{},
	}
	if !filepath.IsAbs(b.StateDir) {
		faults.add("state_dir: %q is relative; give an absolute path, such as \"/var/lib/spotter/local\"", b.StateDir)
	}
	c.notice = faults.duration("notice", b.Notice, 2*time.Minute)
	if b.TimeScale != nil {
		c.timeScale = *b.TimeScale
	}
	if !(c.timeScale > 0) || math.IsInf(c.timeScale, 0) {
		faults.add("time_scale: %v is not above 0; 1 plays traces in real time, 60 an hour per minute", c.timeScale)
	}
	switch c.traceStart {
	case "":
		c.traceStart = startAtLaunch
	case startAtLaunch, startManual:
	default:
		faults.add("trace_start: %q is unknown; give %q or %q", c.traceStart, startAtLaunch, startManual)
	}
	for i, dir := range b.Private {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
			faults.add("private_dirs[%d]: %q must be an absolute path below /, such as \"/run/containerd\"", i, dir)
		}
	}
	checkFiles(faults, b)
	for _, o := range setup.Offerings {
		c.offerings[o.Name] = decodeOffering(faults, o)
	}
	return c, faults.err()
}

func checkFiles(faults *faultList, b block) {
	seen := map[string]bool{recordFile: true, specFile: true, supervisorLog: true, initLog: true, deathFile: true}
	for _, t := range b.Templates {
		field := fmt.Sprintf("template %q", t.Name)
		switch {
		case !fileName.MatchString(t.Name):
			faults.add("%s: the label must be a plain file name of letters, digits, dots and dashes", field)
		case seen[t.Name]:
			faults.add("%s: the name is used twice or by the provider itself; choose another", field)
		}
		seen[t.Name] = true
		if !filepath.IsAbs(t.Source) {
			faults.add("%s.source: %q is relative; give an absolute path", field, t.Source)
		} else if err := checkTemplate(t); err != nil {
			faults.add("%s.source: %v", field, err)
		}
	}
	if len(b.Processes) == 0 {
		faults.add(`process: none given; an instance needs at least one, such as process "nomad" { argv = ["/usr/bin/nomad", "agent", "-config", "{{.Dir}}/client.hcl"] }`)
	}
	for _, p := range b.Processes {
		field := fmt.Sprintf("process %q", p.Name)
		switch {
		case !fileName.MatchString(p.Name):
			faults.add("%s: the label must be a plain name of letters, digits, dots and dashes", field)
		case seen[p.Name+".log"]:
			faults.add("%s: its log %q is a file of another process or template; choose another name", field, p.Name+".log")
		}
		seen[p.Name+".log"] = true
		if len(p.Argv) == 0 {
			faults.add("%s.argv: empty; give the program and its arguments", field)
		} else if !filepath.IsAbs(p.Argv[0]) && !strings.HasPrefix(p.Argv[0], "{{") {
			faults.add("%s.argv[0]: %q is relative; give the program's absolute path", field, p.Argv[0])
		}
		for i, arg := range p.Argv {
			if _, err := renderText("argv", arg, Fields{}); err != nil {
				faults.add("%s.argv[%d]: %v", field, i, err)
			}
		}
	}
}

func decodeOffering(faults *faultList, o cloud.OfferingSetup) offering {
	out := offering{Offering: o.Offering}
	field := fmt.Sprintf("offering %q", o.Name)
	var b offeringBlock
	if diags := gohcl.DecodeBody(o.Body, nil, &b); diags.HasErrors() {
		faults.errs = append(faults.errs, diagnostics(field, diags))
		return out
	}
	if b.Trace == "" {
		return out
	}
	out.tracePath = b.Trace
	switch {
	case o.Kind != cloud.Spot:
		faults.errs = append(faults.errs, fmt.Errorf("%s.trace: given for kind %q; only %q offerings follow a market", field, o.Kind, cloud.Spot))
	case !filepath.IsAbs(b.Trace):
		faults.errs = append(faults.errs, fmt.Errorf("%s.trace: %q is relative; give an absolute path", field, b.Trace))
	default:
		data, err := os.ReadFile(b.Trace)
		if err == nil {
			out.tape, err = readTape(data)
		}
		if err != nil {
			faults.errs = append(faults.errs, fmt.Errorf("%s.trace: %w", field, err))
		}
	}
	return out
}

// faultList gathers the faults of one block.
type faultList struct {
	prefix string
	errs   []error
}

func (f *faultList) add(format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf(f.prefix+"."+format, args...))
}

func (f *faultList) duration(field, text string, fallback time.Duration) time.Duration {
	if text == "" {
		return fallback
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		f.add("%s: %q is not a duration; write it like \"2m\"", field, text)
	case d < 0:
		f.add("%s: %s is negative; give 0s or more", field, text)
	}
	return d
}

func (f *faultList) err() error { return errors.Join(f.errs...) }

// diagnostics turns HCL's findings into one error per finding.
func diagnostics(field string, diags hcl.Diagnostics) error {
	var errs []error
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		where := ""
		if d.Subject != nil {
			where = fmt.Sprintf(" (%s:%d)", filepath.Base(d.Subject.Filename), d.Subject.Start.Line)
		}
		errs = append(errs, fmt.Errorf("%s: %s: %s%s", field, d.Summary, d.Detail, where))
	}
	return errors.Join(errs...)
}
