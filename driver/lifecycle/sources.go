package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/nomad/plugins/drivers"
	"golang.org/x/sys/unix"

	"nomad-spotter/driver/config"
)

// source is what a bind mount of the job mounts.
type source struct {
	path   string
	target string
	held   *os.File // of a path in the task's directories: what was checked
}

// sources are those of the job's mounts, by their place in the list; those of other types are empty.
type sources []source

// mountSources finds the sources of the bind mounts. They must be released once the container is started.
func mountSources(tc *drivers.TaskConfig, list []config.Mount) (sources, error) {
	out := make(sources, len(list))
	for i, m := range list {
		if m.Type != "bind" {
			continue
		}
		s, err := mountSource(tc, m.Source)
		if err != nil {
			out.release()
			return nil, fmt.Errorf("config.mount[%d].source: %w", i, err)
		}
		s.target = path.Clean(m.Target)
		out[i] = s
	}
	return out, nil
}

func (l sources) release() {
	for _, s := range l {
		if s.held != nil {
			_ = s.held.Close()
		}
	}
}

// verify checks that the container got what was checked. The runtime resolves paths anew, and other tasks can change the
// task's directories at any time; the container's own view cannot be changed by them, and nothing of the image has run.
func (l sources) verify(pid int) error {
	root, err := os.Open(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		return fmt.Errorf("look at the container's mounts: %w", err)
	}
	defer root.Close()
	for i, s := range l {
		if s.held == nil {
			continue
		}
		if err := s.verify(root); err != nil {
			return fmt.Errorf("config.mount[%d].source: %w", i, err)
		}
	}
	return nil
}

func (s source) verify(root *os.File) error {
	fd, err := unix.Openat2(int(root.Fd()), strings.TrimPrefix(s.target, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return fmt.Errorf("look at %q in the container: %w", s.target, err)
	}
	got := os.NewFile(uintptr(fd), s.target)
	defer got.Close()
	have, err := got.Stat()
	if err != nil {
		return err
	}
	want, err := s.held.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(have, want) {
		return fmt.Errorf("%q became another file while the container was made; the container is not started", s.path)
	}
	return nil
}

// mountSource finds the source of a bind mount. A relative one is in the task's directories, made if it is missing, and
// no link may lead out of them.
func mountSource(tc *drivers.TaskConfig, src string) (source, error) {
	if path.IsAbs(src) {
		if _, err := os.Stat(src); err != nil {
			return source{}, fmt.Errorf("%q does not exist on this node: %w", src, err)
		}
		return source{path: src}, nil
	}
	dir, rest, err := rootOf(tc, src)
	if err != nil {
		return source{}, err
	}
	if rest == "" {
		return source{path: dir}, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return source{}, err
	}
	defer root.Close()
	if _, err := root.Stat(rest); errors.Is(err, os.ErrNotExist) {
		if err := root.MkdirAll(rest, 0o777); err != nil {
			return source{}, fmt.Errorf("make %q: %w", src, err)
		}
	}
	f, err := root.OpenFile(rest, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return source{}, fmt.Errorf("%q: %w", src, err)
	}
	p, err := filepath.EvalSymlinks(filepath.Join(dir, rest))
	if err != nil {
		return source{}, errors.Join(fmt.Errorf("%q: %w", src, err), f.Close())
	}
	return source{path: p, held: f}, nil
}
