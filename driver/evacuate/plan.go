package evacuate

import (
	"cmp"
	"slices"
	"time"

	"nomad-spotter/checkpointer/api"
)

// Verb is what an Action does.
type Verb int

// Verbs, in the order in which a plan lists them: a checkpoint is asked for before anything that may take time.
const (
	VerbAsk            Verb = iota // ask a task for a checkpoint
	VerbWithdraw                   // withdraw the request: the task trains on
	VerbMarkIneligible             // keep new allocations away
	VerbMarkEligible               // undo that
	VerbStopAlloc                  // let Nomad replace an allocation
	VerbEnd                        // end a task as failed, so that rescheduling moves it
)

// Action is one step of an evacuation.
type Action struct {
	Verb      Verb
	TaskID    string // of VerbAsk, VerbWithdraw, VerbEnd
	AllocID   string // of VerbStopAlloc
	Namespace string // of VerbStopAlloc
	Ask       Ask    // of VerbAsk
	End       End    // of VerbEnd
}

// Attempt is the history of something that is tried until it works.
type Attempt struct {
	InFlight bool
	Done     bool
	Refused  bool // only an operator can make it work
	Failures int
	Last     time.Time // end of the last try
}

const (
	retryFirst   = 500 * time.Millisecond
	retryMax     = 5 * time.Second
	retryRefused = 30 * time.Second // an operator may mend the token meanwhile
)

// due says whether it is time for the next try.
func (a Attempt) due(now time.Time) bool {
	if a.InFlight || a.Done {
		return false
	}
	switch {
	case a.Failures == 0:
		return true
	case a.Refused:
		return !now.Before(a.Last.Add(retryRefused))
	default:
		pause := min(retryMax, retryFirst<<min(a.Failures-1, 8))
		return !now.Before(a.Last.Add(pause))
	}
}

// TaskProgress is a task together with what this evacuation has done about it.
type TaskProgress struct {
	TaskState
	Since  time.Time // when the evacuation first saw it
	Ask    Attempt   // Done means that its outcome is known
	AskFor time.Time // deadline of the last ask
	End    Attempt
}

// settled says that waiting for this task's checkpoint makes no sense any more.
func (p TaskProgress) settled() bool {
	return !p.Running || !p.Checkpoints || p.Final == FinalDurable || p.Ask.Done
}

// NodeProgress is what is done about the node.
type NodeProgress struct {
	API        bool // Nomad's API may be used
	Ineligible Attempt
	Eligible   Attempt
	Took       bool // this driver made the node ineligible
}

// Situation is all that a plan depends on, besides the time.
type Situation struct {
	Threat *Threat // nil: none
	// Calm says that there is no threat and that this is known: the notice source and the watch of the drain work.
	Calm bool
	// Rebalance asks for checkpoints because of a recommendation seen then; zero means none.
	Rebalance time.Time
	Node      NodeProgress
	Tasks     []TaskProgress
	Moves     map[string]Attempt // stops of allocations, by allocation ID; Done means that Nomad accepted
}

// Plan says what to do now. It changes nothing and gives the same answer for the same values; whoever carries it out
// records that in the situation, so that nothing is done twice.
func Plan(now time.Time, l Limits, s Situation) []Action {
	var out []Action
	if s.Threat == nil {
		out = planCalm(now, l, s)
	} else {
		out = planThreat(now, l, s)
	}
	slices.SortStableFunc(out, func(a, b Action) int { return cmp.Compare(a.Verb, b.Verb) })
	return out
}

func planCalm(now time.Time, l Limits, s Situation) []Action {
	var out []Action
	if !s.Calm {
		return out
	}
	if s.Node.Took && s.Node.API && s.Node.Eligible.due(now) {
		out = append(out, Action{Verb: VerbMarkEligible})
	}
	advice := s.Rebalance.Add(l.CheckpointTimeout)
	for _, t := range s.Tasks {
		switch {
		case !t.Running || t.Stopping || !t.Checkpoints:
		case t.Final != FinalNone && !s.Moves[t.AllocID].Done:
			out = append(out, Action{Verb: VerbWithdraw, TaskID: t.ID})
		case !s.Rebalance.IsZero() && now.Before(advice) && t.Ask.due(now):
			ask := Ask{Reason: api.ReasonNotice, Deadline: advice}
			out = append(out, Action{Verb: VerbAsk, TaskID: t.ID, Ask: ask})
		}
	}
	return out
}

