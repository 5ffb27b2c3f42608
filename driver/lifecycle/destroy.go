package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Destroy forgets a task and removes everything of it. A running task is only destroyed with force. An agent that still
// saves goes on, with its directory; Sweep removes that later.
func (m *Manager) Destroy(ctx context.Context, id string, force bool) error {
	t, err := m.Task(id)
	if err != nil {
		return err
	}
	defer m.lock(t.st.Dir)()
	if _, err := m.Task(id); err != nil { // another call was quicker
		return err
	}
	if t.Running() && !force {
		return fmt.Errorf("destroy task %s: it is running; stop it first, or use force", id)
	}
	if t.Running() {
		kill := func(ctx context.Context) error {
			return m.opts.Runtime.Kill(ctx, t.st.ContainerID, syscall.SIGKILL, true)
		}
		if err := bounded(ctx, kill); err != nil {
			t.log.Warn("kill a task that is destroyed", "error", err)
		}
		if t.awaitEnd(ctx, killWait) {
			t.awaitDone(ctx, minFinish+callTimeout)
		}
	}
	// Forgotten first: Nomad ignores an error and does not ask again, and Sweep removes what cannot be removed now.
	close(t.gone)
	m.drop(t)
	t.change(func(l *ledger) { l.Destroyed = true })
	if err := m.remove(ctx, t.st.ContainerID); err != nil {
		return fmt.Errorf("destroy task %s: %w", id, err)
	}
	saving := t.agent != nil && t.stillSaving(ctx)
	if t.agent != nil && !saving {
		if err := t.agent.stop(ctx); err != nil {
			return fmt.Errorf("destroy task %s: %w", id, err)
		}
	}
	if saving || t.ledger().Superseded != "" {
		return nil
	}
	return os.RemoveAll(t.st.Dir)
}

// remove removes a container within a limit.
func (m *Manager) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	return m.opts.Runtime.Remove(ctx, id)
}

// awaitDone waits until the result is published.
func (t *Task) awaitDone(ctx context.Context, limit time.Duration) {
	t.setFinishBy(time.Now().Add(minFinish))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}

// stillSaving says whether the agent has something that is not in the store.
func (t *Task) stillSaving(ctx context.Context) bool {
	if !t.agent.running() {
		return false
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := t.agent.client.Status(cctx, 0, 0)
	return err == nil && st.Pending > 0
}

func (a *agent) running() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proc.alive()
}

// Sweep looks after the directories of tasks that nobody will ask for again, because they were destroyed or their
// allocation is gone. It removes those that are not needed any more and starts an agent again that was ended, by a
// restart of the machine say, before everything was saved.
func (m *Manager) Sweep(ctx context.Context) {
	files, err := filepath.Glob(filepath.Join(m.cfg.StateDir, "t", "*", ledgerFile))
	if err != nil {
		m.log.Error("look for directories of destroyed tasks", "error", err)
		return
	}
	for _, file := range files {
		if ctx.Err() != nil {
			return
		}
		dir := filepath.Dir(file)
		if err := m.sweepDir(ctx, dir); err != nil && ctx.Err() == nil {
			m.log.Warn("sweep the directory of a destroyed task, trying again later", "dir", dir, "error", err)
		}
	}
}

func (m *Manager) sweepDir(ctx context.Context, dir string) error {
	defer m.lock(dir)()
	led, err := readLedger(dir)
	if err != nil || m.known(dir) {
		return err
	}
	_, err = os.Stat(led.AllocDir)
	orphan := errors.Is(err, os.ErrNotExist)
	if !orphan && (!led.Destroyed || led.Agent.alive()) {
		return nil
	}
	if err := m.remove(ctx, led.ContainerID); err != nil {
		return err
	}
	if led.Superseded != "" && !orphan {
		return nil // its allocation must not start the task again
	}
	return m.sweepOne(ctx, dir, led)
}

// known says whether the directory belongs to a task of this Manager.
func (m *Manager) known(dir string) bool {
	for _, t := range m.Tasks() {
		if t.st.Dir == dir {
			return true
		}
	}
	return false
}

// sweepOne has the agent save what is left, if there is one, and removes the directory.
func (m *Manager) sweepOne(ctx context.Context, dir string, led ledger) error {
	if _, err := os.Stat(agentConfigFile(dir)); err != nil {
		return m.sweepAway(ctx, dir)
	}
	a := m.newAgent(dir, led.Agent, func(p process) {
		led.Agent = p
		if err := writeLedger(dir, led); err != nil {
			m.log.Error("remember the checkpoint agent", "error", err)
		}
	})
	if _, err := a.ensure(ctx); err != nil {
		return err
	}
	cctx, cancel := context.WithTimeout(ctx, sweepTime+callTimeout)
	defer cancel()
	out, err := a.client.Finish(cctx, time.Now().Add(sweepTime), false)
	if err != nil || out.Pending > 0 {
		return err // it goes on by itself
	}
	if err := a.stop(ctx); err != nil {
		return err
	}
	return m.sweepAway(ctx, dir)
}

// sweepTime is how long a swept agent is waited for; it goes on by itself afterwards.
const sweepTime = 5 * time.Second

func (m *Manager) sweepAway(ctx context.Context, dir string) error {
	removeCgroups(ctx, m.agentCgroup(dir))
	return os.RemoveAll(dir)
}
