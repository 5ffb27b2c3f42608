package stage

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/repository"
)

// write makes the files of the checkpoint dir/name.
func write(t *testing.T, dir, name string, files map[string]string) {
	t.Helper()
	for p, content := range files {
		full := filepath.Join(dir, name, p)
		must.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must.NoError(t, os.WriteFile(full, []byte(content), 0o644))
		// Finished a while ago: a file's time has the grain of the kernel's clock, some milliseconds.
		past := time.Now().Add(-time.Minute)
		must.NoError(t, os.Chtimes(full, past, past))
	}
}

func open(t *testing.T, dir string) (*Stage, []*Staged) {
	t.Helper()
	s, old, err := Open(dir)
	must.NoError(t, err)
	return s, old
}

// read returns the files of a source, or the error of its final check.
func read(src repository.Source) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range src.Entries() {
		if e.Dir {
			continue
		}
		f, err := src.Open(e.Path)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		out[e.Path] = string(b)
	}
	return out, src.Check()
}

var files = map[string]string{"model": strings.Repeat("m", 100_000), "sub/optimizer": "o", "empty": ""}

// places are pairs of a checkpoint directory and a stage: on one file system, where a file is cloned or linked, and on
// two, where it is copied.
func places(_ *testing.T) map[string]func(t *testing.T) (dir, stage string) {
	return map[string]func(t *testing.T) (string, string){
		"one file system": func(t *testing.T) (string, string) { return t.TempDir(), t.TempDir() },
		"two file systems": func(t *testing.T) (string, string) {
			dir := t.TempDir()
			other, err := os.MkdirTemp("/dev/shm", "spotter-stage-*")
			if err != nil {
				t.Skipf("no second file system: %v", err)
			}
			t.Cleanup(func() { must.NoError(t, os.RemoveAll(other)) })
			if device(t, dir) == device(t, other) {
				t.Skipf("no second file system: %s and %s are on one device", dir, other)
			}
			return dir, other
		},
	}
}

func device(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must.NoError(t, unix.Stat(path, &st))
	return st.Dev
}

// What happens to the source after it was staged: the staged copy is the complete old set, or it says that it changed.
func TestSourceChangesAfterwards(t *testing.T) {
	changes := map[string]func(p string) error{
		"nothing":                  func(string) error { return nil },
		"deleted":                  os.RemoveAll,
		"replaced":                 func(p string) error { return replace(p) },
		"overwritten in place":     func(p string) error { return overwrite(filepath.Join(p, "model"), 0) },
		"one byte in the middle":   func(p string) error { return overwrite(filepath.Join(p, "model"), 50_000) },
		"cut":                      func(p string) error { return os.Truncate(filepath.Join(p, "sub/optimizer"), 0) },
		"file added":               func(p string) error { return os.WriteFile(filepath.Join(p, "new"), nil, 0o644) },
		"overwritten, then gone":   func(p string) error { return errors.Join(overwrite(filepath.Join(p, "model"), 0), os.RemoveAll(p)) },
		"renamed to another place": func(p string) error { return os.Rename(p, p+"-old") },
	}
	// By a copy every change is harmless; by a link those that write in place are seen.
	seen := []string{"overwritten in place", "one byte in the middle", "cut", "overwritten, then gone"}
	for place, dirs := range places(t) {
		for name, change := range changes {
			t.Run(place+"/"+name, func(t *testing.T) {
				dir, stageDir := dirs(t)
				write(t, dir, "ckpt_1", files)
				tree, err := Scan(dir, "ckpt_1")
				must.NoError(t, err)
				s, _ := open(t, stageDir)
				st, err := s.Add(tree, Meta{Step: 1})
				must.NoError(t, err)
				linked := device(t, dir) == device(t, stageDir) && inode(tree, "model") == inode(st.tree, "model")
				must.NoError(t, change(filepath.Join(dir, "ckpt_1")))
				got, err := read(st.Source())
				if linked && slices.Contains(seen, name) {
					must.ErrorIs(t, err, ErrChanged)
				} else {
					must.NoError(t, err)
					must.Eq(t, files, got)
				}
				must.NoError(t, s.Remove(st))
				left, err := os.ReadDir(stageDir)
				must.NoError(t, err)
				must.SliceEmpty(t, left)
			})
		}
	}
}

