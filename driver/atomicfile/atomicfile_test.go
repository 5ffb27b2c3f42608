package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
)

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	for _, content := range []string{"old", "new"} {
		must.NoError(t, WriteFile(path, []byte(content), 0o640))
		got, err := os.ReadFile(path)
		must.NoError(t, err)
		must.Eq(t, content, string(got))
		info, err := os.Stat(path)
		must.NoError(t, err)
		must.Eq(t, 0o640, info.Mode().Perm())
	}

	// What cannot be replaced stays, and nothing is left beside it.
	dir := filepath.Join(t.TempDir(), "taken")
	must.NoError(t, os.MkdirAll(filepath.Join(dir, "inside"), 0o755))
	must.ErrorContains(t, WriteFile(dir, nil, 0o600), "write "+dir)
	left, err := os.ReadDir(filepath.Dir(dir))
	must.NoError(t, err)
	must.Len(t, 1, left)
}
