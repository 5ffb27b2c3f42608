package repository_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
)

// tree makes a checkpoint with all that must survive: modes, empty directories, empty files, nesting, odd names.
func tree(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "checkpoint-7")
	write(t, path, map[string]string{
		"empty/": "", "zero": "", "model.bin": strings.Repeat("weights", 20_000), "d/e/f/deep": "deep",
		"name with space, é and \n newline": "odd", "-rf": "dash",
	})
	must.NoError(t, os.Chmod(filepath.Join(path, "model.bin"), 0o400))
	must.NoError(t, os.Chmod(filepath.Join(path, "zero"), 0o000))
	must.NoError(t, os.Chmod(filepath.Join(path, "-rf"), 0o777))
	must.NoError(t, os.Chmod(filepath.Join(path, "empty"), 0o711))
	must.NoError(t, os.Chmod(filepath.Join(path, "d/e"), 0o500))
	must.NoError(t, os.Chmod(path, 0o555))
	return path
}

func TestRoundTrip(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ckpt_7.pt")
	write(t, filepath.Dir(file), map[string]string{"ckpt_7.pt": strings.Repeat("x", 100_001)})
	must.NoError(t, os.Chmod(file, 0o640))
	empty := filepath.Join(t.TempDir(), "empty_7")
	write(t, filepath.Dir(empty), map[string]string{"empty_7": ""})
	bare := filepath.Join(t.TempDir(), "dir_7")
	must.NoError(t, os.Mkdir(bare, 0o700))
	for name, path := range map[string]string{"tree": tree(t), "file": file, "empty file": empty, "empty directory": bare} {
		t.Run(name, func(t *testing.T) {
			r, _ := openDisk(t)
			publish(t, claim(t, r, "l"), 7, scan(t, path))
			target := t.TempDir()
			m, damaged, err := r.Newest(t.Context(), "l", into(target))
			must.NoError(t, err)
			must.SliceEmpty(t, damaged)
			must.EqOp(t, filepath.Base(path), m.Name)
			must.Eq(t, picture(t, path), picture(t, filepath.Join(target, m.Name)))
			must.Eq(t, []string{m.Name}, names(t, target))
		})
	}
}

func TestRestoreOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	r, _ := openDisk(t)
	publish(t, claim(t, r, "l"), 7, scan(t, tree(t)))
	target := t.TempDir()
	_, _, err := r.Newest(t.Context(), "l", repository.Target{Dir: target, UID: 12345, GID: 23456})
	must.NoError(t, err)
	for p := range picture(t, filepath.Join(target, "checkpoint-7")) {
		info, err := os.Lstat(filepath.Join(target, "checkpoint-7", p))
		must.NoError(t, err)
		st, ok := info.Sys().(*syscall.Stat_t)
		must.True(t, ok)
		must.EqOp(t, 12345, st.Uid, must.Sprint(p))
		must.EqOp(t, 23456, st.Gid, must.Sprint(p))
	}
}

func TestNoSnapshot(t *testing.T) {
	r, _ := openDisk(t)
	m, damaged, err := r.Newest(t.Context(), "l", into(t.TempDir()))
	must.NoError(t, err)
	must.Nil(t, m)
	must.SliceEmpty(t, damaged)
	_, err = r.Restore(t.Context(), repository.Snapshot{Lineage: "l", ID: "00000001-000000000001", Epoch: 1, Step: 1}, into(t.TempDir()))
	must.ErrorIs(t, err, repository.ErrNoSnapshot)
	publish(t, claim(t, r, "l"), 1, memory{"c", nil})
	_, _, err = r.Newest(t.Context(), "l", into(filepath.Join(t.TempDir(), "none")))
	must.ErrorIs(t, err, os.ErrNotExist)
}

// newPack is the only pack that the newest snapshot made.
func newPack(store string) string {
	list, err := filepath.Glob(filepath.Join(store, "lineages/l/@packs/00000001-000000000002-*"))
	if err != nil || len(list) != 1 {
		panic(fmt.Sprint(list, err))
	}
	return list[0]
}