func inode(t *Tree, path string) uint64 {
	for _, s := range t.stats {
		if s.Path == path {
			return s.Inode
		}
	}
	return 0
}

// overwrite writes one byte in place.
func overwrite(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("X"), at)
	return errors.Join(err, f.Close())
}

// replace puts another checkpoint of the same shape in place of the one at p, as a careful program does.
func replace(p string) error {
	tmp := p + ".tmp"
	if err := os.MkdirAll(filepath.Join(tmp, "sub"), 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(strings.ToUpper(content)), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(os.Rename(p, p+".old"), os.Rename(tmp, p), os.RemoveAll(p+".old"))
}

// A checkpoint that changed since it was scanned is not staged, and leaves nothing in the stage.
func TestSourceChangedBefore(t *testing.T) {
	for place, dirs := range places(t) {
		for name, change := range map[string]func(p string) error{
			"deleted":     os.RemoveAll,
			"replaced":    replace,
			"overwritten": func(p string) error { return overwrite(filepath.Join(p, "model"), 7) },
			"cut":         func(p string) error { return os.Truncate(filepath.Join(p, "model"), 7) },
			"file gone":   func(p string) error { return os.Remove(filepath.Join(p, "empty")) },
			"file added":  func(p string) error { return os.WriteFile(filepath.Join(p, "new"), nil, 0o644) },
			"mode":        func(p string) error { return os.Chmod(filepath.Join(p, "model"), 0o600) },
			"now a pipe": func(p string) error {
				m := filepath.Join(p, "model")
				return errors.Join(os.Remove(m), syscall.Mkfifo(m, 0o644))
			},
			"now a link": func(p string) error {
				m := filepath.Join(p, "model")
				return errors.Join(os.Rename(m, filepath.Join(p, "sub/model")), os.Symlink("sub/model", m))
			},
		} {
			t.Run(place+"/"+name, func(t *testing.T) {
				dir, stageDir := dirs(t)
				write(t, dir, "ckpt_1", files)
				tree, err := Scan(dir, "ckpt_1")
				must.NoError(t, err)
				must.NoError(t, change(filepath.Join(dir, "ckpt_1")))
				s, _ := open(t, stageDir)
				_, err = s.Add(tree, Meta{})
				must.ErrorIs(t, err, ErrChanged)
				must.ErrorIs(t, tree.Check(), ErrChanged)
				left, err := os.ReadDir(stageDir)
				must.NoError(t, err)
				must.SliceEmpty(t, left)
			})
		}
	}
}

// A writer that changes the checkpoint all the time, in place, by replacement and by deletion: whatever is accepted is
// one generation, never a mixture.
func TestNeverAMixture(t *testing.T) {
	for place, dirs := range places(t) {
		t.Run(place, func(t *testing.T) {
			dir, stageDir := dirs(t)
			generation := func(n uint64) map[string]string {
				mark := fmt.Sprintf("%08d", n)
				return map[string]string{"a": strings.Repeat(mark, 4000), "b": mark, "c": strings.Repeat(mark, 100)}
			}
			put := func(n uint64, careful bool) error {
				name := "ckpt"
				if careful {
					name = "ckpt.tmp"
				}
				if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
					return err
				}
				for p, content := range generation(n) {
					if err := os.WriteFile(filepath.Join(dir, name, p), []byte(content), 0o644); err != nil {
						return err
					}
				}
				if !careful {
					return nil
				}
				return errors.Join(os.RemoveAll(filepath.Join(dir, "ckpt")), os.Rename(filepath.Join(dir, name), filepath.Join(dir, "ckpt")))
			}
			must.NoError(t, put(0, true))
			var stop atomic.Bool
			done := make(chan error, 1)
			go func() {
				random := rand.New(rand.NewPCG(1, 1))
				for n := uint64(1); !stop.Load(); n++ {
					if err := put(n, random.IntN(2) == 0); err != nil {
						done <- err
						return
					}
					// Longer than the grain of a file's time, as any real checkpoint takes.
					time.Sleep(time.Duration(10+random.IntN(10)) * time.Millisecond)
				}
				done <- nil
			}()
			s, _ := open(t, stageDir)
			accepted := 0
			for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
				tree, err := Scan(dir, "ckpt")
				if err != nil {
					continue // between two generations
				}
				if len(tree.stats) != 4 || tree.RawBytes() != 8*4101 {
					continue // being written: not finished, as detection would say
				}
				before, err := read(tree)
				if err != nil || !whole(before) {
					continue
				}
				st, err := s.Add(tree, Meta{})
				if err != nil {
					must.ErrorIs(t, err, ErrChanged)
					continue
				}
				got, err := read(st.Source())
				if err == nil {
					must.True(t, whole(got), must.Sprint("a mixture was accepted"))
					accepted++
				}
				must.NoError(t, s.Remove(st))
			}
			stop.Store(true)
			must.NoError(t, <-done)
			must.Positive(t, accepted)
			t.Logf("%d copies accepted", accepted)
		})
	}
}

