package cli

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/autoscaler-plugin/simulate"
)

const examplePool = "../pools/local.hcl"

func TestParseJobs_example(t *testing.T) {
	data, err := os.ReadFile("examples/jobs.hcl")
	must.NoError(t, err)
	w, err := parseJobs(data, "jobs.hcl")
	must.NoError(t, err)
	must.Len(t, 21, w.jobs)
	must.Eq(t, "llm", w.jobs[3].Name) // it arrives after those at 0, 12 and 24 h that the file has first
	must.Eq(t, 24*time.Hour, w.jobs[3].Arrive)
	must.Eq(t, simulate.Checkpoint{
		Bytes: 1.2 * cost.GiB, Share: 0.6, Stall: 5 * time.Second, Bandwidth: 100 << 20, Keep: 3, Notice: 0.7,
	}, w.specs[0].Checkpoint)
	must.Eq(t, 4, w.specs[1].Ranks)
	must.Eq(t, 0.02, w.prices.Egress)
}

// The pool file that people copy is one for both the autoscaler and the simulator.
func TestParsePool_example(t *testing.T) {
	data, err := os.ReadFile(examplePool)
	must.NoError(t, err)
	offers, err := parsePool(data, examplePool, "")
	must.NoError(t, err)
	must.Len(t, 3, offers)
	must.Eq(t, cost.OnDemand, offers[2].Kind)
	must.Eq(t, "west-1a", offers[0].Key.Zone)
}

// All faults of a file are reported together, each with its field, what was found and what to do.
func TestParse_faults(t *testing.T) {
	_, err := parseJobs([]byte(`
job "a" {
  work     = "two days"
  every    = "-1h"
  priority = "urgent"
  ranks    = 0
  apart    = "planet"
  checkpoint { incremental = 1.5 }
}
prices { storage_usd_per_gib_month = -1 }`), "jobs.hcl")
	for _, want := range []string{
		`job "a": work: "two days" is not a duration; write it like`, `every: -1h is negative`, `priority: "urgent" is unknown`,
		`ranks: 0 is below 1`, `apart: "planet" is unknown`, `checkpoint.incremental: 1.5 is outside 0 to 1`, `storage`,
	} {
		must.StrContains(t, err.Error(), want)
	}
	_, err = parseJobs([]byte(`job "a" { wurk = "1h" }`), "jobs.hcl")
	must.StrContains(t, err.Error(), "line 1")
	_, err = parsePool([]byte(`pool "p" {}`), "pool.hcl", "")
	must.StrContains(t, err.Error(), "a pool needs at least one")
	_, err = parsePool([]byte(`pool "p" {
  offering "x" {
    provider = "local"
    region = "r"
    type = "t"
    kind = "sport"
    price_usd_per_hour = -1
    max_nodes = 0
  }
}`), "pool.hcl", "")
	for _, want := range []string{`kind: "sport" is unknown`, "price: -1 is outside 0 to 1e+06", "max_nodes: 0 is below 1"} {
		must.StrContains(t, err.Error(), want)
	}
}

func FuzzParseJobs(f *testing.F) {
	data, err := os.ReadFile("examples/jobs.hcl")
	must.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`job "a" { work = "1h" count = 3 every = "99999h" }`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := parseJobs(data, "jobs.hcl")
		if err != nil {
			return
		}
		last := time.Duration(0)
		for i, j := range w.jobs {
			if j.Arrive < last || j.ID != i || j.Work < 0 {
				t.Fatalf("job %d arrives at %v after %v, with work %v", i, j.Arrive, last, j.Work)
			}
			last = j.Arrive
		}
	})
}

func FuzzParsePool(f *testing.F) {
	data, err := os.ReadFile(examplePool)
	must.NoError(f, err)
	f.Add(data, "")
	f.Add([]byte(`pool "p" {}`), "p")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		offers, err := parsePool(data, "pool.hcl", name)
		if err == nil && len(simulate.CheckOfferings(offerings(offers))) > 0 {
			t.Fatal("a pool with faults was accepted")
		}
	})
}

