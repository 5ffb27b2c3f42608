package engines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// A binary on PATH wins over the cache; one that is nowhere is an error that says what to run.
func TestPath(t *testing.T) {
	path, cache := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	t.Setenv("SPOTTER_CACHE", cache)
	put := func(dir, name string) string {
		must.NoError(t, os.MkdirAll(dir, 0o755))
		file := filepath.Join(dir, name)
		must.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755))
		return file
	}
	_, err := Path("nomad")
	must.ErrorContains(t, err, "run `make engines`")
	cached := put(filepath.Join(cache, "bin"), "nomad")
	got, err := Path("nomad")
	must.NoError(t, err)
	must.Eq(t, cached, got)
	own := put(path, "nomad")
	got, err = Path("nomad")
	must.NoError(t, err)
	must.Eq(t, own, got)
	must.StrHasSuffix(t, filepath.Join(cache, "bin"), SearchPath())
}

// Nothing is built when every binary is on PATH, and what the cache holds is built again when a module file changes.
func TestEnsure_keepsWhatIsThere(t *testing.T) {
	path, cache := t.TempDir(), t.TempDir()
	for _, e := range All() {
		for name := range e.Packages {
			must.NoError(t, os.WriteFile(filepath.Join(path, name), []byte("#!/bin/sh\n"), 0o755))
		}
	}
	t.Setenv("PATH", path)
	t.Setenv("SPOTTER_CACHE", cache)
	var out strings.Builder
	must.NoError(t, Ensure(t.Context(), &Report{W: &out}, All()...))
	must.Eq(t, "", out.String())
}

func TestCacheKey_changesWithTheModule(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { must.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) }
	write("go.mod", "module x")
	write("go.sum", "")
	e := All()[0]
	first, err := cacheKey(e, dir)
	must.NoError(t, err)
	again, err := cacheKey(e, dir)
	must.NoError(t, err)
	must.Eq(t, first, again)
	write("go.sum", "y")
	changed, err := cacheKey(e, dir)
	must.NoError(t, err)
	must.NotEq(t, first, changed)
	e.Tags = "other"
	tagged, err := cacheKey(e, dir)
	must.NoError(t, err)
	must.NotEq(t, changed, tagged)
}

// Progress counts what the compiler prints, however the lines are cut.
func TestBuildWatch_counts(t *testing.T) {
	w := &buildWatch{}
	for _, part := range []string{"go: downloading a v1\ngo: downl", "oading b v1\nruntime\nfmt", "\n"} {
		_, err := w.Write([]byte(part))
		must.NoError(t, err)
	}
	must.Eq(t, 2, w.downloads)
	must.Eq(t, 2, w.packages)
	must.Eq(t, []string{"go: downloading a v1", "go: downloading b v1", "runtime", "fmt"}, w.tail())
}
