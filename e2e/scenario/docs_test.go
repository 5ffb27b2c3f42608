//go:build e2e

package scenario

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	nomadapi "github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-spotter/e2e/engines"
)

// Every job that a page shows is parsed and planned by the Nomad server.
func TestDocs_jobs(t *testing.T) {
	s := alone(t)
	root, err := engines.Root()
	must.NoError(t, err)
	fence := regexp.MustCompile("(?ms)^```hcl\n(job \".*?)^```$")
	found := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
			found++
			file := filepath.Join(t.TempDir(), "job.nomad.hcl")
			must.NoError(t, os.WriteFile(file, []byte(m[1]), 0o600))
			job, err := shared.ParseJob(file, nil)
			must.NoError(t, err, must.Sprint(path))
			if job.Datacenters == nil {
				job.Datacenters = []string{"*"}
			}
			plan, _, err := shared.Nomad.Jobs().PlanOpts(job, nil, (&nomadapi.WriteOptions{}).WithContext(s.ctx))
			must.NoError(t, err, must.Sprint(path))
			must.MapEmpty(t, plan.FailedTGAllocs, must.Sprint(path))
			must.StrNotContains(t, strings.ToLower(plan.Warnings), "error")
		}
		return nil
	})
	must.NoError(t, err)
	must.Positive(t, found)
}
