package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waitForTimeout bounds the wait for the path that a process's wait_for names.
const waitForTimeout = time.Minute

// RunInit is the first process of an instance's PID namespace. It starts the instance's processes in order, reaps
// whatever is orphaned, and ends when one of the processes does, after it has written which and how. When it ends, or
// is killed, the kernel kills everything else in the namespace: containers in namespaces nested in it too.
func RunInit(ctx context.Context, dir string) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("run init: this is process %d, not the first of a PID namespace; it is started by `%s`", os.Getpid(), InstanceCommand)
	}
	// Signals from within the namespace must not end it, nor the context that they end. Caught, not ignored: children
	// would inherit "ignored".
	ctx = context.WithoutCancel(ctx)
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	var s spec
	if err := readJSON(filepath.Join(dir, specFile), &s); err != nil {
		return fmt.Errorf("run init: %w", err)
	}
	if err := isolateMounts(s.Private); err != nil {
		return fmt.Errorf("run init: %w", err)
	}
	started := map[int]string{}
	for _, p := range s.Processes {
		pid, err := startProcess(dir, p)
		if err != nil {
			return die(dir, p.Name, "start: "+err.Error())
		}
		started[pid] = p.Name
		if p.WaitFor == "" {
			continue
		}
		if name, how := awaitPath(ctx, p, started); how != "" {
			return die(dir, name, how)
		}
	}
	for {
		name, how, err := reap(started, 0)
		if err != nil {
			return fmt.Errorf("run init: %w", err)
		}
		if how != "" {
			return die(dir, name, how)
		}
	}
}

// isolateMounts makes mounts of this namespace invisible outside, so that they vanish with it, and gives it a /proc that
// shows its own processes.
func isolateMounts(private []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range private {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make private directory: %w", err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return fmt.Errorf("mount private %s: %w", dir, err)
		}
	}
	return nil
}

func startProcess(dir string, p process) (int, error) {
	log, err := os.OpenFile(filepath.Join(dir, p.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...) //nolint:noctx // it lives as long as the namespace
	cmd.Dir = dir
	cmd.Env = os.Environ()
	for key, value := range p.Env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// awaitPath waits until the path of p's wait_for exists. It returns a process and how it ended, if one did meanwhile or
// if the path did not come in time.
func awaitPath(ctx context.Context, p process, started map[int]string) (name, how string) {
	ctx, cancel := context.WithTimeout(ctx, waitForTimeout)
	defer cancel()
	for {
		if _, err := os.Stat(p.WaitFor); err == nil {
			return "", ""
		}
		if name, how, err := reap(started, unix.WNOHANG); err != nil || how != "" {
			if err != nil {
				how = err.Error()
			}
			return name, how
		}
		if pause(ctx) != nil {
			return p.Name, fmt.Sprintf("wait_for: %s did not appear within %v", p.WaitFor, waitForTimeout)
		}
	}
}

// reap collects one ended child. For one of the started processes it says which and how it ended.
func reap(started map[int]string, options int) (name, how string, err error) {
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, options, nil)
	switch {
	case errors.Is(err, unix.EINTR), pid == 0 && err == nil:
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("wait for processes: %w", err)
	}
	name, ours := started[pid]
	if !ours {
		return "", "", nil
	}
	if status.Signaled() {
		return name, "killed by " + unix.SignalName(status.Signal()), nil
	}
	return name, fmt.Sprintf("exit code %d", status.ExitStatus()), nil
}

func die(dir, name, how string) error {
	err := fmt.Errorf("process %q: %s", name, how)
	return errors.Join(err, writeJSON(filepath.Join(dir, deathFile), death{Process: name, How: how}))
}
