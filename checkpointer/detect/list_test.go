package detect

import (
	"archive/zip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"
)

func all(string) bool { return true }

func look1(t *testing.T, dir, name string) Entry {
	t.Helper()
	list, err := List(dir, func(n string) bool { return n == name }, all)
	must.NoError(t, err)
	must.Len(t, 1, list)
	return list[0]
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	must.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// leases skips, visibly, where the file system cannot tell who writes.
func leases(t *testing.T, dir string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, "probe"), "x")
	if look1(t, dir, "probe").NoLease {
		t.Skipf("the file system of %s has no leases", dir)
	}
}

// Real descriptors: whoever has a file open for writing makes its checkpoint busy, and readers do not.
func TestListBusy(t *testing.T) {
	dir := t.TempDir()
	leases(t, dir)
	writeFile(t, filepath.Join(dir, "c/sub/model"), "x")
	writeFile(t, filepath.Join(dir, "other"), "x")
	must.False(t, look1(t, dir, "c").Busy)
	for flag, busy := range map[int]bool{os.O_RDONLY: false, os.O_WRONLY: true, os.O_RDWR: true, os.O_WRONLY | os.O_APPEND: true} {
		f, err := os.OpenFile(filepath.Join(dir, "c/sub/model"), flag, 0)
		must.NoError(t, err)
		must.EqOp(t, busy, look1(t, dir, "c").Busy, must.Sprint(flag))
		must.False(t, look1(t, dir, "other").Busy)
		must.NoError(t, f.Close())
		must.False(t, look1(t, dir, "c").Busy)
	}
	// Without a probe nothing is said.
	f, err := os.OpenFile(filepath.Join(dir, "other"), os.O_WRONLY, 0)
	must.NoError(t, err)
	list, err := List(dir, all, func(string) bool { return false })
	must.NoError(t, err)
	for _, e := range list {
		must.False(t, e.Busy || e.NoLease)
	}
	must.NoError(t, f.Close())
}

// A probe must not hold up a writer: the lease is given back at once.
func TestListDoesNotBlockWriters(t *testing.T) {
	dir := t.TempDir()
	leases(t, dir)
	path := filepath.Join(dir, "c")
	writeFile(t, path, "x")
	for range 200 {
		look1(t, dir, "c")
		began := time.Now()
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0) // fails if a lease is still held
		must.NoError(t, err)
		must.NoError(t, f.Close())
		must.Less(t, time.Second, time.Since(began))
	}
}

func TestListRenamed(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "inplace"), "x")
	writeFile(t, filepath.Join(dir, "file.tmp"), "x")
	writeFile(t, filepath.Join(dir, "dir.tmp/model"), "x")
	writeFile(t, filepath.Join(dir, "filled/model"), "x")
	tick(t, dir)
	must.NoError(t, os.Rename(filepath.Join(dir, "file.tmp"), filepath.Join(dir, "file")))
	must.NoError(t, os.Rename(filepath.Join(dir, "dir.tmp"), filepath.Join(dir, "dir")))
	for name, want := range map[string]bool{"inplace": false, "file": true, "dir": true, "filled": false} {
		must.EqOp(t, want, look1(t, dir, name).Renamed, must.Sprint(name))
	}
	tick(t, dir)
	writeFile(t, filepath.Join(dir, "file"), "again, in place")
	must.False(t, look1(t, dir, "file").Renamed)
}

// tick waits until the clock of the file system has moved on.
func tick(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, ".tick")
	stamp := func() time.Time {
		must.NoError(t, os.WriteFile(path, nil, 0o644))
		now := time.Now()
		must.NoError(t, os.Remove(path))
		return now
	}
	begin := stamp()
	for stamp().Sub(begin) < 20*time.Millisecond {
		continue
	}
}