// whole tells whether all files are of one generation.
func whole(got map[string]string) bool {
	mark := got["b"]
	return len(mark) == 8 && maps.Equal(got, map[string]string{"a": strings.Repeat(mark, 4000), "b": mark, "c": strings.Repeat(mark, 100)})
}

// A checkpoint holds files and directories, and nothing else.
func TestSpecialFiles(t *testing.T) {
	for name, create := range map[string]func(p string) error{
		"symbolic link": func(p string) error { return os.Symlink("model", p) },
		"link out":      func(p string) error { return os.Symlink("/etc/passwd", p) },
		"pipe":          func(p string) error { return syscall.Mkfifo(p, 0o644) },
		"socket": func(p string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: p}), unix.Close(fd))
		},
		"device": func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "st") // a socket's path is short
			must.NoError(t, err)
			t.Cleanup(func() { must.NoError(t, os.RemoveAll(dir)) })
			write(t, dir, "c", files)
			err = create(filepath.Join(dir, "c/sub/x"))
			if errors.Is(err, unix.EPERM) {
				t.Skipf("not allowed to make a %s: %v", name, err)
			}
			must.NoError(t, err)
			_, err = Scan(dir, "c")
			must.ErrorContains(t, err, "neither a file nor a directory")
			must.NoError(t, create(filepath.Join(dir, "x")))
			_, err = Scan(dir, "x")
			must.ErrorContains(t, err, "neither a file nor a directory")
		})
	}
}

// While a task swaps a file and a directory of its checkpoint for links that lead out, nothing from outside is read.
func TestSymlinkSwap(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, "sub", map[string]string{"secret": "outside"})
	dir := t.TempDir()
	inner := filepath.Join(dir, "c/sub")
	write(t, dir, "c", map[string]string{"sub/secret": "inside!"})
	must.NoError(t, os.Symlink(filepath.Join(outside, "sub"), filepath.Join(dir, "link")))
	var stop atomic.Bool
	done := make(chan error, 1)
	go func() {
		for !stop.Load() {
			if err := unix.Renameat2(unix.AT_FDCWD, inner, unix.AT_FDCWD, filepath.Join(dir, "link"), unix.RENAME_EXCHANGE); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	s, _ := open(t, t.TempDir())
	inside, refused := 0, 0
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		tree, err := Scan(dir, "c")
		if err != nil {
			refused++
			continue
		}
		if f, err := tree.Open("sub/secret"); err == nil {
			b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
			must.NoError(t, errors.Join(err, f.Close()))
			must.EqOp(t, "inside!", string(b))
		}
		st, err := s.Add(tree, Meta{})
		if err != nil {
			refused++
			continue
		}
		b, err := os.ReadFile(filepath.Join(s.path(st.Seq), "data/c/sub/secret"))
		must.NoError(t, err)
		must.EqOp(t, "inside!", string(b))
		must.NoError(t, s.Remove(st))
		inside++
	}
	stop.Store(true)
	must.NoError(t, <-done)
	must.Positive(t, refused)
	t.Logf("%d staged, %d refused", inside, refused)
}

