package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Usage is what one run of a program took.
type Usage struct {
	WallS  float64 `json:"wall_s"`
	CPUS   float64 `json:"cpu_s"`   // user and system time, of its children too
	PeakMB float64 `json:"peak_mb"` // largest resident set; not less than this program's own, which Linux inherits
}

func (u Usage) add(v Usage) Usage {
	return Usage{u.WallS + v.WallS, u.CPUS + v.CPUS, max(u.PeakMB, v.PeakMB)}
}

// Command is a program that is measured.
type Command struct {
	Args []string
	Dir  string
	Env  []string // added to a minimal environment
}

// measure runs c to its end and returns what it printed on standard output.
func measure(ctx context.Context, c Command) (string, Usage, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LC_ALL=C.UTF-8"}, c.Env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	start := time.Now()
	err := cmd.Run()
	u := Usage{WallS: time.Since(start).Seconds()}
	if err != nil {
		return "", u, fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, lastLines(errOut.String(), 5))
	}
	u.CPUS = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.PeakMB = float64(r.Maxrss) * 1024 / 1e6
	}
	return out.String(), u, nil
}

// lastLines returns at most n last lines of s, joined by "; ".
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// treeBytes is the size of all regular files below dir; 0 if there is no dir.
func treeBytes(dir string) (int64, error) {
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", dir, err)
	}
	return n, nil
}

// errDiffer is returned when restored bytes are not the saved ones.
var errDiffer = errors.New("the restored file differs from the saved one")

// compareFiles reads two files side by side. It holds little memory, as its own would be charged to the next child.
func compareFiles(want, got string) (err error) {
	a, err := os.Open(want)
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := os.Open(got)
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	x, y := make([]byte, 1<<16), make([]byte, 1<<16)
	for at := int64(0); ; {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return fmt.Errorf("%w: %s and %s, within the 64 KiB from byte %d", errDiffer, want, got, at)
		}
		at += int64(n)
		switch {
		case errors.Is(errA, io.EOF) || errors.Is(errA, io.ErrUnexpectedEOF):
			return nil
		case errA != nil:
			return fmt.Errorf("compare: %w", errA)
		case errB != nil:
			return fmt.Errorf("compare: %w", errB)
		}
	}
}

// place puts src under dst, replacing what is there: by a link where that works, else by copying.
func place(src, dst string) (err error) {
	if err := os.Remove(dst); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("place %s: %w", dst, err)
	}
	if os.Link(src, dst) == nil {
		return nil
	}
	in, err := os.Open(src)
	if err != nil {
		return fmt.Errorf("place %s: %w", dst, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.Create(dst)
	if err != nil {
		return fmt.Errorf("place %s: %w", dst, err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("place %s: %w", dst, err)
	}
	return nil
}

// warm reads a file once, so that every contender finds it in the page cache.
func warm(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read ahead: %w", err)
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 1<<16))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read ahead: %w", err)
	}
	return nil
}
