package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/simulate"
)

// call runs a command line and returns its exit code and what it wrote.
func call(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Main(t.Context(), "test", args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// zoneFiles writes traces of so many ticks of ten minutes, made by seed.
func zoneFiles(t *testing.T, ticks int, zones ...string) string {
	t.Helper()
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(5, 5))
	for _, zone := range zones {
		up := true
		data := make([]string, ticks)
		for i := range data {
			if random.Float64() < .1 {
				up = !up
			}
			data[i] = map[bool]string{true: "1", false: "0"}[up]
		}
		text := fmt.Sprintf(`{"metadata":{"gap_seconds":600},"data":[%s]}`, strings.Join(data, ","))
		must.NoError(t, os.WriteFile(filepath.Join(dir, zone+"_v100_1.json"), []byte(text), 0o644))
	}
	return dir
}

func TestCantBeLate(t *testing.T) {
	dir := zoneFiles(t, 300, "us-west-2a", "us-west-2b")
	slices := filepath.Join(dir, "slices.json")
	must.NoError(t, os.WriteFile(slices, []byte(`{"gap_seconds":600,"starts":[0,50,200]}`), 0o644))
	args := []string{"simulate", "cant-be-late", "--traces", dir, "--slices", slices, "--task", "8h", "--deadline", "9h,14h", "--changeover", "0.1h,0.2h"}
	code, out, faults := call(t, append(args, "--json")...)
	must.Zero(t, code, must.Sprint(faults))
	var cells []simulate.Cell
	must.NoError(t, json.Unmarshal([]byte(out), &cells))
	must.Len(t, 4, cells)
	for i, want := range []struct{ deadline, changeover float64 }{{9, .1}, {14, .1}, {9, .2}, {14, .2}} {
		c := cells[i]
		must.Eq(t, want.deadline, c.DeadlineHours)
		must.Eq(t, want.changeover, c.ChangeoverHours)
		must.Eq(t, 6, c.Runs)
		for _, s := range []simulate.Score{c.Greedy, c.UniformProgress, c.Spotter} {
			must.Zero(t, s.Misses)
			must.LessEq(t, s.Cost, c.Optimal.Cost)
		}
	}
	for _, field := range []string{`"deadline_h"`, `"changeover_h"`, `"runs"`, `"greedy"`, `"uniform_progress"`, `"optimal"`, `"spotter"`, `"cost"`, `"misses"`} {
		must.StrContains(t, out, field)
	}
	code, again, _ := call(t, append(args, "--json")...)
	must.Zero(t, code)
	must.Eq(t, out, again)
	code, text, _ := call(t, args...)
	must.Zero(t, code)
	must.StrContains(t, text, "uniform progress")

	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--traces", dir}, exitUsage, "--slices is missing"},
		{[]string{"--slices", slices}, exitUsage, "--traces is missing"},
		{[]string{"--traces", dir, "--slices", slices, "--polarity", "up"}, exitUsage, `--polarity: "up" is neither`},
		{[]string{"--traces", dir, "--slices", slices, "--task", "8h", "--deadline", "8h"}, exitFailed, "the earliest is 8h10m0s"},
		{[]string{"--traces", dir, "--slices", slices, "--task", "8h", "--deadline", "50h"}, exitFailed, "deadline: 50h0m0s from tick 50 on takes 300 ticks, but the traces have 300"},
		{[]string{"--traces", dir, "--slices", filepath.Join(dir, "none.json")}, exitFailed, "--slices: open"},
		{[]string{"--traces", dir, "--slices", slices, "--task", "2000000h", "--changeover", "2000000h"}, exitFailed, "task: 2000000h0m0s does not fit"},
		{[]string{"--traces", dir, "--slices", slices, "--price-ratio", "Inf"}, exitFailed, "price ratio: +Inf is outside"},
	} {
		code, _, faults := call(t, append([]string{"simulate", "cant-be-late"}, c.args...)...)
		must.Eq(t, c.code, code)
		must.StrContains(t, faults, c.want)
	}
}

func TestCantBeLate_slices(t *testing.T) {
	dir := zoneFiles(t, 300, "us-west-2a")
	for text, want := range map[string]string{
		`{"gap_seconds":195,"starts":[0]}`: "gap_seconds is 195, but 600 in the traces",
		`{"starts":[]}`:                    "starts: empty",
		`{"starts":[-3]}`:                  "from tick -3 on",
		`[]`:                               `it must be JSON like {"gap_seconds":600,"starts":[0,5]}`,
	} {
		slices := filepath.Join(t.TempDir(), "slices.json")
		must.NoError(t, os.WriteFile(slices, []byte(text), 0o644))
		code, _, faults := call(t, "simulate", "cant-be-late", "--traces", dir, "--slices", slices, "--task", "8h", "--deadline", "9h")
		must.Eq(t, exitFailed, code)
		must.StrContains(t, faults, want)
	}
}

// A trace of which only the beginning would be used is refused.
func TestMultiZone_longTraces(t *testing.T) {
	dir := zoneFiles(t, maxChecked+1, "us-west-2a")
	code, _, faults := call(t, "simulate", "multi-zone", "--traces", dir)
	must.Eq(t, exitFailed, code)
	must.StrContains(t, faults, "us-west-2a_v100_1.json: data: 65537 ticks are more than 65536")
}

func TestMultiZone(t *testing.T) {
	dir := zoneFiles(t, 300, "us-west-2a", "us-west-2b", "us-east-1a")
	args := []string{"simulate", "multi-zone", "--traces", dir, "--task", "8h", "--deadline", "9h,14h", "--changeover", "0.1h", "--starts", "5", "--seed", "3"}
	code, out, faults := call(t, append(args, "--json")...)
	must.Zero(t, code, must.Sprint(faults))
	var cells []simulate.MultiZoneCell
	must.NoError(t, json.Unmarshal([]byte(out), &cells))
	must.Len(t, 2, cells)
	for _, c := range cells {
		must.Eq(t, 5, c.Starts)
		must.Eq(t, 3, c.Seed)
		for _, s := range []simulate.Score{c.BestSingleZone, c.CheapestAvailable, c.SpotHedge, c.Spotter} {
			must.Zero(t, s.Misses)
			must.LessEq(t, s.Cost, c.Optimal.Cost)
		}
	}
	for _, field := range []string{`"starts"`, `"seed"`, `"best_single_zone"`, `"cheapest_available"`, `"spothedge"`, `"optimal"`, `"spotter"`} {
		must.StrContains(t, out, field)
	}
	code, text, _ := call(t, args...)
	must.Zero(t, code)
	must.StrContains(t, text, "of optimal")
	code, _, faults = call(t, "simulate", "multi-zone", "--traces", dir, "--starts", "0")
	must.Eq(t, exitUsage, code)
	must.StrContains(t, faults, "--starts: 0 is outside 1 to 100000")
	code, _, faults = call(t, "simulate", "multi-zone", "--traces", dir, "--starts", "1000000000")
	must.Eq(t, exitUsage, code)
	must.StrContains(t, faults, "--starts: 1000000000 is outside 1 to 100000")
	code, _, faults = call(t, "simulate", "multi-zone", "--traces", dir, "--deadline", "36h,100h")
	must.Eq(t, exitFailed, code)
	must.StrContains(t, faults, "--deadline: 100h0m0s does not fit the traces, which last 50h0m0s")
	code, _, faults = call(t, "simulate", "multi-zone", "--traces", dir, "--traces", filepath.Join(dir, "us-west-2a_v100_1.json"))
	must.Eq(t, exitFailed, code)
	must.StrContains(t, faults, "is the same file as")
}
