package lifecycle

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/config"
	"nomad-spotter/driver/nomad"
)

// quiet is a manager without any surroundings, and a task of it; events are collected.
func quiet(t *testing.T) (*Task, *[]string) {
	t.Helper()
	var events []string
	m := NewManager(Options{
		Config: &config.Plugin{StateDir: t.TempDir()}, Log: hclog.NewNullLogger(),
		Event: func(e *drivers.TaskEvent) { events = append(events, e.Message) },
	})
	return newTask(m, State{TaskID: "t", Namespace: "n", JobID: "j", Group: "g", Name: "x", Dir: m.cfg.StateDir}, ledger{}), &events
}

func saved(took time.Duration) *api.Checkpoint {
	at := time.Unix(100, 0)
	return &api.Checkpoint{Step: 7, FinishedAt: at, DurableAt: at.Add(took)}
}

func TestMisfitIsSaidOnce(t *testing.T) {
	task, events := quiet(t)
	task.checkFit(saved(time.Hour)) // nothing is known about the timeout
	must.SliceEmpty(t, *events)

	task.facts, task.factsKnown = nomad.Facts{KillTimeout: 5 * time.Second}, true // 4 s of it are for the checkpoint
	task.checkFit(saved(4 * time.Second))
	must.SliceEmpty(t, *events)
	task.checkFit(saved(4*time.Second + time.Millisecond))
	task.checkFit(saved(time.Minute))
	must.Len(t, 1, *events)
	must.StrContains(t, (*events)[0], "Saving checkpoint 7 took 4.0 s, but a stop leaves 4.0 s for it (kill_timeout 5s)")
	must.StrContains(t, (*events)[0], `kill_timeout = "8s"`)
}

// TestLearnedTimeoutWins has a client whose max_kill_timeout cuts what the job says.
func TestLearnedTimeoutWins(t *testing.T) {
	task, events := quiet(t)
	task.facts, task.factsKnown = nomad.Facts{KillTimeout: time.Hour}, true
	task.m.learned["n/j/g/x"] = 10 * time.Second
	task.checkFit(saved(9 * time.Second))
	must.SliceEmpty(t, *events)
	task.checkFit(saved(10 * time.Second))
	must.Len(t, 1, *events)
}

func TestEventsStartAgainWithANewAgent(t *testing.T) {
	task, _ := quiet(t)
	task.led.Agent = process{PID: 1, Start: 1}
	task.led.EventAgent, task.led.EventSeq = task.led.Agent, 5
	must.Eq(t, 5, task.eventsAfter())
	task.led.Agent = process{PID: 2, Start: 9}
	must.Eq(t, 0, task.eventsAfter())
}

func TestKillSignal(t *testing.T) {
	task, _ := quiet(t)
	must.Eq(t, "terminated", task.killSignal("").String())
	task.st.StopSignal = "SIGQUIT"
	must.Eq(t, "quit", task.killSignal("").String())
	must.Eq(t, "hangup", task.killSignal("SIGHUP").String())
	must.Eq(t, "quit", task.killSignal("NONSENSE").String())
}

func TestFinishByEarliest(t *testing.T) {
	task, _ := quiet(t)
	now := time.Unix(100, 0)
	task.setFinishBy(now)
	task.setFinishBy(now.Add(time.Second))
	must.Eq(t, now, task.finishBy)
	task.setFinishBy(now.Add(-time.Second))
	must.Eq(t, now.Add(-time.Second), task.finishBy)
}