// What was staged completely is there after a restart, in order; what a kill left half is removed.
func TestReopen(t *testing.T) {
	dir, stageDir := t.TempDir(), t.TempDir()
	write(t, dir, "ckpt_1", files)
	must.NoError(t, os.WriteFile(filepath.Join(dir, "ckpt_2"), []byte("two"), 0o600))
	s, old := open(t, stageDir)
	must.SliceEmpty(t, old)
	var staged []*Staged
	for i, name := range []string{"ckpt_1", "ckpt_2"} {
		tree, err := Scan(dir, name)
		must.NoError(t, err)
		st, err := s.Add(tree, Meta{Step: int64(i + 1), Request: 7, FinishedAt: time.Unix(1, 0).UTC()})
		must.NoError(t, err)
		staged = append(staged, st)
	}
	// Leftovers: without a record, with half of one, with a record of a removal, from another boot.
	for name, content := range map[string]string{
		"00000003/data/half/model": "x", "00000004/staged.json": `{"step":`, "00000005/staged.json.tmp": "x",
		"00000006/staged.json": `{"step":1,"name":"gone"}`, "00000007/staged.json": `{"step":1,"name":"old","boot":"another"}`,
		"00000007/data/old": "x",
	} {
		must.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(stageDir, name)), 0o755))
		must.NoError(t, os.WriteFile(filepath.Join(stageDir, name), []byte(content), 0o644))
	}
	again, old := open(t, stageDir)
	must.Len(t, 2, old)
	for i, st := range old {
		must.Eq(t, staged[i].Meta, st.Meta)
		must.EqOp(t, staged[i].Seq, st.Seq)
		_, err := read(st.Source())
		must.NoError(t, err)
	}
	got, err := read(old[0].Source())
	must.NoError(t, err)
	must.Eq(t, files, got)
	left, err := os.ReadDir(stageDir)
	must.NoError(t, err)
	must.Len(t, 2, left)
	must.EqOp(t, 100_001, old[0].RawBytes)
	tree, err := Scan(dir, "ckpt_2")
	must.NoError(t, err)
	st, err := again.Add(tree, Meta{})
	must.NoError(t, err)
	must.Greater(t, 7, st.Seq) // no number is used twice

	// What is in the stage may have been damaged in between.
	must.NoError(t, os.WriteFile(filepath.Join(stageDir, "00000001/data/ckpt_1/model"), []byte("other"), 0o644))
	_, old = open(t, stageDir)
	must.ErrorIs(t, old[0].Source().Check(), ErrChanged)
}

func TestModes(t *testing.T) {
	for place, dirs := range places(t) {
		t.Run(place, func(t *testing.T) {
			dir, stageDir := dirs(t)
			write(t, dir, "c", files)
			must.NoError(t, os.Chmod(filepath.Join(dir, "c/model"), 0o751))
			must.NoError(t, os.Chmod(filepath.Join(dir, "c/sub"), 0o711))
			tree, err := Scan(dir, "c")
			must.NoError(t, err)
			s, _ := open(t, stageDir)
			st, err := s.Add(tree, Meta{})
			must.NoError(t, err)
			must.Eq(t, tree.Entries(), st.Source().Entries())
		})
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, content := range []string{"one", "", "three"} {
		must.NoError(t, WriteFile(path, []byte(content)))
		b, err := os.ReadFile(path)
		must.NoError(t, err)
		must.EqOp(t, content, string(b))
	}
	must.Error(t, WriteFile(filepath.Join(path, "below"), nil))
	entries, err := os.ReadDir(filepath.Dir(path))
	must.NoError(t, err)
	must.Len(t, 1, entries)
}
