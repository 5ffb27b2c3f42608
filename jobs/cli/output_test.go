package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
)

// A file that cannot be written leaves what was there, and nothing beside it.
func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, s)
			return err
		}
	}
	path := filepath.Join(dir, "page.html")
	must.NoError(t, writeWhole("--report", path, text("old")))
	must.ErrorContains(t, writeWhole("--report", path, func(w io.Writer) error {
		return errors.Join(text("ne")(w), errors.New("no more"))
	}), "--report: no more")
	data, err := os.ReadFile(path)
	must.NoError(t, err)
	must.Eq(t, "old", string(data))

	link := filepath.Join(dir, "device")
	must.NoError(t, os.Symlink(os.DevNull, link))
	for at, want := range map[string]string{
		dir:                                  dir + " is no file; give the path of one",
		link:                                 link + " is no file; give the path of one",
		filepath.Join(dir, "none", "a.html"): "give a path in a directory that can be written",
	} {
		err := writeWhole("--report", at, text("new"))
		must.ErrorContains(t, err, "--report: ")
		must.ErrorContains(t, err, want)
	}
	to, err := os.Readlink(link)
	must.NoError(t, err)
	must.Eq(t, os.DevNull, to)
	entries, err := os.ReadDir(dir)
	must.NoError(t, err)
	must.Len(t, 2, entries)
}
