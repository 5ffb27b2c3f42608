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
	At          string           `json:"at"` // RFC 3339
	Machine     Machine          `json:"machine"`
	Notes       []string         `json:"notes"`
	Goals       []Goal           `json:"goals"`
	Fixed       map[string]Usage `json:"fixed"`
	Summaries   []Summary        `json:"summaries"`
	Runs        []Run            `json:"runs"`
	contenders  []Contender
	extraTables []Table
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
	series                                               []string
	reps                                                 int
	json, markdown, quiet                                bool
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	var series string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.binary, "checkpointer", "bin/checkpointer", "our built command")
	f.StringVar(&o.seriesDir, "series-dir", "", "folder of the series (default ${XDG_CACHE_HOME:-~/.cache}/spotter/series)")
	f.StringVar(&series, "series", strings.Join(defaultSeries, ","), "comma-separated series; NAME.weights: its safetensors files")
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
	if series != "" {
		o.series = strings.Split(series, ",")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
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
	q := Sequencer{Work: work, Contenders: r.contenders, Reps: o.reps, Log: log}
	if r.Fixed, err = q.Fixed(ctx); err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp(work, "bench-noise-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder in a folder for such
	f, err := noise(filepath.Join(dir, "ckpt_1.bin"), 64<<20)
	if err != nil {
		return r, err
	}
	all = append(all, Series{Name: "noise", Files: []File{f}})
	for _, s := range all {
		runs, err := q.Run(ctx, s)
		if err != nil {
			return r, err
		}
		r.Runs = append(r.Runs, runs...)
	}
	r.Summaries = summarize(r.Runs)
	r.Goals = ratioGoals(r.Summaries, r.Fixed)
	return r, nil
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

func (r Report) tables() []Table {
	out := []Table{goalTable(r.Goals), peerTable(r.Summaries), fixedTable(r.contenders, r.Fixed)}
	return slices.Concat(out, r.extraTables, seriesTables(r.Summaries))
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
	for _, t := range r.tables() {
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

// failure is an error if ours failed or restored something else than was saved. Speed is never a failure.
func (r Report) failure() error {
	var errs []error
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