func planThreat(now time.Time, l Limits, s Situation) []Action {
	var out []Action
	t := *s.Threat
	if t.Cause == CauseNotice { // a drain makes the node ineligible by itself
		if s.Node.API && s.Node.Ineligible.due(now) {
			out = append(out, Action{Verb: VerbMarkIneligible})
		}
	}
	byAlloc := map[string][]TaskProgress{}
	var order []string
	for _, p := range s.Tasks {
		if p.system() && t.Cause == CauseDrain {
			continue // Nomad stops them after all else, or leaves them
		}
		if byAlloc[p.AllocID] == nil {
			order = append(order, p.AllocID)
		}
		byAlloc[p.AllocID] = append(byAlloc[p.AllocID], p)
		out = append(out, planAsk(now, l, t, p)...)
	}
	for _, id := range order {
		out = append(out, planMove(now, l, s, byAlloc[id])...)
	}
	return out
}

func (s TaskState) system() bool { return s.JobType == "system" || s.JobType == "sysbatch" }

// nearer is by how much a deadline must move towards now for a task to be asked again.
const nearer = time.Second

func planAsk(now time.Time, l Limits, t Threat, p TaskProgress) []Action {
	stop := l.StopAt(t, p.Since)
	if p.settled() || p.Stopping || !now.Before(stop) || now.Before(l.askAt(t, p.Since, p.system())) {
		return nil
	}
	again := p.Ask.InFlight && stop.Before(p.AskFor.Add(-nearer))
	if !again && !p.Ask.due(now) {
		return nil
	}
	reason := api.ReasonNotice
	if t.Cause == CauseDrain {
		reason = api.ReasonDrain
	}
	return []Action{{Verb: VerbAsk, TaskID: p.ID, Ask: Ask{Reason: reason, Deadline: stop, Final: true}}}
}

// planMove decides over one allocation, of which tasks are all tasks of this driver.
func planMove(now time.Time, l Limits, s Situation, tasks []TaskProgress) []Action {
	t := *s.Threat
	if t.Force {
		return nil // Nomad stops everything; StopTask makes sure of the checkpoints
	}
	first := tasks[0]
	move := s.Moves[first.AllocID]
	system := first.system()
	settled, checkpoints, stopping, running := true, false, true, false
	since := first.Since
	for _, p := range tasks {
		settled = settled && p.settled()
		checkpoints = checkpoints || p.Checkpoints
		stopping = stopping && (p.Stopping || !p.Running)
		running = running || p.Running
		if p.Since.After(since) {
			since = p.Since
		}
	}
	if !running {
		return nil
	}
	stopAt, endAt := l.StopAt(t, since), l.EndAt(t, since)
	late := !now.Before(stopAt)
	if t.Cause == CauseDrain && !checkpoints {
		// Nothing would be saved. Nomad migrates service jobs well by itself, and a batch task may still finish before the
		// deadline; after it, Nomad would stop the task for good.
		if first.JobType == "service" || t.Deadline.IsZero() {
			return nil
		}
		settled = false
	}
	stoppable := s.Node.API && !system
	var out []Action
	if stoppable && (settled || late) && !stopping && !move.Refused && move.due(now) {
		out = append(out, Action{Verb: VerbStopAlloc, AllocID: first.AllocID, Namespace: first.Namespace})
	}
	end := false
	why := ""
	switch {
	case !system && settled && (!stoppable || move.Refused):
		end, why = true, "the allocation cannot be stopped over Nomad's API"
	case t.Cause == CauseNotice && late && (!stoppable || move.Refused || !now.Before(endAt)):
		end, why = true, "the deadline is near"
	case t.Cause == CauseDrain && !move.Done && late && !now.Before(endAt):
		end, why = true, "the drain's deadline is near"
	}
	if !end {
		return out
	}
	for _, p := range tasks {
		// A task that Nomad stops is left to StopTask until the deadline is near.
		if !p.Running || (p.Stopping && now.Before(endAt)) || !p.End.due(now) {
			continue
		}
		out = append(out, Action{Verb: VerbEnd, TaskID: p.ID, End: End{Deadline: endBy(now, t), Reason: why}})
	}
	return out
}

// endTime is how long a container may take to end when no deadline cuts it shorter.
const endTime = 10 * time.Second

// endBy is when a container that is ended now must be gone.
func endBy(now time.Time, t Threat) time.Time {
	by := now.Add(endTime)
	if !t.Deadline.IsZero() && t.Deadline.Before(by) {
		return t.Deadline
	}
	return by
}
