package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/cloud/local"
	"nomad-spotter/autoscaler-plugin/pool"
)

// example cuts the code block with a text out of the README.
func example(t *testing.T, text string) string {
	t.Helper()
	data, err := os.ReadFile("../../README.md")
	must.NoError(t, err)
	for i, block := range strings.Split(string(data), "```") {
		if i%2 == 1 && strings.Contains(block, text) {
			return strings.TrimPrefix(block, "hcl")
		}
	}
	t.Fatalf("the README has no example with %q", text)
	return ""
}

// The pool file and the client template of the README are taken as they are, but for where their files lie.
func TestReadme(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "client.hcl.tmpl"), example(t, "min_dynamic_port = {{"))
	write(t, filepath.Join(dir, "containerd.toml.tmpl"), "")
	for _, trace := range []string{"west.json", "east.json"} {
		write(t, filepath.Join(dir, trace), `{"metadata":{"gap_seconds":195},"data":[1,1,0,1]}`)
	}
	text := strings.ReplaceAll(example(t, `pool "training"`), "/etc/spotter", dir)
	pools, err := pool.Parse([]byte(text), "README.md", map[string]pool.Opener{
		"local": func(s cloud.Setup) (pool.Provider, error) { return local.New(s) },
	})
	must.NoError(t, err)
	must.Len(t, 1, pools)
	must.Len(t, 3, pools[0].Offerings)
}
