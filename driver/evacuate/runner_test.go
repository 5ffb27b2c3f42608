package evacuate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/driver/nomad"
	"nomad-spotter/driver/notice"
)

func TestRunner_MovesEachAllocationWhenItsCheckpointIsDurable(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.add("fast", "1", nil)
		b.add("slow", "2", func(f *fakeTask) { f.takes = 40 * time.Second })
		b.add("two-a", "3", nil)
		b.add("two-b", "3", func(f *fakeTask) { f.takes = 20 * time.Second })
		b.add("plain", "4", func(f *fakeTask) { f.st.Checkpoints = false; f.st.Durable = false })
		b.notice(120 * time.Second)
		_, reason, yes := b.runner.Evacuating()
		must.True(b.t, yes)
		must.StrContains(b.t, reason, "terminate")
		b.sleep(time.Minute)

		for _, id := range []string{"fast", "slow", "two-a", "two-b"} {
			b.expect("ask "+id, 0)
		}
		b.expect("mark ineligible", 0)
		b.expect("event fast: Interruption notice: 120 s left", 0)
		b.expect("event fast: Node marked ineligible", 0)
		b.expect("stop ns/4", 0)
		b.expect("stop ns/1", 3)
		b.expect("event fast: Allocation stop requested; the replacement restores step 1300", 3)
		b.expect("stop ns/3", 20)
		b.expect("stop ns/2", 40)
		b.expect("end ", -1)
		b.expect("health", -1)
		must.Eq(b.t, 4, b.count("stop ns/"), must.Sprint(b.journal))
		must.Eq(b.t, 4, b.count("final=true"), must.Sprint(b.journal))
	})
}

func TestRunner_AHangingTaskIsStoppedBeforeTheDeadline(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.stopped = nil // Nomad accepts, but StopTask does not come
		b.add("hangs", "1", func(f *fakeTask) { f.takes = -1 })
		b.notice(120 * time.Second)
		b.sleep(119 * time.Second)
		b.expect("stop ns/1", 110)
		b.expect("event hangs: Allocation stop requested; the replacement restores step 1200", 110)
		b.expect("event hangs: No new checkpoint: the task did not answer", 110)
		b.expect("gone hangs 8 s before the deadline", 112)
	})
}

func TestRunner_WithoutAPITasksFailOver(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.add("a", "1", nil)
		b.notice(120 * time.Second)
		b.sleep(5 * time.Second)
		_, reason, yes := b.runner.Evacuating() // what makes the driver unhealthy
		must.True(b.t, yes)
		must.Eq(b.t, "the instance will be taken away (terminate)", reason)
		b.expect("event a: Cannot mark the node ineligible: Nomad's API is not configured", 0)
		b.expect("event a: Task is ended as failed (exit code 75)", 3)
		b.expect("the replacement restores step 1300", 3)
		b.expect("gone a", 3)
	})
}

func TestRunner_RefusalsSayWhatToGrant(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.mark = func(context.Context) error {
			return refusalError(`token lacks node:write; grant node { policy = "write" }`)
		}
		b.cluster.stop = func(context.Context) error { return refusalError(`token lacks alloc-lifecycle in namespace "ns"`) }
		b.add("a", "1", nil)
		b.notice(120 * time.Second)
		b.sleep(20 * time.Second)
		b.expect(`event a: Cannot mark the node ineligible: token lacks node:write; grant node { policy = "write" }`, 0)
		b.expect(`event a: Cannot stop the allocation: token lacks alloc-lifecycle in namespace "ns"`, 3)
		b.expect("gone a", 3)
		must.Eq(b.t, 1, b.count("mark ineligible"), must.Sprint(b.journal))
		must.Eq(b.t, 1, b.count("stop ns/1"), must.Sprint(b.journal))
	})
}

func TestRunner_CallsThatHangOrFailAreTriedAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		marks, stops := 0, 0
		b.cluster.mark = func(ctx context.Context) error {
			if marks++; marks == 1 {
				<-ctx.Done() // bounded by the runner
				return ctx.Err()
			}
			return nil
		}
		b.cluster.stop = func(context.Context) error {
			if stops++; stops < 4 {
				return errors.New("connection refused")
			}
			return nil
		}
		b.add("a", "1", func(f *fakeTask) { f.fails = 2 })
		b.notice(120 * time.Second)
		b.sleep(time.Minute)
		// Asks at 0, 0.6, 1.8: tries are half a second, then a second apart, on ticks of 0.2 s.
		must.Eq(b.t, 3, b.count("ask a"), must.Sprint(b.journal))
		b.expect("event a: Cannot mark the node ineligible: context deadline exceeded", 6)
		b.expect("event a: Node marked ineligible", 6.6)
		b.expect("durable a", 4.6)
		must.Eq(b.t, 4, b.count("stop ns/1"), must.Sprint(b.journal))
		b.expect("event a: Allocation stop requested", b.when("durable a")+3.6)
		b.expect("end ", -1)
	})
}

