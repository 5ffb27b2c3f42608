package stage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// What was hardened is there after a reboot, and no write to the original reaches it; what was not is gone.
func TestHarden(t *testing.T) {
	for place, dirs := range places(t) {
		t.Run(place, func(t *testing.T) {
			dir, stageDir := dirs(t)
			s, _ := open(t, stageDir)
			var staged []*Staged
			for i, name := range []string{"ckpt_1", "ckpt_2"} {
				write(t, dir, name, files)
				tree, err := Scan(dir, name)
				must.NoError(t, err)
				st, err := s.Add(tree, Meta{Step: int64(i + 1)})
				must.NoError(t, err)
				staged = append(staged, st)
			}
			hard, err := s.Harden(staged[0])
			must.NoError(t, err)
			must.True(t, hard.Synced)
			must.EqOp(t, staged[0].Seq, hard.Seq)
			for _, name := range []string{"ckpt_1", "ckpt_2"} {
				must.NoError(t, overwrite(filepath.Join(dir, name, "model"), 50_000))
			}
			got, err := read(hard.Source())
			must.NoError(t, err)
			must.Eq(t, files, got)
			left, err := os.ReadDir(s.path(hard.Seq))
			must.NoError(t, err)
			must.Len(t, 2, left, must.Sprint("its own copy and the record"))

			// As after a reboot: the records are of another boot.
			for _, st := range staged {
				file := filepath.Join(s.path(st.Seq), recordName)
				b, err := os.ReadFile(file)
				must.NoError(t, err)
				boot, err := bootID()
				must.NoError(t, err)
				must.StrContains(t, string(b), boot)
				must.NoError(t, WriteFile(file, []byte(strings.ReplaceAll(string(b), boot, "another boot"))))
			}
			_, old := open(t, stageDir)
			must.Len(t, 1, old)
			must.True(t, old[0].Synced)
			got, err = read(old[0].Source())
			must.NoError(t, err)
			must.Eq(t, files, got)
			must.NoError(t, s.Remove(old[0]))
			left, err = os.ReadDir(stageDir)
			must.NoError(t, err)
			must.SliceEmpty(t, left)
		})
	}
}

// A checkpoint that was overwritten since it was staged is not hardened, where it was not a copy anyway.
func TestHarden_Changed(t *testing.T) {
	dir, stageDir := t.TempDir(), t.TempDir()
	write(t, dir, "ckpt_1", files)
	tree, err := Scan(dir, "ckpt_1")
	must.NoError(t, err)
	s, _ := open(t, stageDir)
	st, err := s.Add(tree, Meta{})
	must.NoError(t, err)
	if inode(tree, "model") != inode(st.tree, "model") {
		t.Skip("the file system clones files")
	}
	must.NoError(t, overwrite(filepath.Join(dir, "ckpt_1", "model"), 7))
	_, err = s.Harden(st)
	must.ErrorIs(t, err, ErrChanged)
	left, err := os.ReadDir(s.path(st.Seq))
	must.NoError(t, err)
	must.Len(t, 2, left, must.Sprint("the stage is as it was"))
	must.ErrorIs(t, st.Source().Check(), ErrChanged)
}

// A kill between the copy and the record leaves the checkpoint as it was staged; after the record, the copy.
func TestHarden_Killed(t *testing.T) {
	dir, stageDir := t.TempDir(), t.TempDir()
	write(t, dir, "ckpt_1", files)
	tree, err := Scan(dir, "ckpt_1")
	must.NoError(t, err)
	s, _ := open(t, stageDir)
	st, err := s.Add(tree, Meta{})
	must.NoError(t, err)
	_, err = place(st.tree, filepath.Join(s.path(st.Seq), ownDir), false)
	must.NoError(t, err)
	_, old := open(t, stageDir)
	must.Len(t, 1, old)
	must.False(t, old[0].Synced)
	hard, err := s.Harden(old[0])
	must.NoError(t, err)
	must.NoError(t, os.Mkdir(filepath.Join(s.path(st.Seq), dataDir), 0o700))
	_, old = open(t, stageDir)
	must.Len(t, 1, old)
	must.True(t, old[0].Synced)
	got, err := read(hard.Source())
	must.NoError(t, err)
	must.Eq(t, files, got)
}
