package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
)

func TestAgent_SavesAndRestoresElsewhere(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	must.Nil(t, a.restore().Checkpoint)
	a.write("ckpt_0100.pt", "one hundred")
	cp := a.durable(100)
	must.Eq(t, "ckpt_0100.pt", cp.Path)
	must.Eq(t, 11, cp.RawBytes)
	must.StrHasPrefix(t, "Checkpoint 100 durable in ", a.events(api.EventDurable)[0])
	o, err := a.ctl.Finish(context.Background(), time.Now().Add(5*time.Second), true)
	must.NoError(t, err)
	must.True(t, o.Done && o.Durable)
	a.exits(10 * time.Second)

	b := newNode(t, st, func(c *api.AgentConfig) {
		if os.Getuid() == 0 {
			c.UID, c.GID = 1234, 1235
		}
	})
	b.start()
	r := b.restore()
	must.Eq(t, 100, r.Checkpoint.Step)
	must.Eq(t, 2, r.Epoch)
	path := filepath.Join(b.conf.CheckpointDir, "ckpt_0100.pt")
	got, err := os.ReadFile(path)
	must.NoError(t, err)
	must.Eq(t, "one hundred", string(got))
	for _, p := range []string{path, b.conf.TaskSocket} {
		info, err := os.Stat(p)
		must.NoError(t, err)
		must.Eq(t, os.FileMode(0o600), info.Mode().Perm())
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			must.Eq(t, uint32(b.conf.UID), sys.Uid)
			must.Eq(t, uint32(b.conf.GID), sys.Gid)
		}
	}
	must.StrHasPrefix(t, "Restored step 100 from file://", b.events(api.EventRestored)[0])
	b.shell("sleep 60")
	time.Sleep(700 * time.Millisecond) // what was restored must not be taken for a new checkpoint
	must.SliceEmpty(t, b.events(api.EventDurable))
}

func TestAgent_AsksBySignal(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, func(c *api.AgentConfig) { c.Signal = int(syscall.SIGUSR1) })
	a.start()
	a.restore()
	a.shell(`trap 'echo by signal > .x.tmp; mv .x.tmp step-7' USR1; while true; do sleep 0.05; done`)
	time.Sleep(300 * time.Millisecond) // the trap must be set
	o := a.outcome(a.ask(true, 15*time.Second).ID)
	must.True(t, o.Durable, must.Sprint(o.Error))
	must.Eq(t, 7, o.Checkpoint.Step)
	step, content := read(t, st, a.conf.Lineage)
	must.Eq(t, 7, step)
	must.Eq(t, "by signal\n", content)
}

func TestAgent_AsksByFile(t *testing.T) {
	t.Parallel()
	a := newNode(t, t.TempDir(), nil)
	a.start()
	a.restore()
	a.shell(`while true; do if [ -e ` + api.RequestFile + ` ] && [ ! -e step-8 ]; then echo by file > .x.tmp; mv .x.tmp step-8; fi; sleep 0.05; done`)
	o := a.outcome(a.ask(false, 15*time.Second).ID)
	must.True(t, o.Durable, must.Sprint(o.Error))
	must.Eq(t, 8, o.Checkpoint.Step)
	_, err := os.Stat(filepath.Join(a.conf.CheckpointDir, api.RequestFile))
	must.True(t, os.IsNotExist(err), must.Sprint("the request file is removed once the request is closed"))
}

func TestAgent_AsksBySocket(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a := newNode(t, t.TempDir(), nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	polled := make(chan *api.Status, 1)
	go func() {
		s, err := a.task.Status(ctx, 0, 20*time.Second)
		if err != nil {
			s = &api.Status{}
		}
		polled <- s
	}()
	time.Sleep(200 * time.Millisecond)
	r := a.ask(true, 15*time.Second)
	s := <-polled
	must.NotNil(t, s.Request)
	must.Eq(t, r.ID, s.Request.ID)
	must.True(t, s.Request.Final)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() { // the task goes on listening, however long all this takes
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := a.task.Status(ctx, r.ID, time.Second); err != nil {
				return
			}
		}
	}()

	// A checkpoint that does not answer the request does not fulfil it, as the task listens.
	a.write("step-9", "periodic")
	a.durable(9)
	o, err := a.ctl.Outcome(ctx, r.ID, 300*time.Millisecond)
	must.NoError(t, err)
	must.False(t, o.Done)

	a.write("step-10", "the answer")
	s, err = a.task.Finished(ctx, 10, "/checkpoints/step-10", r.ID)
	must.NoError(t, err)
	must.Eq(t, 10, s.Last.Step)
	o = a.outcome(r.ID)
	must.True(t, o.Durable)
	must.Eq(t, 10, o.Checkpoint.Step)

	// A final request stays before the task until it is withdrawn; another one joins it.
	s, err = a.task.Status(ctx, 0, 0)
	must.NoError(t, err)
	must.NotNil(t, s.Request)
	must.Eq(t, r.ID, a.ask(true, time.Second).ID)
	must.NoError(t, a.ctl.Cancel(ctx, r.ID))
	s, err = a.task.Status(ctx, 0, 0)
	must.NoError(t, err)
	must.Nil(t, s.Request)

	for _, path := range []string{"/etc/passwd", "../x", "a/b", "", "missing"} {
		_, err = a.task.Finished(ctx, 11, path, 0)
		must.ErrorContains(t, err, "path:")
	}
	_, err = a.task.Finished(ctx, -1, "step-10", 0)
	must.ErrorContains(t, err, "step: -1")
	must.Error(t, a.task.Quit(ctx), must.Sprint("the task socket has no control calls"))
}

