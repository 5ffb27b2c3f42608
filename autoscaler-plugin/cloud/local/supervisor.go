package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/market"
)

// What a launch and the supervisor it starts agree on.
const (
	listenerFD = 3 // the metadata endpoint's listener
	readyFD    = 4 // one line: readyWord, or what went wrong
	readyWord  = "ready"
)

// clockPoll is how often a supervisor looks whether a market that stands still has been started.
const clockPoll = 250 * time.Millisecond

// supervisor owns one instance: its init, its metadata endpoint and its record. All decisions are made by the goroutine
// of run; handlers hand it their requests.
type supervisor struct {
	spec     spec
	tape     tape
	trace    market.Trace // of the tape, when the instance is left alone
	log      hclog.Logger
	requests chan request
	exited   chan struct{} // closed when the init and everything below it are gone

	terminated bool // the end was asked for; only run touches it

	mu     sync.Mutex
	record record
}

// request is a wish of the admin endpoint.
type request struct {
	notice *time.Duration // of a reclaim; nil: the pool file's
	end    string         // the reason, when the instance is to end at once
	done   chan error     // takes one answer
}

// RunInstance supervises the instance whose directory is given until it has ended. The launch that starts it passes the
// listener of the metadata endpoint and a pipe for its answer as file descriptors.
func RunInstance(ctx context.Context, dir string, log hclog.Logger) error {
	ready := os.NewFile(readyFD, "ready")
	if ready == nil {
		return fmt.Errorf("run instance: no descriptor %d; instances are started by a launch", readyFD)
	}
	unix.CloseOnExec(listenerFD)
	unix.CloseOnExec(readyFD)
	s, listener, err := newSupervisor(dir, log)
	if err != nil {
		_, _ = fmt.Fprintln(ready, err)
		return errors.Join(fmt.Errorf("run instance: %w", err), ready.Close())
	}
	defer func() { _ = listener.Close() }()
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := s.startInit(); err != nil {
		_, _ = fmt.Fprintln(ready, err)
		return errors.Join(fmt.Errorf("run instance: %w", err), ready.Close())
	}
	server := s.serve(listener)
	_, _ = fmt.Fprintln(ready, readyWord)
	_ = ready.Close()
	s.log.Info("instance runs", "id", s.record.ID, "offering", s.record.Offering, "metadata_url", s.record.MetadataURL)
	err = s.run(ctx)
	// The one who asked for the end may still wait for its answer.
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = server.Shutdown(shutdown)
	return err
}

func newSupervisor(dir string, log hclog.Logger) (*supervisor, net.Listener, error) {
	s := &supervisor{log: log.Named("instance"), requests: make(chan request), exited: make(chan struct{})}
	if err := readJSON(filepath.Join(dir, specFile), &s.spec); err != nil {
		return nil, nil, err
	}
	if s.spec.Trace != "" {
		data, err := os.ReadFile(s.spec.Trace)
		if err != nil {
			return nil, nil, err
		}
		if s.tape, err = readTape(data); err != nil {
			return nil, nil, err
		}
	}
	r, err := readRecord(dir)
	if err != nil {
		return nil, nil, err
	}
	if r.State == cloud.Gone {
		return nil, nil, fmt.Errorf("instance %s has ended: %s", r.ID, r.Reason)
	}
	if r.Supervisor, err = refOf(os.Getpid()); err != nil {
		return nil, nil, err
	}
	s.record = r
	s.trace = s.tape.below(r.MaxPriceUSDPerHour)
	listener, err := inheritedListener(listenerFD)
	return s, listener, err
}

// startInit starts the init in namespaces of its own and records its PID. The thread that starts a child is the parent
// that its death signal watches (prctl(2), PR_SET_PDEATHSIG): the goroutine keeps its thread until the child is gone.
func (s *supervisor) startInit() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.spec.Dir, initLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(exe, InitCommand, "--dir", s.spec.Dir) //nolint:noctx // run kills it
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL,
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			err = s.update(func(r *record) (err error) {
				r.Init, err = refOf(cmd.Process.Pid)
				return err
			})
			if err != nil {
				_ = cmd.Process.Kill()
			}
		}
		started <- err
		if cmd.Process != nil {
			_ = cmd.Wait() // returns once everything in the PID namespace is gone
		}
		close(s.exited)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start init: %w; PID and mount namespaces need root", err)
	}
	return nil
}

// serve answers the metadata endpoint until the server is shut down.
func (s *supervisor) serve(listener net.Listener) *http.Server {
	handler := &metadata{
		now: time.Now, snapshot: s.snapshot, tokens: map[string]time.Time{},
		reclaim:   func(notice *time.Duration) error { return s.ask(request{notice: notice}) },
		terminate: func(reason string) error { return s.ask(request{end: reason}) },
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("metadata endpoint ended", "error", err)
		}
	}()
	return server
}

