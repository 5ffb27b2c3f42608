package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/config"
	"nomad-spotter/driver/containerd"
)

// Labels of our containers.
const (
	labelTaskID = "spotter.task_id"
	labelKey    = "spotter.key" // one per task of an allocation
	labelAlloc  = "spotter.alloc_id"
	labelTask   = "spotter.task"
)

// cleanupTimeout bounds the removal of what a failed start left.
const cleanupTimeout = 30 * time.Second

// start is one StartTask on its way.
type start struct {
	m    *Manager
	tc   *drivers.TaskConfig
	cfg  *config.Task
	log  hclog.Logger
	st   State
	led  ledger
	img  *containerd.Image
	user containerd.User
	ag   *agent
	env  map[string]string
	tell func(format string, args ...any) // a task event
}

// Start makes a task run: image, agent, restore, container. The goroutines of the task live as long as ctx. Errors that
// may pass are recoverable in Nomad's sense; everything a failed start made is removed, checkpoints excepted.
func (m *Manager) Start(ctx context.Context, tc *drivers.TaskConfig) (*drivers.TaskHandle, error) {
	if err := m.mayStart(tc); err != nil {
		return nil, err
	}
	// containerd's client leaves streams open until the context of the call ends.
	life := ctx
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	cfg, err := config.DecodeTask(tc.DecodeDriverConfig)
	if err == nil {
		err = m.cfg.Permit(cfg)
	}
	if err != nil {
		return nil, err
	}
	s := m.newStart(tc, cfg)
	defer m.lock(s.st.Dir)()
	staying, stop := m.whileStaying(ctx)
	defer stop()
	if err := s.clean(staying); err != nil {
		return nil, orLeaving(staying, structs.NewRecoverableError(err, !errors.Is(err, errSuperseded)))
	}
	t, err := s.run(staying)
	if err != nil {
		s.undo(ctx)
		return nil, orLeaving(staying, err)
	}
	handle := drivers.NewTaskHandle(stateVersion)
	handle.Config = tc
	handle.State = drivers.TaskStateRunning
	if err := handle.SetDriverState(&t.st); err != nil {
		s.undo(ctx)
		return nil, fmt.Errorf("encode state of the task: %w", err)
	}
	m.put(t)
	t.run(life)
	return handle, nil
}

func (m *Manager) newStart(tc *drivers.TaskConfig, cfg *config.Task) *start {
	dir, id := m.dir(tc.AllocID, tc.Name), containerID(tc)
	s := &start{
		m: m, tc: tc, cfg: cfg, log: m.log.With("alloc_id", tc.AllocID, "task", tc.Name),
		st: State{
			Version: stateVersion, TaskID: tc.ID, AllocID: tc.AllocID, Name: tc.Name, JobID: tc.JobID, Group: tc.TaskGroupName,
			Namespace: tc.Namespace, NodeID: tc.NodeID, Config: *cfg, Dir: dir, AllocDir: tc.AllocDir, ContainerID: id,
		},
		led: ledger{TaskID: tc.ID, AllocID: tc.AllocID, AllocDir: tc.AllocDir, Name: tc.Name, ContainerID: id},
		tell: func(format string, args ...any) {
			m.emit(tc.ID, tc.AllocID, tc.Name, fmt.Sprintf(format, args...), nil)
		},
	}
	s.st.CgroupPath = cgroupPath(tc, id, thisHost(m))
	if cfg.Checkpoint != nil {
		s.st.CheckpointDir = filepath.Join(tc.TaskDir().Dir, "checkpoints")
		s.st.Lineage = lineageOf(tc, cfg.Checkpoint)
	}
	return s
}