func TestAgent_DeadlineAndFurtherRequest(t *testing.T) {
	t.Parallel()
	a := newNode(t, t.TempDir(), nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	r := a.ask(true, 500*time.Millisecond)
	o := a.outcome(r.ID)
	must.False(t, o.Durable)
	must.StrContains(t, o.Error, "no checkpoint was finished within 0.5 s")
	again := a.ask(true, 10*time.Second)
	must.Eq(t, r.ID+1, again.ID)
	a.write("step-3", "late")
	must.True(t, a.outcome(again.ID).Durable)
}

func TestAgent_IntervalAsks(t *testing.T) {
	t.Parallel()
	a := newNode(t, t.TempDir(), func(c *api.AgentConfig) { c.Interval.Every = 400 * time.Millisecond })
	a.start()
	a.restore()
	a.shell(`n=0; while true; do if [ -e ` + api.RequestFile + ` ]; then n=$((n+1)); echo $n > .x.tmp; mv .x.tmp step-$n; sleep 1; fi; sleep 0.05; done`)
	a.durable(2)
}

// With an automatic interval the task is asked, the answer is measured, and the status says when the next one is due and why.
func TestAgent_CadenceAsks(t *testing.T) {
	t.Parallel()
	a := newNode(t, t.TempDir(), func(c *api.AgentConfig) {
		c.Interval.Auto, c.Cadence = true, &api.CadenceConfig{MaxInterval: api.Duration(300 * time.Millisecond)}
	})
	a.start()
	a.restore()
	a.shell(`n=0; while true; do if [ -e ` + api.RequestFile + ` ]; then n=$((n+1)); sleep 1.5; echo $n > .x.tmp; mv .x.tmp step-$n; sleep 1; fi; sleep 0.05; done`)
	a.durable(2)
	a.poll(10*time.Second, "the status has what was measured", func() bool {
		s, err := a.ctl.Status(context.Background(), 0, 0)
		must.NoError(t, err)
		c := s.Cadence
		return c != nil && !c.DueAt.IsZero() && c.IntervalS > 0 && strings.Contains(c.Why, "s (measured)")
	})
	a.kill()
	a.start()
	s, err := a.ctl.Status(context.Background(), 0, 0)
	must.NoError(t, err)
	must.NotNil(t, s.Cadence) // it goes on after a restart, with what was measured
	a.poll(10*time.Second, "the plan is made of what was measured", func() bool {
		s, err := a.ctl.Status(context.Background(), 0, 0)
		must.NoError(t, err)
		return strings.Contains(s.Cadence.Why, "s (measured)")
	})
}

func TestAgent_SurvivesKillAnywhere(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	task := a.shell("sleep 120")
	for i := range 12 {
		step := int64(i + 1)
		content := strings.Repeat("state of step "+string(rune('a'+i)), 400_000) // 6 MB
		a.write("ckpt_"+string(rune('a'+i))+"_"+itoa(step), content)
		time.Sleep(time.Duration(300+i*23) * time.Millisecond) // around detection, staging and upload
		a.kill()
		a.start()
		s, err := a.ctl.Status(context.Background(), 0, 0)
		must.NoError(t, err)
		if s.Durable != nil { // durable before the kill: it must be there now
			got, _ := read(t, st, a.conf.Lineage)
			must.GreaterEq(t, s.Durable.Step, got)
		}
		a.durable(step)
		got, saved := read(t, st, a.conf.Lineage)
		must.Eq(t, step, got)
		must.True(t, saved == content, must.Sprint("restored bytes differ"))
	}
	must.NoError(t, syscall.Kill(-task.Process.Pid, syscall.SIGKILL))
	r := a.ask(true, 10*time.Second)
	o := a.outcome(r.ID)
	must.StrContains(t, o.Error, "ended without a further checkpoint")
}

func TestAgent_RequestSurvivesKill(t *testing.T) {
	t.Parallel()
	a := newNode(t, t.TempDir(), nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	r := a.ask(true, 20*time.Second)
	a.kill()
	a.start()
	s, err := a.task.Status(context.Background(), 0, 0)
	must.NoError(t, err)
	must.NotNil(t, s.Request)
	must.Eq(t, r.ID, s.Request.ID)
	a.write("step-5", "after the restart")
	must.True(t, a.outcome(r.ID).Durable)
}

// A request file of an earlier run must not keep code waiting that knows nothing else, and one that a killed agent did not
// get to write must be there.
func TestAgent_RequestFileIsTrue(t *testing.T) {
	t.Parallel()
	a := newNode(t, t.TempDir(), nil)
	file := filepath.Join(a.conf.CheckpointDir, api.RequestFile)
	must.NoError(t, os.WriteFile(file, []byte(`{"id":1,"final":true}`), 0o600))
	a.start()
	_, err := os.Stat(file)
	must.True(t, os.IsNotExist(err))
	a.restore()
	a.shell("sleep 60")
	a.ask(true, 20*time.Second)
	a.kill()
	must.NoError(t, os.Remove(file))
	a.start()
	b, err := os.ReadFile(file)
	must.NoError(t, err)
	must.StrContains(t, string(b), `"final":true`)
}

func TestAgent_StoreComesAndGoes(t *testing.T) {
	t.Parallel()
	st := filepath.Join(t.TempDir(), "store")
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	a.write("step-1", "one")
	a.durable(1)
	must.NoError(t, os.Rename(st, st+".away"))
	must.NoError(t, os.Mkdir(st, 0o755)) // an unmounted file system leaves its empty mount point
	a.write("step-2", "two")
	a.poll(10*time.Second, "the loss is told", func() bool { return len(a.events(api.EventStoreLost)) > 0 })
	a.write("step-3", "three")
	time.Sleep(500 * time.Millisecond)
	entries, err := os.ReadDir(st)
	must.NoError(t, err)
	must.SliceEmpty(t, entries, must.Sprint("nothing is written where the store was"))
	must.NoError(t, os.Remove(st))
	must.NoError(t, os.Rename(st+".away", st))
	a.durable(3)
	step, content := read(t, st, a.conf.Lineage)
	must.Eq(t, 3, step)
	must.Eq(t, "three", content)
	must.SliceLen(t, 1, a.events(api.EventStoreFound))
}

func TestAgent_RestoreFailsWithoutStore(t *testing.T) {
	t.Parallel()
	a := newNode(t, filepath.Join(t.TempDir(), "missing", "store"), nil)
	a.start()
	_, err := a.ctl.Restore(context.Background(), 700*time.Millisecond)
	must.ErrorContains(t, err, "no checkpoint store could be reached")
}

func TestAgent_WhatTheTaskLeft(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	// Killed in the middle of writing step-30 under its final name, just after step-20 was renamed into place.
	task := a.shell(`echo complete > .x.tmp; sleep 0.05; mv .x.tmp step-20; exec > step-30; echo torn; while true; do echo more; sleep 0.05; done`)
	a.poll(5*time.Second, "step-30 is being written", func() bool {
		_, err := os.Stat(filepath.Join(a.conf.CheckpointDir, "step-30"))
		return err == nil
	})
	must.NoError(t, syscall.Kill(-task.Process.Pid, syscall.SIGKILL))
	o, err := a.ctl.Finish(context.Background(), time.Now().Add(10*time.Second), false)
	must.NoError(t, err)
	must.True(t, o.Done && o.Durable, must.Sprintf("%+v", o))
	step, content := read(t, st, a.conf.Lineage)
	must.Eq(t, 20, step)
	must.Eq(t, "complete\n", content)
	a.exits(10 * time.Second)
}

func TestAgent_RestartInPlaceKeepsNewerLocal(t *testing.T) {
	t.Parallel()
	st := filepath.Join(t.TempDir(), "store")
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	a.write("step-1", "one")
	a.durable(1)
	must.NoError(t, os.Rename(st, st+".away"))
	a.write("step-2", "two")
	a.kill()
	must.NoError(t, os.Rename(st+".away", st))

	// The next run of the task has an agent of its own, and the same directory.
	b := newNode(t, st, func(c *api.AgentConfig) { c.CheckpointDir = a.conf.CheckpointDir })
	b.start()
	r := b.restore()
	must.Eq(t, 2, r.Checkpoint.Step)
	b.durable(2)
	step, content := read(t, st, b.conf.Lineage)
	must.Eq(t, 2, step)
	must.Eq(t, "two", content)
}

func TestAgent_SupersededWriterStops(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	a.write("step-1", "one")
	a.durable(1)
	b := newNode(t, st, nil)
	b.start()
	must.Eq(t, 1, b.restore().Checkpoint.Step)
	a.write("step-50", "by the node that was cut off")
	a.poll(10*time.Second, "the old writer learns of its successor", func() bool { return len(a.events(api.EventSuperseded)) == 1 })
	step, _ := read(t, st, b.conf.Lineage)
	must.Eq(t, 1, step)
}

func TestAgent_SameStepOtherContent(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	a.write("last.pt", "first")
	_, err := a.task.Finished(context.Background(), 4, "last.pt", 0)
	must.NoError(t, err)
	a.durable(4)
	a.write("last.pt", "second")
	_, err = a.task.Finished(context.Background(), 4, "last.pt", 0)
	must.NoError(t, err)
	a.poll(10*time.Second, "both are durable", func() bool { return len(a.events(api.EventDurable)) == 2 })
	_, content := read(t, st, a.conf.Lineage)
	must.Eq(t, "second", content)
}

func itoa(n int64) string {
	if n < 10 {
		return "0" + string(rune('0'+n))
	}
	return string(rune('0'+n/10)) + string(rune('0'+n%10))
}