// ask hands a request to run and waits for its answer.
func (s *supervisor) ask(r request) error {
	r.done = make(chan error, 1)
	select {
	case s.requests <- r:
		return <-r.done
	case <-s.exited:
		return nil // what was to end has ended
	}
}

// run plays the market until the instance has ended.
func (s *supervisor) run(ctx context.Context) error {
	for {
		wake := s.playMarket(time.Now())
		timer := time.NewTimer(wake)
		select {
		case <-s.exited:
			timer.Stop()
			reason, tail := describeDeath(s.spec.Dir)
			return s.bury(reason, tail, nil)
		case <-ctx.Done():
			timer.Stop()
			return s.kill("its supervisor was told to end")
		case r := <-s.requests:
			timer.Stop()
			reason, err := s.answer(r)
			if r.end != "" {
				s.terminated = true
			}
			if reason != "" {
				err = s.kill(reason)
			}
			r.done <- err
			if reason != "" {
				return err
			}
		case <-timer.C:
			if snap := s.snapshot(); snap.State == cloud.Noticed && !time.Now().Before(snap.Deadline) {
				return s.kill(snap.Reason)
			}
		}
	}
}

// answer decides on a request. It returns a reason when the instance is to end now.
func (s *supervisor) answer(r request) (endNow string, err error) {
	if r.end != "" {
		return r.end, nil
	}
	notice := s.spec.Notice
	if r.notice != nil {
		notice = *r.notice
	}
	const reason = "reclaimed on request"
	if notice == 0 {
		return reason + ", without a notice", nil
	}
	if s.snapshot().State != cloud.Running {
		return "", errNoticed
	}
	return "", s.notice(time.Now(), notice, reason)
}

// playMarket gives the notice when the market takes the offering away, and returns how long nothing more can happen.
func (s *supervisor) playMarket(now time.Time) time.Duration {
	snap := s.snapshot()
	if snap.State == cloud.Noticed {
		return max(0, snap.Deadline.Sub(now))
	}
	clock, err := readClock(s.spec.StateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("market clock not readable", "error", err)
		return clockPoll
	}
	taken, wake := nextMove(clock, s.trace, now)
	if !taken {
		return wake
	}
	position := clock.Position(now)
	reason := fmt.Sprintf("the market took offering %q at %v of its trace", snap.Offering, position.Round(time.Second))
	if price, _ := s.tape.price(position); s.tape.At(position) {
		reason = fmt.Sprintf("offering %q costs %v $/h at %v of its trace, the maximum is %v",
			snap.Offering, price, position.Round(time.Second), snap.MaxPriceUSDPerHour)
	}
	if err := s.notice(now, s.spec.Notice, reason); err != nil {
		s.log.Error("notice not recorded", "error", err)
		return clockPoll
	}
	return s.spec.Notice
}

// nextMove says whether the market takes an instance now, and else how long it surely does not.
func nextMove(clock market.Clock, trace market.Trace, now time.Time) (taken bool, wake time.Duration) {
	const never = 24 * time.Hour
	if len(trace.Up) == 0 {
		return false, never
	}
	position := clock.Position(now)
	if !trace.At(position) {
		return true, 0
	}
	if clock.Start.IsZero() {
		return false, clockPoll
	}
	next, changes := trace.Next(position)
	if !changes {
		return false, never
	}
	at, ok := clock.Wall(next)
	if !ok {
		return false, never
	}
	return false, min(never, max(time.Millisecond, at.Sub(now)))
}

// notice starts the countdown. The deadline is fixed here, once.
func (s *supervisor) notice(now time.Time, notice time.Duration, reason string) error {
	s.log.Info("interruption notice", "notice", notice, "reason", reason)
	return s.update(func(r *record) error {
		r.State = cloud.Noticed
		r.NoticedAt = now.UTC()
		r.Deadline = now.Add(notice).UTC()
		r.Reason = reason
		return nil
	})
}

// kill ends every process of the instance in one stroke: SIGKILL to the init of its PID namespace.
func (s *supervisor) kill(reason string) error {
	first := s.snapshot().Init
	cgroups := cgroupsBelow(first.PID)
	if err := first.signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("end instance: %w", err)
	}
	<-s.exited
	return s.bury(reason, "", cgroups)
}

// bury records the end and clears away what the instance left.
func (s *supervisor) bury(reason, tail string, cgroups []string) error {
	removeCgroups(s.snapshot().ID, cgroups)
	err := s.update(func(r *record) error {
		r.end(time.Now(), reason)
		r.Terminated = s.terminated
		r.LogTail = tail
		return nil
	})
	s.log.Info("instance ended", "reason", reason)
	if s.spec.KeepDisk {
		return err
	}
	return errors.Join(err, wipe(s.spec.Dir))
}

func (s *supervisor) snapshot() record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// update changes the record, on disk first.
func (s *supervisor) update(change func(*record) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.record
	if err := change(&next); err != nil {
		return err
	}
	if err := writeRecord(next); err != nil {
		return err
	}
	s.record = next
	return nil
}
