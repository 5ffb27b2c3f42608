package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-spotter/driver/containerd"
)

// recoverTimeout bounds the look at one task: Nomad's client starts only after all of them.
const recoverTimeout = 5 * time.Second

// Recover takes a task over that an earlier plugin started. It runs, or it ended meanwhile and its exit code is known, or
// it is gone, which is an error: Nomad then starts the task anew. Where containerd does not answer yet, the task is taken
// to run until it does.
func (m *Manager) Recover(ctx context.Context, h *drivers.TaskHandle) error {
	if h == nil || h.Config == nil {
		return errors.New("recover task: there is no handle")
	}
	if _, err := m.Task(h.Config.ID); err == nil {
		return nil
	}
	if h.Version != stateVersion {
		return fmt.Errorf("recover task: its state has version %d, this driver knows %d", h.Version, stateVersion)
	}
	var st State
	if err := h.GetDriverState(&st); err != nil {
		return fmt.Errorf("recover task: decode its state: %w", err)
	}
	// state_dir may have been moved together with everything in it.
	st.Dir = filepath.Join(m.cfg.StateDir, "t", filepath.Base(st.Dir))
	led, err := readLedger(st.Dir)
	if err != nil {
		return fmt.Errorf("recover task: %w", err)
	}
	if led.TaskID != st.TaskID {
		return fmt.Errorf("recover task: its ledger in %s is missing or of another start", st.Dir)
	}
	cctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	state, err := m.opts.Runtime.Inspect(cctx, st.ContainerID)
	switch {
	case led.Exit != nil:
	case err != nil && !containerd.IsNotFound(err):
		m.log.Warn("containerd does not answer; the task is taken to run", "container", st.ContainerID, "error", err)
	case err != nil || (!state.Running && !state.Exited):
		// A container without a process: the machine was restarted.
		m.cleanGone(ctx, st, led)
		return fmt.Errorf("recover task: container %s is gone", st.ContainerID)
	}
	t := newTask(m, st, led)
	if led.Exit == nil && t.agent != nil {
		t.attachRecovered(cctx)
	}
	m.put(t)
	t.run(ctx)
	m.log.Info("task recovered", "container", st.ContainerID, "running", state.Running, "exited", state.Exited)
	return nil
}

// attachRecovered starts a dead agent again. One that cannot be started now is left to the supervisor.
func (t *Task) attachRecovered(ctx context.Context) {
	started, err := t.agent.ensure(ctx)
	if err != nil {
		t.log.Warn("checkpoint agent cannot be reached, trying on", "error", err)
		return
	}
	if started {
		t.attach(ctx)
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if st, err := t.agent.client.Status(cctx, 0, 0); err == nil {
		t.setDurable(st.Durable)
	}
}

// cleanGone removes what is left of a task whose container is gone. What its agent had staged stays for the next start.
func (m *Manager) cleanGone(ctx context.Context, st State, led ledger) {
	cctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	if err := m.opts.Runtime.Remove(cctx, st.ContainerID); err != nil {
		m.log.Warn("remove a container that is gone", "container", st.ContainerID, "error", err)
	}
	if err := m.newAgent(st.Dir, led.Agent, func(process) {}).stop(cctx); err != nil {
		m.log.Warn("end the agent of a container that is gone", "error", err)
	}
}