// Every kind of change changes the signature; looking does not.
func TestListSignature(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "c/model"), "x")
	writeFile(t, filepath.Join(dir, "c/sub/o"), "x")
	last := look1(t, dir, "c").Signature
	must.EqOp(t, last, look1(t, dir, "c").Signature)
	for name, change := range map[string]func() error{
		"content": func() error { return os.WriteFile(filepath.Join(dir, "c/model"), []byte("y"), 0o644) },
		"size":    func() error { return os.WriteFile(filepath.Join(dir, "c/model"), []byte("longer"), 0o644) },
		"mode":    func() error { return os.Chmod(filepath.Join(dir, "c/model"), 0o600) },
		"name":    func() error { return os.Rename(filepath.Join(dir, "c/sub/o"), filepath.Join(dir, "c/sub/p")) },
		"new":     func() error { return os.WriteFile(filepath.Join(dir, "c/new"), nil, 0o644) },
	} {
		tick(t, dir)
		must.NoError(t, change())
		now := look1(t, dir, "c").Signature
		must.NotEqOp(t, last, now, must.Sprint(name))
		last = now
	}
}

func TestListKinds(t *testing.T) {
	dir := t.TempDir()
	must.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	must.NoError(t, os.MkdirAll(filepath.Join(dir, "hollow/sub"), 0o755))
	writeFile(t, filepath.Join(dir, "half/model"), "x")
	writeFile(t, filepath.Join(dir, "half/sub/shard.tmp"), "x")
	writeFile(t, filepath.Join(dir, "whole/sub/model"), "x")
	writeFile(t, filepath.Join(dir, "file"), "")
	must.NoError(t, os.Symlink("whole", filepath.Join(dir, "latest")))
	must.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out")))
	must.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	list, err := List(dir, all, all)
	must.NoError(t, err)
	type kind struct{ dir, partial bool }
	got := map[string]kind{}
	for _, e := range list {
		got[e.Name] = kind{e.Dir, e.Partial}
	}
	must.Eq(t, map[string]kind{
		"empty": {true, true}, "hollow": {true, true}, "half": {true, true}, "whole": {true, false}, "file": {false, false},
	}, got)
	_, err = List(filepath.Join(dir, "none"), all, all)
	must.ErrorIs(t, err, os.ErrNotExist)
}

// Files whose format tells their length: every prefix of them is torn, alone or in a directory, and the whole is not.
func TestListTorn(t *testing.T) {
	dir := t.TempDir()
	for name, whole := range map[string]string{
		"m.safetensors":   safetensors,
		"c/w.safetensors": safetensors,
		"m.pt":            zipFile(t),
		"c/optim.pt":      zipFile(t),
	} {
		top, _, _ := strings.Cut(name, "/")
		for cut := range len(whole) {
			writeFile(t, filepath.Join(dir, name), whole[:cut])
			must.NotEqOp(t, "", look1(t, dir, top).Torn, must.Sprintf("%s with %d of %d bytes", name, cut, len(whole)))
		}
		writeFile(t, filepath.Join(dir, name), whole)
		must.EqOp(t, "", look1(t, dir, top).Torn)
		must.NoError(t, os.RemoveAll(filepath.Join(dir, top)))
	}
	// Of other files nothing can be said, nor of one that is being written.
	writeFile(t, filepath.Join(dir, "log.txt"), "PK")
	must.EqOp(t, "", look1(t, dir, "log.txt").Torn)
	leases(t, dir)
	f, err := os.Create(filepath.Join(dir, "m.safetensors"))
	must.NoError(t, err)
	must.EqOp(t, "", look1(t, dir, "m.safetensors").Torn)
	must.NoError(t, f.Close())
	must.StrContains(t, look1(t, dir, "m.safetensors").Torn, "m.safetensors: ")
}

const (
	header      = `{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`
	safetensors = string(rune(len(header))) + "\x00\x00\x00\x00\x00\x00\x00" + header + "0123456789abcdef"
)

func zipFile(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	w := zip.NewWriter(&b)
	f, err := w.CreateHeader(&zip.FileHeader{Name: "m/data.pkl", Method: zip.Store})
	must.NoError(t, err)
	_, err = f.Write([]byte("\x80\x02}."))
	must.NoError(t, errors.Join(err, w.Close()))
	return b.String()
}