func TestRunner_AnUnreachableAPIFallsBackAtTheMargin(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.stop = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		b.add("a", "1", nil)
		b.notice(120 * time.Second)
		b.sleep(119 * time.Second)
		b.expect("gone a", 112)
	})
}

func TestRunner_EndThatHangsIsTriedAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.add("a", "1", func(f *fakeTask) { f.endHangs = 1 })
		b.notice(120 * time.Second)
		b.sleep(119 * time.Second)
		b.expect("end a", 3)
		b.expect("gone a", 14.6) // 10 s for the container, 1 s more for the call, half a second until the next try
	})
}

func TestRunner_WithdrawnNotice(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.drains <- nomad.Drain{}
		b.watching()
		waiting := b.add("waiting", "1", func(f *fakeTask) { f.takes = -1 })
		b.notice(120 * time.Second)
		b.sleep(5 * time.Second)
		b.withdrawn()
		_, _, yes := b.runner.Evacuating()
		must.False(b.t, yes)
		b.sleep(5 * time.Second)
		b.expect("withdraw waiting", 5)
		b.expect("mark eligible", 5)
		b.expect("event waiting: Interruption withdrawn", 5)
		must.Eq(b.t, FinalNone, waiting.State().Final)

		// The next notice is served anew.
		b.notice(120 * time.Second)
		b.sleep(time.Second)
		must.Eq(b.t, 2, b.count("ask waiting"), must.Sprint(b.journal))
		must.Eq(b.t, 2, b.count("mark ineligible"), must.Sprint(b.journal))
		must.Eq(b.t, 2, b.count("event waiting: Interruption notice: 120 s left"), must.Sprint(b.journal))
	})
}

func TestRunner_EligibilityThatOthersTookIsNotRestored(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.drains <- nomad.Drain{}
		b.watching()
		b.cluster.already = true
		b.notice(120 * time.Second)
		b.withdrawn()
		b.sleep(time.Minute)
		b.expect("mark ineligible", 0)
		b.expect("mark eligible", -1)
	})
}

func TestRunner_EvacuatingEndsWithTheNotice(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.notice(120 * time.Second)
		_, _, yes := b.runner.Evacuating()
		must.True(b.t, yes)
		b.sleep(3 * time.Second)
		b.withdrawn()
		_, _, yes = b.runner.Evacuating()
		must.False(b.t, yes)
	})
}

// An instance that was stopped and started again has no tasks, and gets none while it is ineligible: nobody tells the
// node's ID. The one remembered is used, and the node becomes eligible again.
func TestRunner_NodeIsGivenBackWithoutATask(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.drains <- nomad.Drain{}
		b.watching()
		b.notice(120 * time.Second)
		b.sleep(time.Second)
		b.expect("mark ineligible", 0)
		b.stop()
		b.start()
		b.cluster.drains <- nomad.Drain{}
		b.watching()
		b.sleep(5 * time.Second)
		must.Eq(b.t, 2, b.count("node n1"), must.Sprint(b.journal))
		must.Eq(b.t, 1, b.count("mark eligible"), must.Sprint(b.journal))
	})
}

// A client whose data was wiped comes back as another node, whose eligibility nobody took.
func TestRunner_AnotherNodeIsNotGivenBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.drains <- nomad.Drain{}
		b.watching()
		b.notice(120 * time.Second)
		b.sleep(time.Second)
		b.stop()
		b.start()
		b.runner.Join("n2")
		b.cluster.drains <- nomad.Drain{}
		b.watching()
		b.sleep(5 * time.Second)
		must.Eq(b.t, 1, b.count("node n2"), must.Sprint(b.journal))
		must.Eq(b.t, 0, b.count("mark eligible"), must.Sprint(b.journal))
	})
}