// clean removes what an earlier start of the same task of the same allocation left: Nomad may have lost its state, or
// this driver may have been killed half way.
func (s *start) clean(ctx context.Context) error {
	old, err := readLedger(s.st.Dir)
	if err != nil {
		s.log.Warn("ledger of an earlier start is unreadable and passed over", "error", err)
	}
	ids, err := s.m.opts.Runtime.List(ctx, labelKey, path.Base(s.st.Dir))
	if err != nil {
		return fmt.Errorf("look for containers of an earlier start: %w", err)
	}
	if old.ContainerID != "" {
		ids = append(ids, old.ContainerID)
	}
	for _, id := range ids {
		if err := s.m.opts.Runtime.Remove(ctx, id); err != nil {
			return fmt.Errorf("remove the container of an earlier start: %w", err)
		}
	}
	if err := s.saveStaged(ctx, old); err != nil {
		return err
	}
	// The new agent claims the lineage, so the old one may not go on.
	if err := stopAgent(ctx, api.NewClient(controlSocket(s.st.Dir)), old.Agent); err != nil {
		return err
	}
	if err := os.RemoveAll(agentState(s.st.Dir)); err != nil {
		return fmt.Errorf("remove the state of an earlier checkpoint agent: %w", err)
	}
	if old.Superseded != "" && old.AllocID == s.tc.AllocID {
		return errSuperseded
	}
	if err := os.MkdirAll(s.st.Dir, 0o700); err != nil {
		return fmt.Errorf("make the task's directory: %w", err)
	}
	return writeLedger(s.st.Dir, s.led)
}

// saveStaged has the agent of an earlier start save what is finished and not yet in the store: the new agent knows nothing
// of it. When that cannot be done, the start fails, to be tried again; nothing is thrown away.
func (s *start) saveStaged(ctx context.Context, old ledger) error {
	staged, err := filepath.Glob(filepath.Join(agentState(s.st.Dir), "stage", "*", "staged.json"))
	if err != nil || len(staged) == 0 {
		return err
	}
	limit := s.m.cfg.Checkpoint.RestoreTimeout
	ctx, cancel := context.WithTimeout(ctx, limit+agentStartTime+callTimeout)
	defer cancel()
	a := s.m.newAgent(s.st.Dir, old.Agent, func(p process) {
		old.Agent = p
		if err := writeLedger(s.st.Dir, old); err != nil {
			s.log.Error("remember the checkpoint agent", "error", err)
		}
	})
	if _, err := a.ensure(ctx); err != nil {
		return err
	}
	out, err := a.client.Finish(ctx, time.Now().Add(limit), false)
	if err == nil && !out.Done {
		err = errors.New(out.Error)
	}
	if err != nil {
		s.tell("Not started: checkpoints of the earlier run are not in the store yet: %v", err)
		return fmt.Errorf("save the checkpoints of the earlier run: %w", err)
	}
	return nil
}

var errSuperseded = errors.New("another instance of this task goes on with its checkpoints; this allocation does not start it again")

