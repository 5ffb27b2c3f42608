package repository_test

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
	"nomad-spotter/checkpointer/store"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(publisherEnv); dir != "" {
		os.Exit(publisher(dir))
	}
	os.Exit(m.Run())
}

// noon is the time of every snapshot in these tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// memory is a checkpoint in memory: a directory of files by path; a path with a slash at its end is a directory.
type memory struct {
	name  string
	files map[string]string
}

func (m memory) Name() string { return m.name }

func (m memory) Entries() []repository.Entry {
	out := []repository.Entry{{Dir: true, Mode: 0o755}}
	for _, p := range slices.Sorted(maps.Keys(m.files)) {
		if dir, ok := strings.CutSuffix(p, "/"); ok {
			out = append(out, repository.Entry{Path: dir, Dir: true, Mode: 0o755})
			continue
		}
		out = append(out, repository.Entry{Path: p, Mode: 0o644, Size: int64(len(m.files[p]))})
	}
	return out
}

func (m memory) Open(path string) (repository.File, error) {
	return memoryFile{strings.NewReader(m.files[path])}, nil
}

type memoryFile struct{ *strings.Reader }

func (memoryFile) Close() error { return nil }

func (m memory) Check() error { return nil }

// openDisk opens a new repository on the real file system.
func openDisk(t *testing.T) (*repository.Repository, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	return reopen(t, dir), dir
}

func reopen(t *testing.T, dir string) *repository.Repository {
	t.Helper()
	s, err := store.Open("file://"+dir, true)
	must.NoError(t, err)
	r, err := repository.Open(t.Context(), s, true)
	must.NoError(t, err)
	return r
}

func claim(t *testing.T, r *repository.Repository, lineage string) *repository.Writer {
	t.Helper()
	w, err := r.Claim(t.Context(), lineage, "test", noon)
	must.NoError(t, err)
	return w
}

func publish(t *testing.T, w *repository.Writer, step int64, src repository.Source) repository.Published {
	t.Helper()
	p, err := w.Publish(t.Context(), step, src, noon)
	must.NoError(t, err)
	return p
}

// write makes the files of a checkpoint below dir; a path that ends with a slash is an empty directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for p, content := range files {
		full := filepath.Join(dir, p)
		if p[len(p)-1] == '/' {
			must.NoError(t, os.MkdirAll(full, 0o755))
			continue
		}
		must.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must.NoError(t, os.WriteFile(full, []byte(content), 0o644))
	}
}

func scan(t *testing.T, path string) *stage.Tree {
	t.Helper()
	tree, err := stage.Scan(filepath.Dir(path), filepath.Base(path))
	must.NoError(t, err)
	return tree
}

// picture describes everything below a path: names, modes, contents.
func picture(t *testing.T, path string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must.NoError(t, filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(path, p)
		if err != nil {
			return err
		}
		content := ""
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(b)
		}
		out[rel] = fmt.Sprintf("%v %s", info.Mode(), content)
		return nil
	}))
	return out
}

// size is what all files of a directory take.
func size(t *testing.T, dir string) int64 {
	t.Helper()
	var n int64
	must.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		n += info.Size()
		return err
	}))
	return n
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.NoError(t, err)
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func into(dir string) repository.Target { return repository.Target{Dir: dir, UID: -1, GID: -1} }

// safetensors makes a file of that format with float tensors: names to values (https://huggingface.co/docs/safetensors).
func safetensors(tensors map[string][]float32) string {
	var head, data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		v := tensors[name]
		head = fmt.Appendf(head, ",%q:{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%d,%d]}", name, len(v), len(data), len(data)+4*len(v))
		for _, x := range v {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
	}
	head = append(append([]byte("{"), head[min(1, len(head)):]...), '}')
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(head)))) + string(head) + string(data)
}

// content reads a snapshot without writing it to a disk.
func content(t *testing.T, r *repository.Repository, s repository.Snapshot) (memory, error) {
	t.Helper()
	var mu sync.Mutex
	bytes := map[string][]byte{}
	m, l, err := r.Read(t.Context(), s, func(path string, off int64, b []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if n := int(off) + len(b); n > len(bytes[path]) {
			bytes[path] = append(bytes[path], make([]byte, n-len(bytes[path]))...)
		}
		copy(bytes[path][off:], b)
		return nil
	})
	if err != nil {
		return memory{}, err
	}
	out := memory{m.Name, map[string]string{}}
	for _, e := range l.Entries {
		if !e.Dir {
			out.files[e.Path] = string(bytes[e.Path])
		}
	}
	return out, nil
}
