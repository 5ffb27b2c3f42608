package repository_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
)

var update = flag.Bool("update", false, "write testdata anew")

const golden = "testdata/format-1"

// goldenCheckpoints are what the golden repository holds, by step.
var goldenCheckpoints = map[int64]memory{
	100: {"ckpt_100", map[string]string{"model.bin": "weights of step 100\n", "optimizer.bin": "momentum\n", "empty": ""}},
	200: {"ckpt_200", map[string]string{"model.bin": "weights of step 200\n", "optimizer.bin": "momentum\n"}},
}

// TestGolden opens a repository that format 1 left in the tree. It must be readable for as long as the format is.
//
//	go test ./checkpointer/repository -run TestGolden -update
func TestGolden(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	// Its id is random: the new one gets that of the one in the tree.
	must.NoError(t, os.Mkdir(dir, 0o755))
	must.NoError(t, os.WriteFile(filepath.Join(dir, "spotter-repository.json"), []byte(contents(t, golden)["spotter-repository.json"]), 0o644))
	w := claim(t, reopen(t, dir), "default/train")
	publish(t, w, 100, goldenCheckpoints[100])
	publish(t, w, 200, goldenCheckpoints[200])
	must.NoError(t, os.Remove(filepath.Join(dir, "tmp")))
	if *update {
		must.NoError(t, os.RemoveAll(golden))
		must.NoError(t, os.CopyFS(golden, os.DirFS(dir)))
	}
	// Today's writer writes what is in the tree, byte for byte.
	must.Eq(t, contents(t, golden), contents(t, dir))

	abs, err := filepath.Abs(golden)
	must.NoError(t, err)
	s, err := store.Open("file://"+abs, false)
	must.NoError(t, err)
	r, err := repository.Open(t.Context(), s, false)
	must.NoError(t, err)
	list, err := r.Snapshots(t.Context(), "")
	must.NoError(t, err)
	must.Len(t, 2, list)
	for _, snapshot := range list {
		must.EqOp(t, "default/train", snapshot.Lineage)
		target := t.TempDir()
		m, err := r.Restore(t.Context(), snapshot, into(target))
		must.NoError(t, err)
		want := goldenCheckpoints[snapshot.Step]
		must.EqOp(t, want.name, m.Name)
		must.Eq(t, want.files, contents(t, filepath.Join(target, m.Name)))
	}
	rep, err := r.Verify(t.Context(), "", true, nil)
	must.NoError(t, err)
	must.SliceEmpty(t, rep.Damaged)
}

// contents maps the files below a directory to what is in them.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(p)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	}))
	return out
}