func (s *start) run(ctx context.Context) (*Task, error) {
	if err := s.image(ctx); err != nil {
		return nil, err
	}
	rt := s.m.opts.Runtime
	if err := rt.Prepare(ctx, s.st.ContainerID, s.img); err != nil {
		return nil, structs.NewRecoverableError(err, true)
	}
	var err error
	if s.user, err = rt.ResolveUser(ctx, s.st.ContainerID, s.img, s.tc.User, s.cfg.GroupAdd); err != nil {
		return nil, structs.NewRecoverableError(err, containerd.IsUnavailable(err))
	}
	if s.cfg.Checkpoint != nil {
		if err := s.checkpoints(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.container(ctx); err != nil {
		return nil, err
	}
	t := newTask(s.m, s.st, s.led)
	if s.ag != nil {
		t.agent.proc = s.ag.proc
		t.attach(ctx)
	}
	return t, nil
}

// image makes the image ready.
func (s *start) image(ctx context.Context) (err error) {
	rt := s.m.opts.Runtime
	s.st.StopSignal = ""
	if archive, ok := s.cfg.Archive(); ok {
		s.img, err = s.archive(ctx, archive)
	} else {
		s.img, err = rt.Pull(ctx, containerd.PullRequest{
			Reference: s.cfg.Image, Username: s.cfg.Auth.Username, Password: s.cfg.Auth.Password, Force: s.cfg.ForcePull,
			Progress: func(text string) { s.tell("%s", text) },
		})
		err = recoverable(err)
	}
	if err != nil {
		return err
	}
	s.st.StopSignal = s.img.Config.StopSignal
	return nil
}

func recoverable(err error) error {
	if err == nil {
		return nil
	}
	return structs.NewRecoverableError(err, true)
}

func (s *start) archive(ctx context.Context, name string) (*containerd.Image, error) {
	root, rest, err := rootOf(s.tc, name)
	if err != nil {
		return nil, fmt.Errorf("config.image: %w", err)
	}
	f, err := containerd.OpenInside(root, rest)
	if err != nil {
		return nil, fmt.Errorf("config.image %q: %w; fetch it with an artifact block, or mind the path", s.cfg.Image, err)
	}
	defer f.Close()
	img, err := s.m.opts.Runtime.Import(ctx, f)
	if err != nil {
		return nil, structs.NewRecoverableError(fmt.Errorf("config.image %q: %w", s.cfg.Image, err), containerd.IsUnavailable(err))
	}
	return img, nil
}

// checkpoints starts the agent and has it restore.
func (s *start) checkpoints(ctx context.Context) error {
	uid, gid := int(s.user.UID), int(s.user.GID)
	for _, d := range []string{s.st.CheckpointDir, socketDir(s.st.Dir)} {
		if err := ownDir(d, uid, gid); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(agentState(s.st.Dir), 0o700); err != nil {
		return fmt.Errorf("make the agent's directory: %w", err)
	}
	ac, err := s.agentConfig(uid, gid)
	if err == nil {
		err = writeAgentConfig(s.st.Dir, ac)
	}
	if err != nil {
		return err
	}
	s.ag = s.m.newAgent(s.st.Dir, process{}, func(p process) {
		s.led.Agent = p
		if err := writeLedger(s.st.Dir, s.led); err != nil {
			s.log.Error("remember the checkpoint agent", "error", err)
		}
	})
	if _, err := s.ag.ensure(ctx); err != nil {
		return recoverable(err)
	}
	limit := s.m.cfg.Checkpoint.RestoreTimeout
	rctx, cancel := context.WithTimeout(ctx, limit+restoreGrace)
	defer cancel()
	got, err := s.ag.client.Restore(rctx, limit)
	if err != nil {
		s.tell("Not started: the newest checkpoint cannot be restored within %s: %v", limit, err)
		return recoverable(fmt.Errorf("restore the newest checkpoint of %s: %w", s.st.Lineage, err))
	}
	s.env = resumeEnv(s.cfg.Checkpoint, got.Checkpoint)
	return nil
}

// restoreGrace is what the answer may take beyond the time that the agent waits for a store: it then has to download.
const restoreGrace = time.Hour

func (s *start) agentConfig(uid, gid int) (api.AgentConfig, error) {
	p, c := s.m.cfg, s.cfg.Checkpoint
	ac := api.AgentConfig{
		Lineage: s.st.Lineage, Writer: "allocation " + s.tc.AllocID + " on " + s.tc.NodeName,
		CheckpointDir: s.st.CheckpointDir, TaskCheckpointDir: c.Dir, StateDir: agentState(s.st.Dir),
		ControlSocket: controlSocket(s.st.Dir), TaskSocket: taskSocket(s.st.Dir), UID: uid, GID: gid,
		Pattern: c.Pattern, Signal: c.Signal, Interval: api.Interval{Every: c.Interval, Auto: c.Auto}, Precision: c.Precision, LogLevel: p.Checkpoint.LogLevel,
		Ranks: c.Ranks, Epoch: c.Epoch, Durability: api.Durability(c.Durability), Replicas: c.Replicas, Effort: c.Effort,
		MaxCPUs: c.MaxCPUs, MaxMemoryBytes: c.MaxMemoryBytes, Fork: c.Fork, SingleWriter: c.SingleWriter, KeyFile: p.Checkpoint.KeyFile,
	}
	if c.Ranks > 1 {
		ac.Rank = rankOf(s.tc, c)
	}
	if c.Auto {
		ac.Cadence = &api.CadenceConfig{
			MTBF: api.Duration(p.Cadence.MTBF), HazardShape: p.Cadence.HazardShape, NoticeSuccess: p.Cadence.NoticeSuccess,
			MaxInterval: api.Duration(p.Cadence.MaxInterval), SpotUSD: p.Cadence.SpotUSDPerHour, ReworkUSD: p.Cadence.ReworkUSDPerHour,
			StorageUSDOfGB: p.Cadence.StorageUSDPerGB,
		}
	}
	if p.Consul.Address != "" { // for stores, replicas and epochs
		ac.Consul = &api.ConsulConfig{
			Address: p.Consul.Address, Token: p.Consul.Token, Datacenter: p.Consul.Datacenter, Service: p.Consul.Service,
		}
	}
	switch {
	case c.Store != "":
		ac.Store = c.Store
	case p.Checkpoint.Store != "":
		ac.Store = p.Checkpoint.Store
	case ac.Consul == nil:
		dir := DefaultStore(p)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return ac, fmt.Errorf("make the default checkpoint store: %w", err)
		}
		ac.Store = "file://" + dir
	}
	return ac, nil
}

// DefaultStore is the directory that holds checkpoints where neither a store nor Consul is configured.
func DefaultStore(p *config.Plugin) string { return filepath.Join(p.StateDir, "store") }

// ownDir makes a directory that one user alone can use, or brings an existing one into that state.
func ownDir(dir string, uid, gid int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if err := os.Lchown(dir, uid, gid); err != nil {
		return fmt.Errorf("give %s to user %d: %w", dir, uid, err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("close %s to others: %w", dir, err)
	}
	return nil
}

// container makes and starts the container.
func (s *start) container(ctx context.Context) error {
	files, err := networkFiles(s.tc, s.cfg, s.st.Dir)
	if err != nil {
		return err
	}
	h := thisHost(s.m)
	mounts, err := mountSources(s.tc, s.cfg.Mounts)
	if err != nil {
		return err
	}
	defer mounts.release()
	sp := spec(s.tc, s.cfg, s.st, s.img, s.user, s.env, files, mounts, h)
	oci, err := containerd.Build(sp)
	if err != nil {
		return err
	}
	labels := map[string]string{}
	for k, v := range s.cfg.Labels {
		labels[k] = v
	}
	labels[labelTaskID], labels[labelKey] = s.tc.ID, path.Base(s.st.Dir)
	labels[labelAlloc], labels[labelTask] = s.tc.AllocID, s.tc.Name
	s.st.PID, err = s.m.opts.Runtime.Start(ctx, s.st.ContainerID, s.img, oci, labels, s.tc.StdoutPath, s.tc.StderrPath, func(pid int) error {
		s.shareCPUs(h, pid)
		return mounts.verify(pid)
	})
	if err != nil {
		return structs.NewRecoverableError(err, containerd.IsUnavailable(err))
	}
	s.st.PIDStart, s.st.StartedAt = startOf(s.st.PID), time.Now()
	return nil
}

// shareCPUs puts the process into the cpuset that Nomad keeps for tasks without cores of their own (cgroup v1).
func (s *start) shareCPUs(h host, pid int) {
	lr := linuxResources(s.tc)
	if h.UnifiedCgroups || lr.CpusetCpus != "" || lr.CpusetCgroupPath == "" {
		return
	}
	if err := writeCgroup(filepath.Join(lr.CpusetCgroupPath, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		s.log.Warn("task does not keep to the CPUs that Nomad shares out", "cgroup", lr.CpusetCgroupPath, "error", err)
	}
}

// undo removes what a failed start made, but neither checkpoints nor the agent's own state.
func (s *start) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := s.m.opts.Runtime.Remove(ctx, s.st.ContainerID); err != nil {
		s.log.Warn("remove the container of a failed start", "error", err)
	}
	if s.ag == nil {
		return
	}
	if err := s.ag.stop(ctx); err != nil {
		s.log.Warn("end the checkpoint agent of a failed start", "error", err)
	}
}
