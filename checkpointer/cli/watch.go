package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/agent"
	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/repository"
)

// watchFlags are the flags of watch.
type watchFlags struct {
	url, dir, lineage, pattern, state string
	consulFlags
	keyFlags
	effort, precision, durability string
	replicas                      int64
	last                          int64
	interval                      api.Interval
	storeTimeout, finish          time.Duration
	restore, json                 bool
	logLevel                      string
}

func watchCommand(l *line) *cobra.Command {
	var f watchFlags
	c := &cobra.Command{
		Use:   "watch",
		Short: "Save every checkpoint that is finished in a directory, beside any program",
		Long: `Watch a directory and save each checkpoint that is finished in it, as the agent of a task does. At SIGTERM or SIGINT save
what is left, and end. An event is one line on standard output, with --json a JSON object: restored, durable, stored,
replicated, failed, damaged, store-lost, store-found, superseded, warning.

If an earlier run was killed, what it had taken and not yet saved is saved first.

Every run is a writer of its own. It takes the lineage over when it restores, without --restore with its first checkpoint.
Another run of the same lineage is then superseded: it ends with exit code 1 when it has its next checkpoint to save.`,
		Example: `  checkpointer watch --dir /ckpt --store file:///mnt/checkpoints --lineage default/train --restore
  checkpointer watch --dir /ckpt --consul http://127.0.0.1:8500 --lineage default/train --pattern '*.pt' --keep-last 5`,
		Args: l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.check(l)
			if err := l.err(); err != nil {
				return err
			}
			return f.run(cmd)
		},
	}
	c.Flags().StringVar(&f.dir, "dir", "", "directory that checkpoints are written into; must exist")
	c.Flags().StringVar(&f.url, "store", "", "store URL, such as file:///absolute/path or s3://bucket/prefix")
	f.consulFlags.add(c)
	f.keyFlags.add(c)
	c.Flags().StringVar(&f.lineage, "lineage", "", "lineage, the sequence of checkpoints of one training")
	c.Flags().StringVar(&f.pattern, "pattern", "", "names that can be checkpoints, as '*.pt' (default: all)")
	c.Flags().StringVar(&f.effort, "effort", "auto", "auto, fast (least CPU), small (least bytes) or none")
	addPrecision(c.Flags(), &f.precision)
	c.Flags().StringVar(&f.durability, "durability", string(api.DurabilityStore), "what a checkpoint must reach to be called durable: local, store or replicated")
	l.whole(c.Flags(), &f.replicas, "replicas", 0, 0, "stores of other regions that checkpoints are copied to; needs --consul")
	l.whole(c.Flags(), &f.last, "keep-last", 0, 1, "remove all but the newest so many snapshots and those that are pinned (default: remove none)")
	c.Flags().Var(cadenceFlag{l, &f.interval}, "interval", "ask the program for a checkpoint when none was finished for so long; 0: never; auto: as often as costs the least")
	c.Flags().BoolVar(&f.restore, "restore", false, "first restore the newest checkpoint into the directory")
	l.span(c.Flags(), &f.storeTimeout, "store-timeout", time.Minute, time.Second, "with --restore: how long to wait for a store")
	l.span(c.Flags(), &f.finish, "stop-timeout", 10*time.Minute, time.Second, "how long to go on saving after SIGTERM")
	c.Flags().StringVar(&f.state, "state-dir", "", "directory for what is on its way, best on the file system of --dir (default: .spotter-watch in --dir)")
	c.Flags().StringVar(&f.logLevel, "log-level", "error", "trace, debug, info, warn or error, for the log on standard error")
	c.Flags().BoolVar(&f.json, "json", false, "print events as JSON, one object a line")
	return c
}

// cadenceFlag is --interval: a duration, or auto.
type cadenceFlag struct {
	line *line
	to   *api.Interval
}

func (v cadenceFlag) String() string {
	if v.to == nil {
		return ""
	}
	b, _ := v.to.MarshalText() // it never fails
	return string(b)
}

func (v cadenceFlag) Type() string { return "duration" }

func (v cadenceFlag) Set(s string) error {
	var i api.Interval
	switch err := i.UnmarshalText([]byte(s)); {
	case err != nil:
		v.line.fault("invalid argument %q for \"--interval\": a duration such as 90s or 10m is needed, or auto", s)
	case i.Every < 0:
		v.line.fault("invalid argument %q for \"--interval\": it is less than 0s", s)
	default:
		*v.to = i
	}
	return nil
}

