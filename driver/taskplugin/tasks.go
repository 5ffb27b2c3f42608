package taskplugin

import (
	"context"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
)

// StartTask implements drivers.DriverPlugin.
func (d *Driver) StartTask(tc *drivers.TaskConfig) (*drivers.TaskHandle, *drivers.DriverNetwork, error) {
	m, err := d.configured()
	if err != nil {
		return nil, nil, err
	}
	d.learnNode(tc.NodeID)
	h, err := m.Start(d.ctx, tc)
	if err != nil {
		d.log.Error("task not started", "task_id", tc.ID, "error", err)
		return nil, nil, err
	}
	return h, nil, nil
}

// RecoverTask implements drivers.DriverPlugin.
func (d *Driver) RecoverTask(h *drivers.TaskHandle) error {
	m, err := d.configured()
	if err != nil {
		return err
	}
	if h != nil && h.Config != nil {
		d.learnNode(h.Config.NodeID)
	}
	return m.Recover(d.ctx, h)
}

// WaitTask implements drivers.DriverPlugin. The channel always gets a result: Nomad's client does not survive one that is
// closed empty. When the plugin ends, nothing is sent, for that would look like the task's end; Nomad sees the broken
// connection.
func (d *Driver) WaitTask(ctx context.Context, id string) (<-chan *drivers.ExitResult, error) {
	t, err := d.task(id)
	if err != nil {
		return nil, err
	}
	ch := make(chan *drivers.ExitResult, 1)
	go func() { // ends with the task or ctx
		defer close(ch)
		r, err := t.Wait(ctx)
		if err != nil {
			r = &drivers.ExitResult{Err: err}
		}
		ch <- r
	}()
	return ch, nil
}

// StopTask implements drivers.DriverPlugin. Nomad sets no deadline of its own.
func (d *Driver) StopTask(id string, timeout time.Duration, signal string) error {
	t, err := d.task(id)
	if err != nil {
		return err
	}
	return wrap("stop", id, t.Stop(d.ctx, timeout, signal))
}

// DestroyTask implements drivers.DriverPlugin.
func (d *Driver) DestroyTask(id string, force bool) error {
	m, err := d.configured()
	if err != nil {
		return err
	}
	return m.Destroy(d.ctx, id, force)
}

// InspectTask implements drivers.DriverPlugin.
func (d *Driver) InspectTask(id string) (*drivers.TaskStatus, error) {
	t, err := d.task(id)
	if err != nil {
		return nil, err
	}
	return t.Status(), nil
}

// SignalTask implements drivers.DriverPlugin.
func (d *Driver) SignalTask(id, signal string) error {
	t, err := d.task(id)
	if err != nil {
		return err
	}
	ctx, cancel := d.short()
	defer cancel()
	return wrap("signal", id, t.Signal(ctx, signal))
}
