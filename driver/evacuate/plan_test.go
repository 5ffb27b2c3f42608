package evacuate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/driver/nomad"
)

var (
	t0     = time.Date(2026, 12, 1, 3, 30, 56, 0, time.UTC)
	limits = Limits{Margin: 10 * time.Second, CheckpointTimeout: 2 * time.Minute}
)

func at(d time.Duration) time.Time { return t0.Add(d) }

// notice120 is a notice of 120 s: tasks are let go at 110 s and ended at 112 s.
func notice120() *Threat {
	return &Threat{Cause: CauseNotice, Action: "terminate", Since: t0, Deadline: at(120 * time.Second)}
}

func drain120() *Threat {
	return &Threat{Cause: CauseDrain, Since: t0, Deadline: at(120 * time.Second)}
}

type taskOption func(*TaskProgress)

func task(id, alloc string, opts ...taskOption) TaskProgress {
	p := TaskProgress{
		TaskState: TaskState{ID: id, AllocID: alloc, Namespace: "ns", JobType: "batch", Running: true, Checkpoints: true},
		Since:     t0,
	}
	for _, o := range opts {
		o(&p)
	}
	return p
}

func jobType(s string) taskOption { return func(p *TaskProgress) { p.JobType = s } }
func durable(p *TaskProgress)     { p.Final, p.Durable, p.Step = FinalDurable, true, 1300 }
func open(p *TaskProgress)        { p.Final, p.Ask.InFlight, p.AskFor = FinalOpen, true, at(110*time.Second) }
func gaveUp(p *TaskProgress)      { p.Ask.Done = true }
func plain(p *TaskProgress)       { p.Checkpoints = false }
func stopping(p *TaskProgress)    { p.Stopping = true }
func gone(p *TaskProgress)        { p.Running = false }
func ending(p *TaskProgress)      { p.End.InFlight = true }
func askFailed(n int) taskOption  { return func(p *TaskProgress) { p.Ask.Failures, p.Ask.Last = n, t0 } }

func since(d time.Duration) taskOption {
	return func(p *TaskProgress) { p.Since = at(d) }
}

// apiOn is a node that is ineligible already, so that plans show tasks only.
func apiOn() NodeProgress { return NodeProgress{API: true, Ineligible: Attempt{Done: true}} }

// apiOff is a node without Nomad's API.
func apiOff() NodeProgress { return NodeProgress{} }