func (f *watchFlags) check(l *line) {
	if f.dir == "" {
		l.fault("--dir is missing: name the directory that checkpoints are written into")
	}
	if (f.url == "") == (f.address == "") {
		l.fault("give exactly one of --store URL and --consul ADDRESS")
	} else if f.url != "" {
		l.checkURL("--store", f.url)
	} else {
		f.needed(l)
	}
	l.needLineage(f.lineage)
	if _, err := path.Match(f.pattern, "x"); err != nil {
		l.fault("--pattern: %q is not a glob pattern", f.pattern)
	}
	if _, _, err := agent.ParseEffort(f.effort); err != nil {
		l.fault("--effort: %v", err)
	}
	checkPrecision(l, f.precision)
	if hclog.LevelFromString(f.logLevel) == hclog.NoLevel {
		l.fault("--log-level: %q is none of trace, debug, info, warn, error", f.logLevel)
	}
	if _, err := f.config(); err != nil { // what only the whole shows
		l.faultsOf(err)
	}
}

// watchFlag are the flags that fields of an agent's configuration have other names than.
var watchFlag = map[string]string{
	"checkpoint_dir": "--dir", "state_dir": "--state-dir", "control_socket": "--state-dir", "task_socket": "--state-dir",
	"consul": "--consul, --service",
}

// faultsOf notes the faults of a configuration that the flags make, by the names of the flags. A flag that has a fault
// already needs no second one.
func (l *line) faultsOf(err error) {
	var all interface{ Unwrap() []error }
	if !errors.As(err, &all) {
		l.faults = append(l.faults, err)
		return
	}
	for _, fault := range all.Unwrap() {
		field, rest, _ := strings.Cut(fault.Error(), ": ")
		flag := cmp.Or(watchFlag[field], "--"+field)
		if first, _, _ := strings.Cut(flag, ","); !strings.Contains(fmt.Sprint(l.err()), first) {
			l.fault("%s: %s", flag, rest)
		}
	}
}

// config is that of an agent for the directory.
func (f *watchFlags) config() (api.AgentConfig, error) {
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return api.AgentConfig{}, err
	}
	state := f.state
	if state == "" {
		state = filepath.Join(dir, ".spotter-watch")
	}
	if state, err = filepath.Abs(state); err != nil {
		return api.AgentConfig{}, err
	}
	c := api.AgentConfig{
		Lineage: f.lineage, Writer: "checkpointer watch on " + hostname(), CheckpointDir: dir, TaskCheckpointDir: dir, StateDir: state,
		ControlSocket: filepath.Join(state, "control.sock"), TaskSocket: filepath.Join(state, "task.sock"), UID: os.Getuid(), GID: os.Getgid(),
		Pattern: f.pattern, Interval: f.interval, Store: f.url, KeyFile: f.file, LogLevel: f.logLevel,
		Effort: f.effort, Precision: f.precision, Durability: api.Durability(f.durability), Replicas: int(f.replicas),
	}
	if f.url == "" {
		consul := f.consulFlags.config()
		c.Consul = &consul
	}
	return c, agent.Validate(c)
}

func (f *watchFlags) run(cmd *cobra.Command) error {
	conf, err := f.config()
	if err != nil {
		return err
	}
	switch info, err := os.Stat(conf.CheckpointDir); {
	case err != nil:
		return fmt.Errorf("--dir: %w; make the directory that checkpoints are written into, or correct its name", err)
	case !info.IsDir():
		return fmt.Errorf("--dir: %s is not a directory: name the one that checkpoints are written into", conf.CheckpointDir)
	}
	ctx := cmd.Context()
	if _, err := os.Stat(filepath.Join(conf.StateDir, "state.json")); err == nil {
		complain(cmd.ErrOrStderr(), errors.New("an earlier run was cut off: saving what it left"))
		if err := f.session(ctx, cmd, conf, nil); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done(): // told to end before it had begun
		return nil
	default:
		return f.session(ctx, cmd, conf, f.begin)
	}
}