// traceDir writes recordings of two zones of 48 h that are up in turns.
func traceDir(t *testing.T) string {
	dir := t.TempDir()
	for name, phase := range map[string]int{"east-1a_cpu2.json": 0, "west-1a_cpu2.json": 5} {
		trace := market.Trace{Tick: 15 * time.Minute, Up: make([]bool, 48*4)}
		for i := range trace.Up {
			trace.Up[i] = (i/5+phase)%3 > 0
		}
		data, err := json.Marshal(trace)
		must.NoError(t, err)
		must.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

func runMain(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	must.Eq(t, want, Main(t.Context(), "1.2.3", args, &out, &errs), must.Sprint(errs.String()))
	return out.String(), errs.String()
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.hcl")
	must.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const smallJobs = `
job "small" {
  work     = "6h"
  deadline = "12h"
  count    = 4
  every    = "3h"
}`

func TestSimulate(t *testing.T) {
	args := []string{"simulate", "--traces", traceDir(t), "--pool", examplePool, "--jobs", writeFile(t, smallJobs), "--decisions"}
	all := "spotter,spot-until-late,spot-else-on-demand,spot,on-demand"
	text, _ := runMain(t, exitDone, args...)
	must.StrContains(t, text, "OF ON-DEMAND")
	again, _ := runMain(t, exitDone, args...)
	must.Eq(t, text, again)
	stdout, _ := runMain(t, exitDone, append(args, "--policy", all, "--json")...)
	var outcomes []outcome
	must.NoError(t, json.Unmarshal([]byte(stdout), &outcomes))
	must.Len(t, 5, outcomes)
	for _, o := range outcomes {
		must.Eq(t, 4, o.Finished)
		if o.Policy != "spot" {
			must.Eq(t, 0, o.Late)
		}
		must.Len(t, 4, o.JobList)
		sum := 0.0
		for _, j := range o.JobList {
			sum += j.Cost
		}
		must.InDelta(t, o.Cost.Total(), sum, 1e-4)
		for _, d := range o.Decisions {
			must.NotEq(t, "", d.Reason, must.Sprintf("%s: a decision without a reason: %+v", o.Policy, d))
		}
	}
	must.Less(t, outcomes[4].Cost.Total(), outcomes[0].Cost.Total())
}

// Without a pool every trace is an offering, and there is on-demand.
func TestSimulate_withoutPool(t *testing.T) {
	stdout, _ := runMain(t, exitDone, "simulate", "--traces", traceDir(t), "--jobs", writeFile(t, smallJobs))
	for _, want := range []string{"west-1a_cpu2", "east-1a_cpu2", "on-demand", "4 jobs on a market of 48h"} {
		must.StrContains(t, stdout, want)
	}
}

// Faults of pool, traces and jobs come together, and nothing is written.
func TestSimulate_faults(t *testing.T) {
	dir := traceDir(t)
	must.NoError(t, os.Rename(filepath.Join(dir, "west-1a_cpu2.json"), filepath.Join(dir, "north-1a_cpu2.json")))
	must.NoError(t, os.WriteFile(filepath.Join(dir, "east-1a_cpu2.json"), []byte(`{"metadata":{"gap_seconds":900},"data":[1,2,0]}`), 0o600))
	report := filepath.Join(t.TempDir(), "out.html")
	jobs := writeFile(t, `job "late" {
  work     = "48h"
  deadline = "40h"
}`)
	_, stderr := runMain(t, exitFailed, "simulate", "--traces", dir, "--pool", examplePool, "--jobs", jobs, "--report", report)
	for _, want := range []string{
		`offering "spot-west": zone "west-1a" has no trace; there are`, "data[1]: 2 is neither 0", "deadline: 40h0m0s cannot be met",
		"give at least 48h6m0s",
	} {
		must.StrContains(t, stderr, want)
	}
	_, err := os.Stat(report)
	must.ErrorIs(t, err, os.ErrNotExist)
	for _, args := range [][]string{
		{"simulate"},
		{"simulate", "--jobs", jobs},
		{"simulate", "--jobs", jobs, "--traces", dir, "--policy", "best"},
		{"simulate", "--jobs", jobs, "--traces", dir, "--polarity", "up"},
		{"plan"},
		{"plan", jobs},
		{"plan", jobs, "--pool", examplePool, "--runs", "0"},
	} {
		runMain(t, exitUsage, args...)
	}
}

// The report is one well-formed page that needs nothing from elsewhere, and shows what it promises.
func TestSimulate_report(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.html")
	runMain(t, exitDone, "simulate", "--traces", traceDir(t), "--pool", examplePool, "--jobs", writeFile(t, smallJobs), "--report", path)
	data, err := os.ReadFile(path)
	must.NoError(t, err)
	page := string(data)
	for _, outside := range []string{"http:", "https:", "<script", "@import", "url(", "src="} {
		must.StrNotContains(t, page, outside)
	}
	for _, id := range []string{"market", "where", "cost", "progress", "offerings"} {
		must.StrContains(t, page, `<section id="`+id+`">`)
	}
	must.StrContains(t, page, "prefers-color-scheme: dark")
	svgs := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	must.GreaterEq(t, 4, len(svgs))
	for _, svg := range svgs {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			must.NoError(t, err)
			if e, ok := token.(xml.StartElement); ok {
				for _, a := range e.Attr {
					must.StrNotContains(t, a.Value, "NaN")
					must.StrNotContains(t, a.Value, "Inf")
				}
			}
		}
	}
	for _, class := range []string{`class="up"`, `class="price"`, `class="cut"`, `class="part0"`, `class="deadline"`, `class="line `} {
		must.StrContains(t, page, class)
	}
	must.Eq(t, 4, strings.Count(page, `class="label small"`))
}

func TestPlan(t *testing.T) {
	jobs := writeFile(t, smallJobs)
	text, _ := runMain(t, exitDone, "plan", jobs, "--pool", examplePool, "--runs", "10")
	must.StrContains(t, text, "P50")
	stdout, _ := runMain(t, exitDone, "plan", jobs, "--pool", examplePool, "--runs", "10", "--json")
	var p prospect
	must.NoError(t, json.Unmarshal([]byte(stdout), &p))
	must.Eq(t, 10, p.Runs)
	must.Eq(t, 0, p.Late)
	must.True(t, p.Cost.P10 <= p.Cost.P50 && p.Cost.P50 <= p.Cost.P90 && p.Cost.P90 < p.OnDemand)
	must.InDelta(t, 4*6.1*3, p.OnDemand, 1e-9)
	must.True(t, p.Hours.P10 >= 9+6.1)
	_, stderr := runMain(t, exitFailed, "plan", writeFile(t, `job "late" {
  work     = "48h"
  deadline = "40h"
}`), "--pool", examplePool)
	must.StrContains(t, stderr, "give at least 48h6m0s")
}
