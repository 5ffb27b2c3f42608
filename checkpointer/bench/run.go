package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Report is everything that was found, as --json prints it.
type Report struct {
	At         string           `json:"at"` // RFC 3339
	Machine    Machine          `json:"machine"`
	Notes      []string         `json:"notes"`
	Goals      []Goal           `json:"goals"`
	Fixed      map[string]Usage `json:"fixed"`
	Summaries  []Summary        `json:"summaries"`
	Runs       []Run            `json:"runs"`
	Tables     []Table          `json:"tables"` // of what has no goals of its own
	contenders []Contender
	failed     []error // parts
}

// Machine is what the figures depend on.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
	Load  string `json:"load"` // the load averages of 1, 5 and 15 minutes before the first measurement
}

type options struct {
	binary, seriesDir, given, python, script, work, html string
	series, parts                                        []string
	reps                                                 int
	json, markdown, quiet                                bool
}

// allParts are the parts of the benchmark: peers on the series, coding in memory, restoring from an S3 server, handing
// over, many snapshots.
var allParts = []string{"series", "codec", "s3", "stall", "many"}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	var series, parts string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.binary, "checkpointer", "bin/checkpointer", "our built command")
	f.StringVar(&o.seriesDir, "series-dir", "", "folder of the series (default ${XDG_CACHE_HOME:-~/.cache}/spotter/series)")
	f.StringVar(&series, "series", strings.Join(defaultSeries, ","), "comma-separated series; NAME.weights: its safetensors files")
	f.StringVar(&parts, "parts", strings.Join(allParts, ","), "comma-separated parts of the benchmark")
	f.StringVar(&o.given, "given", "", "folder of one more series, which is called given")
	f.StringVar(&o.python, "python", "/usr/bin/python3", "Python with PyTorch, to make missing series")
	f.StringVar(&o.script, "script", "checkpointer/bench/series/make_series.py", "the program that makes them")
	f.StringVar(&o.work, "work", "", "folder for repositories, on the file system to be measured (default: beside the series)")
	f.IntVar(&o.reps, "repetitions", 3, "how often everything is done")
	f.BoolVar(&o.json, "json", false, "print one JSON object instead of tables")
	f.BoolVar(&o.markdown, "markdown", false, "print tables as Markdown")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
	f.StringVar(&o.html, "report", "", "also write a page with plots to this file")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("there is no argument %q", f.Arg(0))
	case o.reps < 1:
		return o, fmt.Errorf("--repetitions: %d is less than 1", o.reps)
	case o.json && o.markdown:
		return o, errors.New("--json and --markdown exclude each other")
	}
	o.parts = strings.Split(parts, ",")
	for _, p := range o.parts {
		if !slices.Contains(allParts, p) {
			return o, fmt.Errorf("--parts: there is no part %q; there are %s", p, strings.Join(allParts, ", "))
		}
	}
	if series != "" {
		o.series = strings.Split(series, ",")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == childWord {
		return asChild(ctx, args[1:], stdout)
	}
	o, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	log := stderr
	if o.quiet {
		log = io.Discard
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	if o.seriesDir == "" {
		if o.seriesDir, err = cacheDir(); err != nil {
			return err
		}
	}
	if err := makeSeries(ctx, o.python, o.script, o.seriesDir, missingKinds(o.seriesDir, o.series), log); err != nil {
		return err
	}
	r, err := compare(ctx, o, log)
	if err != nil {
		return err
	}
	if err := r.print(o, stdout); err != nil {
		return err
	}
	if o.html != "" {
		if err := r.writeHTML(o.html); err != nil {
			return err
		}
	}
	return r.failure()
}

// compare measures everything.
func compare(ctx context.Context, o options, log io.Writer) (Report, error) {
	r := Report{At: time.Now().UTC().Format(time.RFC3339), Machine: machine()}
	var all []Series
	if o.given != "" {
		s, err := loadSeries(filepath.Dir(filepath.Clean(o.given)), filepath.Base(o.given), "given")
		if err != nil {
			return r, err
		}
		all = append(all, s)
	}
	for _, n := range o.series {
		s, err := loadSeries(o.seriesDir, n, n)
		if err != nil {
			return r, err
		}
		all = append(all, s)
	}
	help, _, err := measure(ctx, Command{Args: []string{o.binary, "save", "--help"}})
	if err != nil {
		return r, fmt.Errorf("%w (build it first: make build)", err)
	}
	mine, notes := ours(o.binary, help)
	others, more := peers(ctx)
	r.contenders, r.Notes = append(mine, others...), append(notes, more...)
	work, err := o.workDir()
	if err != nil {
		return r, err
	}
	if slices.Contains(o.parts, "series") {
		if err := r.withPeers(ctx, o, work, all, log); err != nil {
			return r, err
		}
	}
	return r, r.others(ctx, o, work, all, log)
}

// withPeers runs every contender on every series.
func (r *Report) withPeers(ctx context.Context, o options, work string, all []Series, log io.Writer) (err error) {
	q := Sequencer{Work: work, Contenders: r.contenders, Reps: o.reps, Log: log}
	if r.Fixed, err = q.Fixed(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(work, "bench-noise-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f, err := noise(filepath.Join(dir, "ckpt_1.bin"), 16<<20)
	if err != nil {
		return err
	}
	for _, s := range append(slices.Clone(all), Series{Name: "noise", Files: []File{f}}) {
		runs, err := q.Run(ctx, s)
		if err != nil {
			return err
		}
		r.Runs = append(r.Runs, runs...)
	}
	r.Summaries = summarize(r.Runs)
	r.Goals = ratioGoals(r.Summaries, r.Fixed)
	return nil
}

// others runs the parts that need no peer, or one of their own.
func (r *Report) others(ctx context.Context, o options, work string, all []Series, log io.Writer) error {
	add := func(goals []Goal, tables ...Table) {
		r.Goals, r.Tables = append(r.Goals, goals...), append(r.Tables, tables...)
	}
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"codec", func() error {
			goals, tables, err := codecGoals(ctx, all, o.reps, log)
			add(goals, tables...)
			return err
		}},
		{"s3", func() error {
			goals, tables, err := remoteGoals(ctx, o.binary, work, all, o.reps, log)
			add(goals, tables...)
			return err
		}},
		{"stall", func() error {
			t, err := stallTable(ctx, work, o.reps, log)
			add(nil, t)
			return err
		}},
		{"many", func() error {
			goals, notes, err := manyGoals(ctx, o.binary, work, o.reps, log)
			add(goals)
			r.Notes = append(r.Notes, notes...)
			return err
		}},
	} {
		if !slices.Contains(o.parts, part.name) {
			r.Notes = append(r.Notes, "not run: "+part.name)
			continue
		}
		if err := part.run(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.failed = append(r.failed, fmt.Errorf("part %s: %w", part.name, err)) // what the others found is shown
		}
	}
	return nil
}

func (o options) workDir() (string, error) {
	work := o.work
	if work == "" {
		work = filepath.Join(filepath.Dir(filepath.Clean(o.seriesDir)), "bench")
	}
	work, err := filepath.Abs(work)
	if err != nil {
		return "", err
	}
	return work, os.MkdirAll(work, 0o755)
}

// allTables are what is printed, the goals first.
func (r Report) allTables() []Table {
	out := []Table{goalTable(r.Goals)}
	if len(r.Summaries) > 0 {
		out = append(out, peerTable(r.Summaries), fixedTable(r.contenders, r.Fixed))
	}
	return slices.Concat(out, r.Tables, seriesTables(r.Summaries))
}

func (r Report) print(o options, w io.Writer) error {
	if o.json {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	m := r.Machine
	fmt.Fprintf(w, "%s, %s, %d cores, %s, load %s\n", r.At, m.CPU, m.Cores, m.Go, m.Load)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "- %s\n", n)
	}
	fmt.Fprintln(w)
	for _, t := range r.allTables() {
		show := t.text
		if o.markdown {
			show = t.markdown
		}
		if err := show(w); err != nil {
			return err
		}
	}
	return nil
}

// failure is an error if a part could not be run, or ours failed or restored something else than was saved. Speed is never a failure.
func (r Report) failure() error {
	errs := slices.Clone(r.failed)
	for _, x := range r.Runs {
		if x.Ours && x.Error != "" {
			errs = append(errs, fmt.Errorf("%s on %s: %s", x.Contender, x.Series, x.Error))
		}
	}
	return errors.Join(errs...)
}

func machine() Machine {
	m := Machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version()}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				m.CPU = strings.TrimSpace(v)
				break
			}
		}
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	return m
}
