package agent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/api"
)

// process is the task's first process, held by a pidfd so that a reused pid is never taken for it.
type process struct {
	fd       int
	pid      int
	started  uint64
	attached time.Time
}

// startTime returns the 22nd field of /proc/PID/stat: when the process started, in clock ticks since boot (proc(5)).
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the command in parentheses and may hold anything; what follows its last ")" is plain.
	_, rest, ok := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// bootTime returns when the machine was booted (proc(5), btime of /proc/stat).
func bootTime() (time.Time, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "btime "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return time.Unix(n, 0), err
		}
	}
	return time.Time{}, errors.New("/proc/stat has no btime")
}

// lowerPriority lets every thread of this process, and those that they start, run behind others. setpriority(2) is per
// thread on Linux.
func lowerPriority() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		errs = append(errs, err, unix.Setpriority(unix.PRIO_PROCESS, tid, niceness))
	}
	return errors.Join(errs...)
}

func openProcess(pid int, now time.Time) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	started, err := startTime(pid)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read start of process %d: %w", pid, err), unix.Close(fd))
	}
	return &process{fd: fd, pid: pid, started: started, attached: now}, nil
}

func (p *process) signal(n int) error {
	return unix.PidfdSendSignal(p.fd, unix.Signal(n), nil, 0)
}

// ended waits for the end of the process, at most limit.
func (p *process) ended(limit time.Duration) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(limit.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}

// ended tells whether the attached task has ended, known to the watcher or not.
func (a *Agent) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.task == nil || a.gone {
		return a.gone
	}
	ended, err := a.task.ended(0)
	return err == nil && ended
}

// attach starts watching the task's process.
func (a *Agent) attach(r api.Attach) error {
	p, err := openProcess(r.PID, a.now())
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Started != 0 && p.started != r.Started {
		return errors.Join(fmt.Errorf("process %d is another one: it was started at tick %d, not %d", r.PID, p.started, r.Started), unix.Close(p.fd))
	}
	if a.gone {
		return errors.Join(errors.New("the task has ended already"), unix.Close(p.fd))
	}
	if a.task != nil {
		return errors.Join(fmt.Errorf("process %d is attached already", a.task.pid), unix.Close(p.fd))
	}
	a.adopt(p)
	return nil
}

// adopt is called with mu held.
func (a *Agent) adopt(p *process) {
	a.task, a.ready = p, true
	a.state.PID, a.state.Started, a.state.Ready = p.pid, p.started, true
	a.save()
	a.bump()
	a.watchers.Go(func() { a.watchProcess(p) })
	// A request may be older than the attachment, or than this process: its signal may not have been sent.
	if r := a.state.Request; r != nil && r.visible() && !r.Closed {
		a.signalTask()
	}
}

// signalTask sends the configured signal, if there is one. The caller holds mu.
func (a *Agent) signalTask() {
	if a.conf.Signal == 0 || a.task == nil {
		return
	}
	if err := a.task.signal(a.conf.Signal); err != nil {
		a.log.Warn("cannot signal the task", "error", err)
	}
}

// reattach finds the process again after a restart of the agent. One that is gone has ended.
func (a *Agent) reattach() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state.PID == 0 || a.gone {
		return
	}
	p, err := openProcess(a.state.PID, a.now())
	if err == nil && p.started != a.state.Started {
		err = errors.Join(errors.New("its pid was reused"), unix.Close(p.fd))
	}
	if err != nil {
		a.log.Info("the task has ended while the agent was away", "pid", a.state.PID, "error", err)
		a.gone = true
		a.bump()
		return
	}
	a.adopt(p)
}

// watchProcess records the end of the task.
func (a *Agent) watchProcess(p *process) {
	const look = 500 * time.Millisecond
	for a.ctx.Err() == nil {
		ended, err := p.ended(look)
		if err != nil {
			a.log.Error("cannot watch the task", "error", err)
			return
		}
		if ended {
			a.mu.Lock()
			a.log.Info("the task has ended", "pid", p.pid)
			a.gone = true
			a.bump()
			a.mu.Unlock()
			break
		}
	}
}