func TestRunner_RestartedPlugin(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.drains <- nomad.Drain{}
		b.watching()
		b.cluster.stopped = nil
		b.add("asked", "1", func(f *fakeTask) { f.takes = 20 * time.Second })
		b.add("durable", "2", func(f *fakeTask) { f.st.Final = FinalDurable })
		b.notice(120 * time.Second)
		b.sleep(5 * time.Second)
		b.stop()

		// The next plugin sees the notice again: it joins the open request and repeats no durable checkpoint.
		b.start()
		b.join()
		b.notice(115 * time.Second)
		b.sleep(30 * time.Second)
		must.Eq(b.t, 2, b.count("ask asked"), must.Sprint(b.journal))
		must.Eq(b.t, 0, b.count("ask durable"), must.Sprint(b.journal))
		must.Eq(b.t, 0, b.count("withdraw"), must.Sprint(b.journal))
		b.expect("stop ns/1", 25)
		b.stop()

		// A third one comes up after the notice was withdrawn: it gives back what the first one took.
		b.start()
		b.join()
		b.cluster.drains <- nomad.Drain{}
		b.sleep(5 * time.Second)
		b.expect("mark eligible", -1) // not before the source says that there is no notice
		b.watching()
		b.sleep(2 * time.Second)
		b.expect("mark eligible", 40)
		b.expect("withdraw durable", 40)
	})
}

func TestRunner_Drain(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.add("batch", "1", nil)
		b.add("system", "2", func(f *fakeTask) { f.st.JobType = "system" })
		b.cluster.drains <- nomad.Drain{Active: true, Deadline: time.Now().Add(time.Hour)}
		b.sleep(10 * time.Second)
		b.expect("ask batch final=true", 0)
		b.expect("event batch: Node drain: 3600 s left", 0)
		b.expect("stop ns/1", 3)
		b.expect("ask system", -1)
		b.expect("mark ineligible", -1)
		b.expect("health", -1)
	})
}

func TestRunner_CancelledDrain(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.watching()
		b.add("a", "1", func(f *fakeTask) { f.takes = time.Minute })
		b.cluster.drains <- nomad.Drain{Active: true}
		b.sleep(10 * time.Second)
		b.expect("event a: Node drain without a deadline", 0)
		b.cluster.drains <- nomad.Drain{Cancelled: true}
		b.sleep(2 * time.Minute)
		b.expect("withdraw a", 10)
		b.expect("stop ns", -1)
		b.expect("mark eligible", -1)
	})
}

func TestRunner_CompleteDrainKeepsRequestsOpen(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.watching()
		b.add("a", "1", func(f *fakeTask) { f.takes = time.Minute })
		b.cluster.drains <- nomad.Drain{Active: true, Force: true}
		b.sleep(time.Second)
		b.cluster.drains <- nomad.Drain{} // Nomad stops the tasks meanwhile
		b.sleep(50 * time.Second)
		b.expect("withdraw", -1)
		b.expect("stop ns", -1)
	})
}

func TestRunner_DrainAfterNoticeTakesOverTheEligibility(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.watching()
		b.notice(120 * time.Second)
		b.cluster.drains <- nomad.Drain{Active: true}
		synctest.Wait()
		b.withdrawn()
		b.cluster.drains <- nomad.Drain{Cancelled: true}
		b.sleep(5 * time.Minute)
		b.expect("mark eligible", -1)
	})
}

func TestRunner_Rebalance(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.drains <- nomad.Drain{}
		b.watching()
		b.add("a", "1", func(f *fakeTask) { f.takes = 30 * time.Second })
		b.source.events <- notice.Event{Kind: notice.KindRebalance, Seen: time.Now()}
		b.sleep(10 * time.Second)
		b.expect("ask a final=false", 0)
		_, _, yes := b.runner.Evacuating()
		must.False(b.t, yes)

		// A notice in the middle asks at once for the final one.
		b.notice(120 * time.Second)
		b.sleep(40 * time.Second)
		b.expect("ask a final=true", 10)
		b.expect("stop ns/1", 40)
		must.Eq(b.t, 2, b.count("ask a"), must.Sprint(b.journal))
	})
}

func TestRunner_DeadlineMovesNearer(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.cluster.stopped = nil
		b.add("a", "1", func(f *fakeTask) { f.takes = -1 })
		b.notice(120 * time.Second)
		b.sleep(10 * time.Second)
		b.notice(40 * time.Second)
		b.sleep(45 * time.Second)
		must.Eq(b.t, 2, b.count("ask a"), must.Sprint(b.journal))
		b.expect("stop ns/1", 40)
		b.expect("gone a", 42)
	})
}

func TestRunner_SystemTaskRunsToTheEnd(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.add("s", "1", func(f *fakeTask) { f.st.JobType = "system" })
		b.notice(120 * time.Second)
		b.sleep(119 * time.Second)
		b.expect("ask s final=true", 55)
		b.expect("stop ns", -1)
		b.expect("gone s", 110)
	})
}

func TestRunner_TaskThatAppearsDuringTheEvacuation(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.join()
		b.notice(120 * time.Second)
		b.sleep(10 * time.Second)
		b.add("recovered", "1", nil)
		b.sleep(10 * time.Second)
		b.expect("event recovered: Interruption notice: 110 s left", 10.2)
		b.expect("stop ns/1", 13.2)
	})
}
