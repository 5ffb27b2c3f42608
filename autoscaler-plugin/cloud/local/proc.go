package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// procRef names a process for good: the kernel gives a PID again, but never with the same start time.
type procRef struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start_ticks"` // clock ticks since boot, field 22 of /proc/PID/stat
}

// refOf looks up a living process.
func refOf(pid int) (procRef, error) {
	s, err := readStat(pid)
	if err != nil {
		return procRef{}, err
	}
	return procRef{PID: pid, Start: s.start}, nil
}

// alive reports whether this very process still runs. A zombie does not; but a process whose first thread is a zombie
// runs as long as it has another thread, which may be the one that is killing the rest of a PID namespace.
func (p procRef) alive() bool {
	if p.PID <= 0 {
		return false
	}
	s, err := readStat(p.PID)
	return err == nil && s.start == p.Start && (s.threads > 1 || s.state != 'Z' && s.state != 'X')
}

// signal sends a signal to this very process. The pidfd is opened before the start time is compared, so that the
// signal cannot reach a later process with the same PID. It is no error when the process is gone.
func (p procRef) signal(sig unix.Signal) error {
	if p.PID <= 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pidfd of %d: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !p.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

type procStat struct {
	state   byte
	parent  int
	threads int
	start   uint64
}

// readStat reads /proc/PID/stat (proc(5)). The command name, field 2, may hold blanks and parentheses: fields are
// counted from behind its last ")".
func readStat(pid int) (procStat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(string(data))
}

func parseStat(text string) (procStat, error) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return procStat{}, fmt.Errorf("parse stat: no command in %q", text)
	}
	fields := strings.Fields(text[end+1:]) // fields[0] is field 3
	if len(fields) < 20 {
		return procStat{}, fmt.Errorf("parse stat: %d fields behind the command, want 20", len(fields))
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return procStat{}, fmt.Errorf("parse stat: %w", err)
	}
	threads, err := strconv.Atoi(fields[17])
	if err != nil {
		return procStat{}, fmt.Errorf("parse stat: %w", err)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return procStat{}, fmt.Errorf("parse stat: %w", err)
	}
	return procStat{state: fields[0][0], parent: parent, threads: threads, start: start}, nil
}

// descendants lists the processes below one, itself included. Below the init of a PID namespace that is everything in
// it and in the namespaces nested in it, since orphans are reparented to their namespace's init.
func descendants(root int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			children[s.parent] = append(children[s.parent], pid)
		}
	}
	found := []int{root}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

// cgroupsBelow lists the cgroup directories that the processes below root are in and that our own process is not in,
// deepest first.
func cgroupsBelow(root int) []string {
	own := map[string]bool{}
	for _, dir := range cgroupsOf(os.Getpid()) {
		own[dir] = true
	}
	seen := map[string]bool{}
	for _, pid := range descendants(root) {
		for _, dir := range cgroupsOf(pid) {
			if !own[dir] {
				seen[dir] = true
			}
		}
	}
	dirs := make([]string, 0, len(seen))
	for dir := range seen {
		dirs = append(dirs, dir)
	}
	sort.Slice(dirs, func(i, j int) bool {
		if len(dirs[i]) != len(dirs[j]) {
			return len(dirs[i]) > len(dirs[j])
		}
		return dirs[i] < dirs[j]
	})
	return dirs
}

// cgroupsOf reads /proc/PID/cgroup (cgroups(7)): lines "ID:CONTROLLERS:PATH", version 2 with empty controllers.
func cgroupsOf(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil
	}
	var dirs []string
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 || parts[2] == "/" {
			continue
		}
		name := strings.TrimPrefix(parts[1], "name=")
		for _, mount := range []string{filepath.Join("/sys/fs/cgroup", name), "/sys/fs/cgroup/unified"} {
			dir := filepath.Join(mount, parts[2])
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				dirs = append(dirs, dir)
				break
			}
		}
	}
	return dirs
}

// removeCgroups removes what an ended instance left below /sys/fs/cgroup: the cgroups that its processes were in, and
// those named after it, with all below them. rmdir removes no cgroup that has processes.
func removeCgroups(id string, processDirs []string) {
	for _, dir := range processDirs {
		_ = os.Remove(dir)
	}
	named := regexp.MustCompile(`(^|[^A-Za-z0-9])` + regexp.QuoteMeta(id) + `($|[^A-Za-z0-9])`) // od-1, not od-12
	for _, pattern := range []string{"/sys/fs/cgroup/*" + id + "*", "/sys/fs/cgroup/*/*" + id + "*"} {
		roots, err := filepath.Glob(pattern)
		if err != nil {
			continue // an ID is a plain name, no pattern
		}
		for _, root := range roots {
			if !named.MatchString(filepath.Base(root)) {
				continue
			}
			var dirs []string
			_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) {
				_ = os.Remove(dir)
			}
		}
	}
}
