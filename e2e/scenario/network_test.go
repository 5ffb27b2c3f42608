//go:build e2e

package scenario

import (
	"fmt"
	"os"
	"strings"
	"testing"

	nomadapi "github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-spotter/e2e/cluster"
)

// A group network of mode "none" is a network namespace that Nomad makes: the container is in it, and its checkpoints
// still reach the store, because the agent that saves them is not.
func TestNetwork_group(t *testing.T) {
	s := begin(t, 2)
	j := s.start("batch", withNetwork("none"))
	j.trains(settled)
	clients := s.processes(j.host(), func(c string) bool { return program(c) == "nomad" })
	var tasks []cluster.Process
	for _, p := range shared.TaskProcesses(j.host(), func(c string) bool { return program(c) == "trainer" }) {
		if strings.Contains(environment(t, p.PID), "NOMAD_ALLOC_ID="+j.alloc().ID) {
			tasks = append(tasks, p)
		}
	}
	must.Len(t, 1, tasks)
	// Nomad binds the namespace to a file under the allocation's ID, in the mounts of the instance.
	made, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/netns/%s", clients[0].PID, j.alloc().ID))
	must.NoError(t, err)
	used, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", tasks[0].PID))
	must.NoError(t, err)
	must.True(t, os.SameFile(made, used), must.Sprint("the container is in the namespace that Nomad made"))
	devices, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", tasks[0].PID))
	must.NoError(t, err)
	must.Eq(t, 1, strings.Count(string(devices), ":"), must.Sprintf("a loopback device alone: %s", devices))
	must.StrContains(t, string(devices), "lo:")
	s.eventually(durableLimit, "a durable checkpoint", func() bool { return j.durable() >= 30 })
	j.identical(1)
}

func withNetwork(mode string) option {
	return func(j *nomadapi.Job) {
		j.TaskGroups[0].Networks = []*nomadapi.NetworkResource{{Mode: mode}}
	}
}

func environment(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	must.NoError(t, err)
	return string(b)
}