// text shows a plan in a line per action.
func text(actions []Action) string {
	names := map[Verb]string{
		VerbAsk: "ask", VerbWithdraw: "withdraw", VerbMarkIneligible: "ineligible", VerbMarkEligible: "eligible",
		VerbStopAlloc: "stop", VerbEnd: "end",
	}
	var out []string
	for _, a := range actions {
		s := names[a.Verb]
		switch a.Verb {
		case VerbAsk:
			s += fmt.Sprintf(" %s %s final=%t by=%s", a.TaskID, a.Ask.Reason, a.Ask.Final, a.Ask.Deadline.Sub(t0))
		case VerbWithdraw:
			s += " " + a.TaskID
		case VerbStopAlloc:
			s += " " + a.Namespace + "/" + a.AllocID
		case VerbEnd:
			s += fmt.Sprintf(" %s by=%s", a.TaskID, a.End.Deadline.Sub(t0))
		default:
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func TestPlan(t *testing.T) {
	const ms = time.Millisecond
	askNotice := "ask a notice final=true by=1m50s"
	done := map[string]Attempt{"1": {Done: true}}
	for name, tc := range map[string]struct {
		now time.Duration
		s   Situation
		exp string
	}{
		// Order: ask, then the node, then moves.
		"everything at once": {0, Situation{
			Threat: notice120(), Node: NodeProgress{API: true},
			Tasks: []TaskProgress{task("p", "2", plain), task("a", "1")},
		}, askNotice + "; ineligible; stop ns/2"},
		"no api":         {0, Situation{Threat: notice120(), Tasks: []TaskProgress{task("a", "1")}}, askNotice},
		"mark in flight": {0, Situation{Threat: notice120(), Node: NodeProgress{API: true, Ineligible: Attempt{InFlight: true}}}, ""},
		"mark refused": {0, Situation{Threat: notice120(), Node: NodeProgress{
			API:        true,
			Ineligible: Attempt{Failures: 1, Refused: true, Last: t0},
		}}, ""},
		"refused, not yet again": {30*time.Second - 1, Situation{Threat: notice120(), Node: NodeProgress{
			API:        true,
			Ineligible: Attempt{Failures: 1, Refused: true, Last: t0},
		}}, ""},
		"refused, again": {30 * time.Second, Situation{Threat: notice120(), Node: NodeProgress{
			API:        true,
			Ineligible: Attempt{Failures: 1, Refused: true, Last: t0},
		}}, "ineligible"},
		"marked after all": {0, Situation{Threat: notice120(), Node: NodeProgress{
			API:        true,
			Ineligible: Attempt{Done: true},
		}}, ""},
		"drain leaves the node alone": {0, Situation{
			Threat: drain120(), Node: NodeProgress{API: true},
			Tasks: []TaskProgress{task("a", "1")},
		}, "ask a drain final=true by=1m50s"},

		// Asking.
		"asked once":               {time.Second, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", open)}}, ""},
		"ask failed, not yet":      {500*ms - 1, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", askFailed(1))}}, ""},
		"ask failed, again":        {500 * ms, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", askFailed(1))}}, askNotice},
		"ask failed often":         {5*time.Second - 1, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", askFailed(9))}}, ""},
		"ask failed often, again":  {5 * time.Second, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", askFailed(9))}}, askNotice},
		"last moment to ask":       {110*time.Second - 1, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1")}}, askNotice},
		"too late to ask":          {110 * time.Second, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1")}}, "stop ns/1"},
		"not asked while stopping": {0, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", stopping)}}, ""},
		"durable is not repeated":  {0, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", durable)}}, "stop ns/1"},
		"deadline moved nearer": {0, Situation{
			Threat: &Threat{Since: t0, Deadline: at(60 * time.Second)}, Node: apiOn(),
			Tasks: []TaskProgress{task("a", "1", open)},
		}, "ask a notice final=true by=50s"},
		"deadline moved within a second": {0, Situation{
			Threat: &Threat{Since: t0, Deadline: at(119 * time.Second)}, Node: apiOn(),
			Tasks: []TaskProgress{task("a", "1", open)},
		}, ""},
		"hibernation has the checkpoint timeout": {0, Situation{
			Threat: &Threat{Since: t0}, Node: apiOn(),
			Tasks: []TaskProgress{task("a", "1")},
		}, "ask a notice final=true by=2m0s"},
		"late task without a deadline": {0, Situation{
			Threat: &Threat{Cause: CauseDrain, Since: t0}, Node: apiOn(),
			Tasks: []TaskProgress{task("a", "1", since(0))},
		}, "ask a drain final=true by=2m0s"},

		// Moving.
		"given up":              {0, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", gaveUp)}}, "stop ns/1"},
		"no checkpoint block":   {0, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", plain)}}, "stop ns/1"},
		"waits for its sibling": {0, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", durable), task("b", "1", open)}}, ""},
		"sibling ended":         {0, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", durable), task("b", "1", gone)}}, "stop ns/1"},
		"all ended":             {0, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", gone)}}, ""},
		"moved once":            {0, Situation{Threat: notice120(), Node: apiOn(), Moves: done, Tasks: []TaskProgress{task("a", "1", durable)}}, ""},
		"Nomad stops it":        {0, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", durable, stopping)}}, ""},
		"stop failed, again": {500 * ms, Situation{
			Threat: notice120(), Node: apiOn(), Moves: map[string]Attempt{"1": {Failures: 1, Last: t0}},
			Tasks: []TaskProgress{task("a", "1", durable)},
		}, "stop ns/1"},
		"stop refused": {0, Situation{
			Threat: notice120(), Node: apiOn(), Moves: map[string]Attempt{"1": {Failures: 1, Refused: true}},
			Tasks: []TaskProgress{task("a", "1", durable)},
		}, "end a by=10s"},
		"no api, durable":       {0, Situation{Threat: notice120(), Node: apiOff(), Tasks: []TaskProgress{task("a", "1", durable)}}, "end a by=10s"},
		"no api, ends all":      {0, Situation{Threat: notice120(), Node: apiOff(), Tasks: []TaskProgress{task("a", "1", durable), task("b", "1", plain)}}, "end a by=10s; end b by=10s"},
		"no api, waits":         {0, Situation{Threat: notice120(), Node: apiOff(), Tasks: []TaskProgress{task("a", "1", open)}}, ""},
		"no api, ending":        {0, Situation{Threat: notice120(), Node: apiOff(), Tasks: []TaskProgress{task("a", "1", durable, ending)}}, ""},
		"no api, before margin": {110*time.Second - 1, Situation{Threat: notice120(), Node: apiOff(), Tasks: []TaskProgress{task("a", "1", open)}}, ""},
		"no api, at margin":     {110 * time.Second, Situation{Threat: notice120(), Node: apiOff(), Tasks: []TaskProgress{task("a", "1", open)}}, "end a by=2m0s"},

		// The margin.
		"before the margin":        {110*time.Second - 1, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", open)}}, ""},
		"at the margin":            {110 * time.Second, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", open)}}, "stop ns/1"},
		"stopped, in its grace":    {112*time.Second - 1, Situation{Threat: notice120(), Node: apiOn(), Moves: done, Tasks: []TaskProgress{task("a", "1", stopping)}}, ""},
		"stopped, after its grace": {112 * time.Second, Situation{Threat: notice120(), Node: apiOn(), Moves: done, Tasks: []TaskProgress{task("a", "1", stopping)}}, "end a by=2m0s"},

		// System jobs.
		"system stays":                 {0, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("s", "1", jobType("system"))}}, ""},
		"system, before its time":      {55*time.Second - 1, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("s", "1", jobType("system"))}}, ""},
		"system, asked":                {55 * time.Second, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("s", "1", jobType("system"))}}, "ask s notice final=true by=1m50s"},
		"system durable stays":         {60 * time.Second, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("s", "1", jobType("sysbatch"), durable)}}, ""},
		"system at the margin":         {110 * time.Second, Situation{Threat: notice120(), Node: apiOn(), Tasks: []TaskProgress{task("s", "1", jobType("system"), durable)}}, "end s by=2m0s"},
		"system on a drain is Nomad's": {0, Situation{Threat: drain120(), Node: apiOn(), Tasks: []TaskProgress{task("s", "1", jobType("system"))}}, ""},

		// Drains.
		"drain moves":                {0, Situation{Threat: drain120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", durable)}}, "stop ns/1"},
		"forced drain only asks":     {0, Situation{Threat: &Threat{Cause: CauseDrain, Since: t0, Force: true}, Node: apiOn(), Tasks: []TaskProgress{task("a", "1"), task("b", "2", durable)}}, "ask a drain final=true by=2m0s"},
		"drain, plain batch waits":   {110*time.Second - 1, Situation{Threat: drain120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", plain)}}, ""},
		"drain, plain batch moves":   {110 * time.Second, Situation{Threat: drain120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", plain)}}, "stop ns/1"},
		"drain, plain service":       {110 * time.Second, Situation{Threat: drain120(), Node: apiOn(), Tasks: []TaskProgress{task("a", "1", plain, jobType("service"))}}, ""},
		"endless drain, plain batch": {time.Hour, Situation{Threat: &Threat{Cause: CauseDrain, Since: t0}, Node: apiOn(), Tasks: []TaskProgress{task("a", "1", plain)}}, ""},
		"endless drain, hanging":     {2 * time.Minute, Situation{Threat: &Threat{Cause: CauseDrain, Since: t0}, Node: apiOn(), Tasks: []TaskProgress{task("a", "1", open)}}, "stop ns/1"},
		"endless drain, accepted":    {time.Hour, Situation{Threat: &Threat{Cause: CauseDrain, Since: t0}, Node: apiOn(), Moves: done, Tasks: []TaskProgress{task("a", "1", stopping)}}, ""},
		"drain, accepted":            {115 * time.Second, Situation{Threat: drain120(), Node: apiOn(), Moves: done, Tasks: []TaskProgress{task("a", "1", stopping)}}, ""},

		// No threat.
		"nothing":          {0, Situation{Calm: true, Node: NodeProgress{API: true}, Tasks: []TaskProgress{task("a", "1")}}, ""},
		"withdrawn":        {0, Situation{Calm: true, Node: NodeProgress{API: true, Took: true}, Tasks: []TaskProgress{task("a", "1", open), task("b", "2", durable)}}, "withdraw a; withdraw b; eligible"},
		"not ours":         {0, Situation{Calm: true, Node: NodeProgress{API: true}}, ""},
		"not known":        {0, Situation{Node: NodeProgress{API: true, Took: true}, Tasks: []TaskProgress{task("a", "1", durable)}}, ""},
		"being replaced":   {0, Situation{Calm: true, Moves: done, Tasks: []TaskProgress{task("a", "1", durable)}}, ""},
		"StopTask's final": {0, Situation{Calm: true, Tasks: []TaskProgress{task("a", "1", open, stopping)}}, ""},

		// Rebalance.
		"rebalance":          {0, Situation{Calm: true, Rebalance: t0, Tasks: []TaskProgress{task("a", "1"), task("p", "2", plain)}}, "ask a notice final=false by=2m0s"},
		"rebalance, asked":   {0, Situation{Calm: true, Rebalance: t0, Tasks: []TaskProgress{task("a", "1", gaveUp)}}, ""},
		"rebalance, in time": {2*time.Minute - 1, Situation{Calm: true, Rebalance: t0, Tasks: []TaskProgress{task("a", "1")}}, "ask a notice final=false by=2m0s"},
		"rebalance, stale":   {2 * time.Minute, Situation{Calm: true, Rebalance: t0, Tasks: []TaskProgress{task("a", "1")}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			must.Eq(t, tc.exp, text(Plan(at(tc.now), limits, tc.s)))
		})
	}
}

func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		left      time.Duration
		stop, end time.Duration
	}{
		"two minutes":    {120 * time.Second, 110 * time.Second, 112 * time.Second},
		"margin fits":    {40 * time.Second, 30 * time.Second, 32 * time.Second},
		"margin shrinks": {39 * time.Second, 29250 * time.Millisecond, 31250 * time.Millisecond},
		"thirty seconds": {30 * time.Second, 22500 * time.Millisecond, 24375 * time.Millisecond},
		"already begun":  {0, 0, 0},
		"in the past":    {-time.Minute, -time.Minute, -time.Minute},
		"one nanosecond": {1, 1, 1},
		"a few seconds":  {4 * time.Second, 3 * time.Second, 3250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			th := Threat{Since: t0, Deadline: at(tc.left)}
			must.Eq(t, tc.stop, limits.StopAt(th, t0).Sub(t0))
			must.Eq(t, tc.end, limits.EndAt(th, t0).Sub(t0))
		})
	}
}

func TestMerge(t *testing.T) {
	n := &Notice{Action: "stop", Seen: t0, Deadline: at(120 * time.Second)}
	for name, tc := range map[string]struct {
		n    *Notice
		d    nomad.Drain
		exp  Threat
		none bool
	}{
		"none":           {none: true},
		"notice":         {n: n, exp: Threat{Action: "stop", Since: t0, Deadline: at(120 * time.Second)}},
		"drain":          {d: nomad.Drain{Active: true, Force: true}, exp: Threat{Cause: CauseDrain, Since: at(1), Force: true}},
		"drain is later": {n: n, d: nomad.Drain{Active: true, Deadline: at(120*time.Second + 1)}, exp: Threat{Action: "stop", Since: t0, Deadline: at(120 * time.Second)}},
		"drain is earlier": {
			n: n, d: nomad.Drain{Active: true, Deadline: at(120*time.Second - 1)},
			exp: Threat{Action: "stop", Since: t0, Deadline: at(120*time.Second - 1)},
		},
		"hibernate stays without a time": {
			n: &Notice{Action: "hibernate", Seen: t0}, d: nomad.Drain{Active: true, Deadline: at(time.Second)},
			exp: Threat{Action: "hibernate", Since: t0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, on := Merge(tc.n, tc.d, at(1))
			must.Eq(t, !tc.none, on)
			must.Eq(t, tc.exp, got)
		})
	}
}

func TestWarning(t *testing.T) {
	day := 24 * time.Hour
	restart := nomad.Restart{Attempts: 3, Interval: day, Delay: 15 * time.Second, Mode: "fail"}
	for name, tc := range map[string]struct {
		f    nomad.Facts
		want []string // pieces; none means no warning
	}{
		"batch default":   {nomad.Facts{JobType: "batch", Restart: restart, Reschedule: nomad.Reschedule{Attempts: 1, Interval: day}}, []string{"allows 1 move in 24h,", "unlimited = true"}},
		"service default": {nomad.Facts{JobType: "service", Restart: restart, Reschedule: nomad.Reschedule{Unlimited: true}}, nil},
		"shipped":         {nomad.Facts{JobType: "batch", Restart: restart, Reschedule: nomad.Reschedule{Unlimited: true}}, nil},
		"never":           {nomad.Facts{JobType: "service"}, []string{"attempts = 0, unlimited = false"}},
		"system":          {nomad.Facts{JobType: "system"}, nil},
		"unknown":         {nomad.Facts{}, nil},
		"delay fits":      {nomad.Facts{JobType: "batch", Restart: nomad.Restart{Attempts: 1, Delay: time.Minute}, Reschedule: nomad.Reschedule{Unlimited: true}}, nil},
		"delay too long":  {nomad.Facts{JobType: "batch", Restart: nomad.Restart{Attempts: 1, Delay: time.Minute + 1}, Reschedule: nomad.Reschedule{Unlimited: true}}, []string{"restart block (delay"}},
		"no restarts":     {nomad.Facts{JobType: "batch", Restart: nomad.Restart{Delay: time.Hour}, Reschedule: nomad.Reschedule{Unlimited: true}}, nil},
		"mode delay":      {nomad.Facts{JobType: "service", Restart: nomad.Restart{Attempts: 2, Interval: 30 * time.Minute, Mode: "delay"}, Reschedule: nomad.Reschedule{Unlimited: true}}, []string{`interval = "30m"`, "failed 2 times"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Warning(tc.f)
			must.Eq(t, len(tc.want) == 0, got == "", must.Sprint(got))
			for _, w := range tc.want {
				must.StrContains(t, got, w)
			}
		})
	}
}