// session runs an agent until ctx is done, or, without begin, until it has saved what there is.
func (f *watchFlags) session(ctx context.Context, cmd *cobra.Command, conf api.AgentConfig, begin func(context.Context, *api.Client) error) error {
	log := hclog.New(&hclog.LoggerOptions{Name: "watch", Level: hclog.LevelFromString(f.logLevel), JSONFormat: true, Output: cmd.ErrOrStderr()})
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		err := agent.Run(life, conf, log)
		end()
		ended <- err
	}()
	s := &watching{flags: f, cmd: cmd, client: api.NewClient(conf.ControlSocket)}
	err := s.up(life)
	if err == nil && begin != nil {
		if err = begin(ctx, s.client); err == nil {
			err = s.follow(ctx, life)
		}
	}
	if err == nil && life.Err() == nil {
		err = s.finish(life)
	}
	end()
	if err = errors.Join(err, <-ended); err != nil {
		return err
	}
	return os.RemoveAll(conf.StateDir) // all is saved
}

// begin restores, and starts the agent's work, unless a signal comes first.
func (f *watchFlags) begin(ctx context.Context, c *api.Client) error {
	var err error
	if f.restore {
		_, err = c.Restore(ctx, f.storeTimeout)
	} else {
		err = c.Attach(ctx, os.Getpid(), 0)
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// watching is one agent at work.
type watching struct {
	flags  *watchFlags
	cmd    *cobra.Command
	client *api.Client
	seq    uint64 // of the last event that was printed
}

// up waits until the agent answers, or has ended.
func (s *watching) up(life context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for life.Err() == nil { // if it has ended, Run says why
		_, err := s.client.Status(life, 0, 0)
		if err == nil || !api.IsGone(err) && life.Err() == nil {
			return err
		}
		select {
		case <-tick.C:
		case <-life.Done():
		}
	}
	return nil
}

var errSuperseded = errors.New("a newer run has taken over the lineage: nothing more is saved here")

// follow prints events until ctx is done or the agent has ended.
func (s *watching) follow(ctx, life context.Context) error {
	for ctx.Err() == nil && life.Err() == nil {
		if err := s.events(ctx, 30*time.Second); err != nil && ctx.Err() == nil && life.Err() == nil {
			return err
		}
	}
	return nil
}

// events prints what has happened since the last call, waiting for the first.
func (s *watching) events(ctx context.Context, wait time.Duration) error {
	list, err := s.client.Events(ctx, s.seq, wait)
	if err != nil {
		return err
	}
	for _, e := range list {
		s.seq = e.Seq
		if s.flags.json {
			err = json.NewEncoder(s.cmd.OutOrStdout()).Encode(e)
		} else {
			_, err = fmt.Fprintf(s.cmd.OutOrStdout(), "%s %s: %s\n", e.At.Format(time.RFC3339), e.Kind, e.Message)
		}
		switch {
		case err != nil:
			return err
		case e.Kind == api.EventSuperseded:
			return errSuperseded
		case (e.Kind == api.EventDurable || e.Kind == api.EventStored) && s.flags.last > 0:
			if err := s.collect(ctx); err != nil && ctx.Err() == nil {
				complain(s.cmd.ErrOrStderr(), err) // the next one tries again
			}
		}
	}
	return nil
}

// collect removes what --keep-last does not keep.
func (s *watching) collect(ctx context.Context) error {
	status, err := s.client.Status(ctx, 0, 0)
	if err != nil || status.Store == "" {
		return err
	}
	key, err := s.flags.load()
	if err != nil {
		return err
	}
	repo, err := openURL(ctx, status.Store, key, false)
	if err != nil {
		return err
	}
	_, err = repo.Collect(ctx, s.flags.lineage, repository.Retention{Last: int(s.flags.last)}, repository.CollectOptions{By: "checkpointer watch on " + hostname()})
	return err
}

// finish lets the agent save what is left.
func (s *watching) finish(life context.Context) error {
	out, err := s.client.Finish(life, time.Now().Add(s.flags.finish), false)
	if err == nil {
		err = s.events(life, 0)
	}
	if err == nil && !out.Done {
		err = fmt.Errorf("--stop-timeout %s is over and %d checkpoints are not in the store yet: run the command again, which saves them first, or give it a longer --stop-timeout", s.flags.finish, out.Pending)
	}
	return err
}
