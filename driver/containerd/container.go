package containerd

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/identity"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Prepare makes the container's root file system from the image. Everything made is labelled, so that Remove and List
// find it.
func (c *Client) Prepare(ctx context.Context, id string, img *Image) error {
	diffs, err := img.image.RootFS(ctx)
	if err != nil {
		return fmt.Errorf("read layers of image %s: %w", img.Name, err)
	}
	parent := identity.ChainID(diffs).String()
	// Without the label, the garbage collector would take the snapshot before the container refers to it.
	keep := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": time.Now().UTC().Format(time.RFC3339)})
	if _, err := c.c.SnapshotService(c.opts.Snapshotter).Prepare(ctx, id, parent, keep); err != nil {
		return fmt.Errorf("prepare root file system of %s: %w", id, err)
	}
	return nil
}

// ResolveUser finds out who "name", "uid", "name:group" or "uid:gid" is in a prepared root file system. Empty means the
// image's user; that may be empty too, which is root. The groups are added to those of the user.
func (c *Client) ResolveUser(ctx context.Context, id string, img *Image, user string, groups []string) (User, error) {
	if user == "" {
		user = img.Config.User
	}
	if user == "" {
		user = "0:0"
	}
	rec := &containers.Container{ID: id, Snapshotter: c.opts.Snapshotter, SnapshotKey: id}
	s := &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{}, Root: &specs.Root{}}
	if err := oci.WithUser(user)(ctx, c.c, rec, s); err != nil {
		return User{}, fmt.Errorf("find user %q in image %s: %w; use a user of the image, or numbers such as \"1000:1000\"", user, img.Name, err)
	}
	u := User{UID: s.Process.User.UID, GID: s.Process.User.GID}
	if err := oci.WithAdditionalGIDs(fmt.Sprint(u.UID))(ctx, c.c, rec, s); err != nil {
		return User{}, fmt.Errorf("find groups of user %q in image %s: %w", user, img.Name, err)
	}
	if len(groups) > 0 {
		if err := oci.WithAppendAdditionalGroups(groups...)(ctx, c.c, rec, s); err != nil {
			return User{}, fmt.Errorf("config.group_add: %w", err)
		}
	}
	u.Groups = s.Process.User.AdditionalGids
	return u, nil
}

// Start makes the container and its process. The shim opens the two fifos by itself, so output flows without us. before
// is called with the process's pid when everything is set up but nothing of the image has run yet; its error
// ends the start.
func (c *Client) Start(ctx context.Context, id string, img *Image, spec *specs.Spec, labels map[string]string, stdout, stderr string, before func(pid int) error) (pid int, err error) {
	ctr, err := c.c.NewContainer(ctx, id,
		client.WithImage(img.image),
		client.WithSnapshotter(c.opts.Snapshotter),
		client.WithSnapshot(id),
		client.WithSpec(spec),
		client.WithRuntime(c.opts.Runtime, nil),
		client.WithContainerLabels(labels),
	)
	if err != nil {
		return 0, fmt.Errorf("create container %s: %w", id, err)
	}
	task, err := ctr.NewTask(ctx, direct(stdout, stderr))
	if err != nil {
		return 0, fmt.Errorf("create process of container %s: %w", id, err)
	}
	if before != nil {
		if err := before(int(task.Pid())); err != nil {
			return 0, err
		}
	}
	if err := task.Start(ctx); err != nil {
		return 0, fmt.Errorf("start process of container %s: %w", id, err)
	}
	return int(task.Pid()), nil
}

// fifos are the streams of a process whose other ends belong to somebody else.
type fifos struct{ config cio.Config }

func (f fifos) Config() cio.Config { return f.config }
func (f fifos) Cancel()            {}
func (f fifos) Wait()              {}
func (f fifos) Close() error       { return nil }

func direct(stdout, stderr string) cio.Creator {
	return func(string) (cio.IO, error) { return fifos{cio.Config{Stdout: stdout, Stderr: stderr}}, nil }
}

// State is how a container is.
type State struct {
	Running  bool
	Exited   bool // ended and not yet removed: ExitCode and ExitedAt are known
	PID      int
	ExitCode int // 128 plus the signal, where a signal ended it
	ExitedAt time.Time
}

