package lifecycle

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchies lists where cgroup file systems are mounted, v1 and v2. cpuset of v1 is left out: a new group there takes
// no process before it is configured.
func hierarchies() ([]string, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || (fields[2] != "cgroup" && fields[2] != "cgroup2") {
			continue
		}
		if fields[2] == "cgroup" && strings.Contains(","+fields[3]+",", ",cpuset,") {
			continue
		}
		out = append(out, fields[1])
	}
	return out, nil
}

// enterCgroups moves a process into a group of its own in every hierarchy, so that whoever ends the plugin's group (a
// service manager, say) does not end the process as well.
func enterCgroups(path string, pid int) error {
	roots, err := hierarchies()
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	var errs []error
	for _, root := range roots {
		dir := filepath.Join(root, path)
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = writeCgroup(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeCgroups removes a group from every hierarchy. The kernel needs a moment to let go of one whose last process has
// just ended; one that stays busy is left.
func removeCgroups(ctx context.Context, path string) {
	roots, err := hierarchies()
	if err != nil {
		return
	}
	for _, root := range roots {
		for range 10 {
			if err := os.Remove(filepath.Join(root, path)); !errors.Is(err, unix.EBUSY) || !pause(ctx, 20*time.Millisecond) {
				break
			}
		}
	}
}

// writeCgroup writes to a file of a cgroup file system, where nothing else than a plain write works.
func writeCgroup(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist", file)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
