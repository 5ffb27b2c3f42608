package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupRoot is where control groups are mounted, in either version.
const cgroupRoot = "/sys/fs/cgroup"

// leftovers looks for processes, mounts and control groups of the cluster that outlived it, removes them, and reports
// processes and mounts as an error: something did not clean up after itself.
func (c *Cluster) leftovers(ctx context.Context) error {
	var errs []error
	pids := c.marked()
	for _, pid := range pids {
		errs = append(errs, fmt.Errorf("process %d is left: %s", pid, commandLine(pid)))
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
	}
	if len(pids) > 0 {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		errs = append(errs, Poll(ctx, 50*time.Millisecond, func() bool { return len(c.marked()) == 0 }))
	}
	mounts, err := c.mounts()
	errs = append(errs, err)
	for _, m := range slices.Backward(mounts) { // inner ones were mounted later
		errs = append(errs, fmt.Errorf("mount %s is left", m))
		_ = syscall.Unmount(m, syscall.MNT_DETACH) // reported already
	}
	return errors.Join(append(errs, c.removeCgroups(ctx))...)
}

// marked returns the processes that bear the cluster's mark in their environment or are in one of its control groups.
// Of its own processes only those that have not ended are among them.
func (c *Cluster) marked() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	mark := []byte(envMark + "=" + c.Dir + "\x00")
	group := []byte(c.values.CgroupParent + "/")
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		env, _ := os.ReadFile(filepath.Join(dir, "environ")) // unreadable: it has just ended
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		if (bytes.Contains(env, mark) || bytes.Contains(groups, group)) && !zombie(dir) {
			out = append(out, pid)
		}
	}
	return out
}

// zombie tells whether a process has ended and waits for its parent.
func zombie(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return true
	}
	i := bytes.LastIndexByte(b, ')') // the state follows the command's name
	return i < 0 || i+2 >= len(b) || b[i+2] == 'Z' || b[i+2] == 'X'
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")) // empty when it has just ended
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

// mounts returns the mount points below the cluster's folder.
func (c *Cluster) mounts() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], c.Dir+"/") {
			out = append(out, f[4])
		}
	}
	return out, nil
}

// removeCgroups removes the control groups below the cluster's parent, which nobody does when an instance is killed.
func (c *Cluster) removeCgroups(ctx context.Context) error {
	roots := []string{filepath.Join(cgroupRoot, c.values.CgroupParent)}
	hierarchies, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		roots = append(roots, filepath.Join(cgroupRoot, h.Name(), c.values.CgroupParent))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var errs []error
	for _, root := range roots {
		if _, err := os.Stat(root); err != nil {
			continue
		}
		// The kernel lets go of a group a moment after its last process.
		if err := Poll(ctx, 50*time.Millisecond, func() bool { return removeTree(root) }); err != nil {
			errs = append(errs, fmt.Errorf("control group %s is left: %w", root, err))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a control group and those below it; their files cannot be removed and need not be.
func removeTree(root string) bool {
	var dirs []string
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error { // what vanishes meanwhile is no fault
		if err == nil && d.IsDir() {
			dirs = append(dirs, p)
		}
		return nil
	})
	ok := true
	for _, d := range slices.Backward(dirs) {
		if err := syscall.Rmdir(d); err != nil && !errors.Is(err, syscall.ENOENT) {
			ok = false
		}
	}
	return ok
}

// Remove ends a cluster that another process started and left running, and removes its folder.
func Remove(ctx context.Context, dir string) error {
	if !strings.HasPrefix(filepath.Base(dir), dirPrefix) {
		return fmt.Errorf("%s is not the folder of a cluster", dir)
	}
	c := &Cluster{Dir: dir}
	c.values.CgroupParent = "/" + filepath.Base(dir)
	err := Poll(ctx, 100*time.Millisecond, func() bool {
		pids := c.marked()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
		}
		return len(pids) == 0
	})
	return errors.Join(err, c.leftovers(ctx), os.RemoveAll(dir))
}