// damages are what can happen to the newest snapshot, "new" below.
var damages = map[string]struct {
	reason string
	do     func(store string) error
}{
	"bit flip in a block":  {"hash", func(s string) error { return flip(newPack(s), 3) }},
	"pack cut":             {"shorter than it was", func(s string) error { return os.Truncate(newPack(s), 40) }},
	"pack empty":           {"shorter than it was", func(s string) error { return os.Truncate(newPack(s), 0) }},
	"bit flip in the end":  {"it does not end like a pack", func(s string) error { return flip(newPack(s), -1) }},
	"bit flip in the sum":  {"it is another pack", func(s string) error { return flip(newPack(s), -10) }},
	"bit flip in an index": {"index does not match its sum", func(s string) error { return flip(newPack(s), -40) }},
	"pack missing":         {"missing", func(s string) error { return os.Remove(newPack(s)) }},
	"manifest damage":      {"manifest checksum does not match", func(s string) error { return flip(manifestFile(s), 20) }},
	"manifest empty":       {"manifest checksum does not match", func(s string) error { return os.Truncate(manifestFile(s), 0) }},
	"manifest of another snapshot": {"it describes snapshot 00000001-000000000001 of l", func(s string) error {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(manifestFile(s)), "00000001-000000000001"))
		if err != nil {
			return err
		}
		return os.WriteFile(manifestFile(s), b, 0o644)
	}},
}

func manifestFile(store string) string {
	return filepath.Join(store, "lineages/l/@snapshots/00000001-000000000002")
}

func flip(path string, at int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	return os.WriteFile(path, b, 0o644)
}

func TestDamagedNewest(t *testing.T) {
	for name, d := range damages {
		t.Run(name, func(t *testing.T) {
			r, dir := openDisk(t)
			w := claim(t, r, "l")
			publish(t, w, 1, memory{"old", map[string]string{"a": "old content"}})
			publish(t, w, 2, memory{"new", map[string]string{"a": "new content", "b": "other"}})
			must.NoError(t, d.do(dir))

			r = reopen(t, dir)
			target := t.TempDir()
			m, damaged, err := r.Newest(t.Context(), "l", into(target))
			must.NoError(t, err)
			must.EqOp(t, 1, m.Step)
			must.Len(t, 1, damaged)
			must.EqOp(t, 2, damaged[0].Step)
			must.EqOp(t, "00000001-000000000002", damaged[0].Snapshot)
			must.StrContains(t, damaged[0].Reason, d.reason)
			must.Eq(t, []string{"old"}, names(t, target)) // nothing of the damaged one

			for _, all := range []bool{false, true} {
				rep, err := reopen(t, dir).Verify(t.Context(), "", all, nil)
				must.NoError(t, err)
				must.EqOp(t, 2, rep.Snapshots)
				must.Len(t, 1, rep.Damaged)
				must.EqOp(t, damaged[0].Object, rep.Damaged[0].Object)
			}
		})
	}
}

func TestAllDamaged(t *testing.T) {
	r, dir := openDisk(t)
	publish(t, claim(t, r, "l"), 1, memory{"c", map[string]string{"a": "new content"}})
	must.NoError(t, os.RemoveAll(filepath.Join(dir, "lineages/l/@packs")))
	target := t.TempDir()
	m, damaged, err := r.Newest(t.Context(), "l", into(target))
	must.ErrorIs(t, err, repository.ErrNoSnapshot)
	must.Nil(t, m)
	must.Len(t, 1, damaged)
	must.SliceEmpty(t, names(t, target))
}

// What is in the store is read before a new snapshot relies on it: one that is damaged is not relied on.
func TestDamagedParent(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"bit flip": func(p string) error { return flip(p, 0) },
		"cut":      func(p string) error { return os.Truncate(p, 1) },
		"missing":  os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := openDisk(t)
			w := claim(t, r, "l")
			publish(t, w, 1, memory{"c", map[string]string{"a": "first"}})
			publish(t, w, 2, memory{"c", map[string]string{"a": "content"}})
			must.NoError(t, damage(newPack(dir)))
			r = reopen(t, dir)
			publish(t, claim(t, r, "l"), 3, memory{"c", map[string]string{"a": "content"}})
			rep, err := r.Verify(t.Context(), "l", true, nil)
			must.NoError(t, err)
			must.Len(t, 1, rep.Damaged)
			must.EqOp(t, 2, rep.Damaged[0].Step)
			m, _, err := r.Newest(t.Context(), "l", into(t.TempDir()))
			must.NoError(t, err)
			must.EqOp(t, 3, m.Step)
		})
	}
}