// Inspect looks at a container. Neither Running nor Exited means that it has no process: it was never started, or the
// machine was restarted.
func (c *Client) Inspect(ctx context.Context, id string) (State, error) {
	ctr, err := c.c.LoadContainer(ctx, id)
	if err != nil {
		return State{}, fmt.Errorf("load container %s: %w", id, err)
	}
	task, err := ctr.Task(ctx, nil)
	if errdefs.IsNotFound(err) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("load process of container %s: %w", id, err)
	}
	st, err := task.Status(ctx)
	if errdefs.IsNotFound(err) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("ask for process of container %s: %w", id, err)
	}
	switch st.Status {
	case client.Running, client.Paused, client.Pausing:
		return State{Running: true, PID: int(task.Pid())}, nil
	case client.Stopped:
		return State{Exited: true, ExitCode: int(st.ExitStatus), ExitedAt: st.ExitTime}, nil
	default:
		return State{}, nil
	}
}

// Wait blocks until the container's process has ended. An error says that this is not known: containerd may be gone for
// a while (IsUnavailable), or the container (IsNotFound).
func (c *Client) Wait(ctx context.Context, id string) (State, error) {
	task, err := c.task(ctx, id)
	if err != nil {
		return State{}, err
	}
	ch, err := task.Wait(ctx)
	if err != nil {
		return State{}, fmt.Errorf("wait for container %s: %w", id, err)
	}
	select {
	case <-ctx.Done():
		return State{}, ctx.Err()
	case st := <-ch:
		code, at, err := st.Result()
		if err != nil {
			return State{}, fmt.Errorf("wait for container %s: %w", id, err)
		}
		return State{Exited: true, ExitCode: int(code), ExitedAt: at}, nil
	}
}

func (c *Client) task(ctx context.Context, id string) (client.Task, error) {
	ctr, err := c.c.LoadContainer(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("load container %s: %w", id, err)
	}
	task, err := ctr.Task(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("load process of container %s: %w", id, err)
	}
	return task, nil
}

// Kill sends a signal to the container's first process, or to all its processes. One that is gone is no error.
func (c *Client) Kill(ctx context.Context, id string, sig syscall.Signal, all bool) error {
	task, err := c.task(ctx, id)
	if err == nil {
		var opts []client.KillOpts
		if all {
			opts = append(opts, client.WithKillAll)
		}
		err = task.Kill(ctx, sig, opts...)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("send %s to container %s: %w", sig, id, err)
	}
	return nil
}

// removeTimeout bounds the wait for processes that were killed.
const removeTimeout = 10 * time.Second

// Remove kills what runs and removes process, container and root file system, as far as they exist.
func (c *Client) Remove(ctx context.Context, id string) error {
	return errors.Join(c.removeContainer(ctx, id), c.removeSnapshot(ctx, id))
}

func (c *Client) removeContainer(ctx context.Context, id string) error {
	ctr, err := c.c.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load container %s: %w", id, err)
	}
	task, err := ctr.Task(ctx, nil)
	if err == nil {
		err = c.removeTask(ctx, task)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove process of container %s: %w", id, err)
	}
	if err := ctr.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}

func (c *Client) removeTask(ctx context.Context, task client.Task) error {
	wctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	ended, err := task.Wait(wctx)
	if err != nil {
		return err
	}
	if err := task.Kill(ctx, syscall.SIGKILL, client.WithKillAll); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
		c.log.Debug("kill before removal", "container", task.ID(), "error", err)
	}
	select {
	case <-ended:
	case <-wctx.Done():
	}
	_, err = task.Delete(ctx)
	return err
}

func (c *Client) removeSnapshot(ctx context.Context, id string) error {
	if err := c.c.SnapshotService(c.opts.Snapshotter).Remove(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove root file system of %s: %w", id, err)
	}
	return nil
}

// List returns the IDs of all containers that carry a label.
func (c *Client) List(ctx context.Context, label, value string) ([]string, error) {
	list, err := c.c.ContainerService().List(ctx, fmt.Sprintf("labels.%q==%q", label, value))
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	ids := make([]string, 0, len(list))
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids, nil
}
