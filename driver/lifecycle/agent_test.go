package lifecycle

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
)

// An agent that lives and does not answer is killed, and another one is started.
func TestHungAgentIsReplaced(t *testing.T) {
	hung := exec.Command("sleep", "60")
	must.NoError(t, hung.Start())
	ended := make(chan error, 1)
	go func() { ended <- hung.Wait() }()
	dir := t.TempDir()
	started := 0
	a := &agent{
		dir: dir, command: []string{"/bin/false"}, client: api.NewClient(controlSocket(dir)), log: hclog.NewNullLogger(),
		proc: process{PID: hung.Process.Pid, Start: startOf(hung.Process.Pid)}, changed: func(process) { started++ },
		patience: 100 * time.Millisecond,
	}
	_, err := a.ensure(context.Background())
	must.ErrorContains(t, err, "ended at once", must.Sprint("the new one, /bin/false, is no agent"))
	must.Eq(t, 1, started)
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Fatal("the hung process lives on")
	}
}