// A restore takes the place of whatever has the checkpoint's name, of any kind, and leaves everything else.
func TestRestoreOver(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, map[string]string{"keep": "kept"})
	for name, prepare := range map[string]func(p string) error{
		"file":      func(p string) error { return os.WriteFile(p, []byte("old"), 0o644) },
		"directory": func(p string) error { return os.MkdirAll(filepath.Join(p, "full/of/things"), 0o755) },
		"link out":  func(p string) error { return os.Symlink(outside, p) },
		"dead link": func(p string) error { return os.Symlink("/nonexistent", p) },
		"fifo":      func(p string) error { return syscall.Mkfifo(p, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			for kind, path := range map[string]string{"tree": tree(t), "file": ""} {
				if kind == "file" {
					path = filepath.Join(t.TempDir(), "checkpoint-7")
					write(t, filepath.Dir(path), map[string]string{"checkpoint-7": "file"})
				}
				r, _ := openDisk(t)
				publish(t, claim(t, r, "l"), 7, scan(t, path))
				target := t.TempDir()
				write(t, target, map[string]string{"other": "untouched"})
				must.NoError(t, prepare(filepath.Join(target, "checkpoint-7")))
				_, _, err := r.Newest(t.Context(), "l", into(target))
				must.NoError(t, err)
				must.Eq(t, picture(t, path), picture(t, filepath.Join(target, "checkpoint-7")))
				must.Eq(t, []string{"checkpoint-7", "other"}, names(t, target))
			}
		})
	}
	must.Eq(t, []string{"keep"}, names(t, outside))
}

// Whatever is written into the store, a restore writes nothing outside its target.
func TestHostileManifests(t *testing.T) {
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			r, dir := openDisk(t)
			publish(t, claim(t, r, "l"), 1, memory{"c", map[string]string{"a": "test"}})
			m := valid()
			m.Lineage, m.Epoch, m.Step = "l", 1, 2
			h.change(m)
			must.NoError(t, os.WriteFile(manifestFile(dir), unchecked(m), 0o644))
			parent := t.TempDir()
			target := filepath.Join(parent, "in/side")
			must.NoError(t, os.MkdirAll(target, 0o755))
			got, damaged, err := r.Newest(t.Context(), "l", into(target))
			must.NoError(t, err)
			must.EqOp(t, 1, got.Step)
			must.Len(t, 1, damaged)
			must.Eq(t, []string{"c"}, names(t, target))
			must.Eq(t, []string{"side"}, names(t, filepath.Join(parent, "in")))
			must.Eq(t, []string{"in"}, names(t, parent))
		})
	}
}

// What a killed restore left is removed by the next one, and nothing else; a failing restore leaves nothing.
func TestRestoreLeftovers(t *testing.T) {
	r, dir := openDisk(t)
	w := claim(t, r, "l")
	publish(t, w, 1, memory{"c", map[string]string{"a": "first", "b": "second"}})
	target := t.TempDir()
	outside := t.TempDir()
	write(t, outside, map[string]string{"keep": "kept"})
	write(t, target, map[string]string{
		repository.RestorePrefix + "0123/half/of": "it", ".hidden": "kept", "spotter-restore-1": "kept",
	})
	must.NoError(t, os.Symlink(outside, filepath.Join(target, repository.RestorePrefix+"link")))
	_, _, err := r.Newest(t.Context(), "l", into(target))
	must.NoError(t, err)
	must.Eq(t, []string{".hidden", "c", "spotter-restore-1"}, names(t, target))
	must.Eq(t, []string{"keep"}, names(t, outside))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = r.Newest(ctx, "l", into(target))
	must.ErrorIs(t, err, context.Canceled)
	must.NoError(t, os.RemoveAll(filepath.Join(dir, "lineages/l/@packs")))
	_, _, err = r.Newest(t.Context(), "l", into(target))
	must.Error(t, err)
	must.Eq(t, []string{".hidden", "c", "spotter-restore-1"}, names(t, target))
}

// Restores into one directory at the same time take turns: none removes what another is at, and the last leaves it whole.
func TestRestoreTogether(t *testing.T) {
	r, _ := openDisk(t)
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprint("f", i)] = "content"
	}
	publish(t, claim(t, r, "l"), 1, memory{"c", files})
	target := t.TempDir()
	done := make(chan error, 4)
	for range cap(done) {
		go func() {
			_, _, err := r.Newest(t.Context(), "l", into(target))
			done <- err
		}()
	}
	for range cap(done) {
		must.NoError(t, <-done)
	}
	must.Eq(t, []string{"c"}, names(t, target))
	must.Len(t, len(files), names(t, filepath.Join(target, "c")))
}
