//go:build e2e

package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	nomadapi "github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-spotter/e2e/cluster"
	"nomad-spotter/e2e/engines"
)

// Every job file that is shipped is parsed and planned by the Nomad server, with its defaults and as a service.
func TestSpecs(t *testing.T) {
	s := alone(t)
	root, err := engines.Root()
	must.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "jobs", "specs", "*.nomad.hcl"))
	must.NoError(t, err)
	must.SliceNotEmpty(t, files)
	for _, f := range files {
		for _, vars := range []map[string]string{
			nil,
			{"type": cluster.HCL("service"), "image_archive": cluster.HCL(shared.ImageURL), "prefer_datacenter": cluster.HCL("west")},
		} {
			job, err := shared.ParseJob(f, vars)
			must.NoError(t, err)
			plan, _, err := shared.Nomad.Jobs().PlanOpts(job, &nomadapi.PlanOptions{Diff: true}, (&nomadapi.WriteOptions{}).WithContext(s.ctx))
			must.NoError(t, err)
			must.Eq(t, "", plan.Warnings)
			must.MapEmpty(t, plan.FailedTGAllocs, must.Sprint("it can be placed"))
			for _, g := range job.TaskGroups {
				must.True(t, *g.ReschedulePolicy.Unlimited, must.Sprint("moves as often as it takes"))
				must.Zero(t, *g.ReschedulePolicy.Attempts)
			}
		}
	}
}

// jobs/README.md names every variable of every job file, with its default.
func TestSpecs_documented(t *testing.T) {
	root, err := engines.Root()
	must.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "jobs", "README.md"))
	must.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "jobs", "specs", "*.nomad.hcl"))
	must.NoError(t, err)
	variable := regexp.MustCompile(`(?s)variable "(\w+)" \{.*?default\s+= (.*?)\n\}`)
	for _, f := range files {
		text, err := os.ReadFile(f)
		must.NoError(t, err)
		found := variable.FindAllStringSubmatch(string(text), -1)
		must.Len(t, strings.Count(string(text), "\nvariable "), found)
		for _, m := range found {
			must.StrContains(t, string(page), "| `"+m[1]+"` | `"+m[2]+"` |", must.Sprint(f))
		}
	}
}

// The policies and the pool file that are shipped are read by nomad-autoscaler and our plugin.
func TestPolicies(t *testing.T) {
	s := alone(t)
	root, err := engines.Root()
	must.NoError(t, err)
	must.NoError(t, shared.TryShipped(s.ctx, filepath.Join(root, "jobs"), 3))
}
