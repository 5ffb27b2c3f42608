package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
)

func TestDecode_defaults(t *testing.T) {
	setup, err := parseSetup(fmt.Sprintf("state_dir = %q\nprocess \"sleep\" {\n argv = [\"/bin/sleep\", \"9\"]\n}", t.TempDir()), "")
	must.NoError(t, err)
	c, err := decode(setup)
	must.NoError(t, err)
	must.Eq(t, 2*time.Minute, c.notice)
	must.Eq(t, 1, c.timeScale)
	must.Eq(t, startAtLaunch, c.traceStart)
	must.False(t, c.keepDisk)
	must.MapLen(t, 2, c.offerings)
}

// All faults of a block are reported together, each with its field and what to do.
func TestDecode_faults(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.tmpl")
	must.NoError(t, os.WriteFile(bad, []byte("{{.Nope}}"), 0o600))
	setup, err := parseSetup(fmt.Sprintf(`
state_dir    = "relative"
notice       = "-1s"
time_scale   = 0
trace_start  = "later"
private_dirs = ["/"]
template "client.hcl" {
  source = %q
}
template "client.hcl" {
  source = "x.tmpl"
}
template "instance.json" {
  source = %[1]q
}
process "a" {
  argv = []
}
process "b" {
  argv = ["nomad", "{{.Wrong}}"]
}
`, bad), `trace = "west.json"`)
	must.NoError(t, err)
	_, err = New(setup)
	must.Error(t, err)
	for _, want := range []string{
		`provider "local".state_dir: "relative" is relative`,
		`provider "local".notice: -1s is negative`,
		`provider "local".time_scale: 0 is not above 0`,
		`provider "local".trace_start: "later" is unknown; give "launch" or "manual"`,
		`provider "local".private_dirs[0]: "/" must be an absolute path`,
		`template "client.hcl".source: execute template`,
		`Nope`,
		`template "client.hcl": the name is used twice`,
		`template "client.hcl".source: "x.tmpl" is relative`,
		`template "instance.json": the name is used twice or by the provider itself`,
		`process "a".argv: empty`,
		`process "b".argv[0]: "nomad" is relative`,
		`process "b".argv[1]`,
		`offering "west".trace: "west.json" is relative`,
	} {
		must.StrContains(t, err.Error(), want)
	}
}

func TestDecode_hcl(t *testing.T) {
	setup, err := parseSetup("state_dirr = \"/x\"", "")
	must.NoError(t, err)
	_, err = decode(setup)
	must.ErrorContains(t, err, "state_dirr")
	must.ErrorContains(t, err, `"state_dir" is required`)
}

func TestDecode_trace(t *testing.T) {
	dir := t.TempDir()
	body := fmt.Sprintf("state_dir = %q\nprocess \"sleep\" {\n argv = [\"/bin/sleep\", \"9\"]\n}", dir)
	broken := filepath.Join(dir, "broken.json")
	must.NoError(t, os.WriteFile(broken, []byte(`{"metadata":{"gap_seconds":195},"data":[0.5]}`), 0o600))
	for trace, want := range map[string]string{
		broken:                             "data[0]: 0.5 is neither 0 (not available) nor 1 (available)",
		filepath.Join(dir, "missing.json"): "no such file",
	} {
		setup, err := parseSetup(body, fmt.Sprintf("trace = %q", trace))
		must.NoError(t, err)
		_, err = decode(setup)
		must.ErrorContains(t, err, `offering "west".trace`)
		must.ErrorContains(t, err, want)
	}
	setup, err := parseSetup(body, fmt.Sprintf("trace = %q", broken))
	must.NoError(t, err)
	setup.Offerings[0].Kind = cloud.OnDemand
	_, err = decode(setup)
	must.ErrorContains(t, err, `only "spot" offerings follow a market`)
}
