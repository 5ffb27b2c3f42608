package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// A command line that makes no sense is refused before anything is read, all its faults together.
func TestSimulate_use(t *testing.T) {
	traces, jobs := traceDir(t), writeFile(t, smallJobs)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--policy", "best", "--pool-name", "x", "--polarity", "up"}, []string{
			"--jobs is missing", "--traces is missing", `--pool-name "x" without --pool`, `--policy: "best" is unknown`, `--polarity: "up" is neither`,
		}},
		{[]string{"--traces", traces, "--jobs", jobs, "--policy", ""}, []string{"--policy: none; leave it out for spotter"}},
		{[]string{"--traces", traces, "--jobs", jobs, "--pool", examplePool, "--spot-price", "1", "--on-demand-price", "3"}, []string{
			"--spot-price beside --pool", "--on-demand-price beside --pool",
		}},
	} {
		stdout, stderr := runMain(t, exitUsage, append([]string{"simulate"}, c.args...)...)
		must.Eq(t, "", stdout)
		for _, want := range c.want {
			must.StrContains(t, stderr, want)
		}
	}
}

// Figures that fill the memory, or of which no sum is a number, are refused with what is allowed; each fault is told once.
func TestSimulate_bounds(t *testing.T) {
	traces := traceDir(t)
	for body, want := range map[string]string{
		"work = \"80000h\"\ncheckpoint {\ninterval = \"1s\"\n}": "interval: 1s makes 288000000 checkpoints of 80000h0m0s of work, which is " +
			"more than 1000000; give at least 4m49s",
		"work = \"5h\"\ncheckpoint {\ninterval = \"1ms\"\n}":          "interval: 1ms is below 1s",
		"work = \"5h\"\ncheckpoint {\nsize_gib = -1\n}":               "checkpoint.size_gib: -1 is outside 0 to 1073741824",
		"work = \"5h\"\ncheckpoint {\nbandwidth_mib_per_s = 1e308\n}": "checkpoint.bandwidth_mib_per_s: 1e+308 is outside 0 to 1073741824",
		"work = \"soon\"":                    "work: \"soon\" is not a duration",
		"work = \"1h\"\narrive = \"80000h\"": "arrive: 80000h0m0s is not before the end of the recordings, ",
	} {
		_, stderr := runMain(t, exitFailed, "simulate", "--traces", traces, "--jobs", writeFile(t, "job \"a\" {\n"+body+"\n}\n"))
		must.StrContains(t, stderr, want)
		must.Eq(t, 1, strings.Count(stderr, "job \"a\""), must.Sprint(stderr))
	}
	jobs := writeFile(t, smallJobs)
	_, stderr := runMain(t, exitFailed, "simulate", "--traces", traces, "--jobs", jobs, "--spot-price", "1e308", "--on-demand-price", "NaN")
	must.StrContains(t, stderr, "--spot-price: 1e+308 is outside 0 to 1e+06")
	must.StrContains(t, stderr, "--on-demand-price: NaN is outside 0 to 1e+06")

	dir := t.TempDir()
	_, stderr = runMain(t, exitFailed, "simulate", "--traces", traces, "--jobs", filepath.Join(dir, "none.hcl"), "--report", dir)
	must.StrContains(t, stderr, "--report: "+dir+" is no file")
	must.StrContains(t, stderr, "none.hcl: no such file")
}

// What would take hours, or never end, is refused ahead.
func TestPlan_bounds(t *testing.T) {
	jobs := writeFile(t, "job \"a\" {\n  work = \"1h\"\n  count = 100000\n}\n")
	_, stderr := runMain(t, exitFailed, "plan", jobs, "--pool", examplePool)
	must.StrContains(t, stderr, "--runs: 200 times 100000 jobs are more than 1000000; lower --runs")
	pool := writeFile(t, `pool "p" {
  offering "x" {
    provider           = "local"
    region             = "r"
    type               = "t"
    kind               = "spot"
    price_usd_per_hour = 1
    mean_lifetime      = "1ns"
  }
}`)
	_, stderr = runMain(t, exitFailed, "plan", writeFile(t, smallJobs), "--pool", pool)
	must.StrContains(t, stderr, `offering "x": mean_lifetime: 1ns is below 1m0s`)
}

func TestParsePool_twice(t *testing.T) {
	_, err := parsePool([]byte("pool \"a\" {\n}\npool \"a\" {\n}\n"), "pool.hcl", "")
	must.EqError(t, err, `pool "a": given twice; names must differ`)
}

// A job that is done after the recordings has run on a market that stood still: that is said.
func TestSimulate_afterTheEnd(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "us-west-2a_v100_1.json")
	must.NoError(t, os.WriteFile(path, []byte(`{"metadata":{"gap_seconds":600},"data":[1,0,1,1]}`), 0o644))
	for work, warned := range map[string]bool{"10h": true, "1m": false} {
		jobs := writeFile(t, "job \"a\" {\n  work = \""+work+"\"\n  changeover = \"1s\"\n}\n")
		_, stderr := runMain(t, exitDone, "simulate", "--traces", path, "--jobs", jobs)
		must.Eq(t, warned, strings.Contains(stderr, "warning: spotter: 1 of 1 jobs end after the recordings, which last 40m"), must.Sprint(stderr))
	}
}
