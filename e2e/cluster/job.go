package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"

	"nomad-spotter/e2e/engines"
)

// SpecPath is the path of a job file that is shipped, such as "train.nomad.hcl".
func SpecPath(name string) (string, error) {
	root, err := engines.Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "jobs", "specs", name), nil
}

// ParseJob has the Nomad server parse a job file with values for its variables, in HCL syntax: strings are quoted.
func (c *Cluster) ParseJob(path string, vars map[string]string) (*nomadapi.Job, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var v strings.Builder
	for k, val := range vars {
		fmt.Fprintf(&v, "%s = %s\n", k, val)
	}
	job, err := c.Nomad.Jobs().ParseHCLOpts(&nomadapi.JobsParseRequest{JobHCL: string(b), Variables: v.String(), Canonicalize: true})
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return job, nil
}

// Run registers a job and follows its logs until ctx is done.
func (c *Cluster) Run(ctx context.Context, job *nomadapi.Job) (*Job, error) {
	if _, _, err := c.Nomad.Jobs().Register(job, (&nomadapi.WriteOptions{}).WithContext(ctx)); err != nil {
		return nil, fmt.Errorf("run job %s: %w", *job.ID, err)
	}
	return c.follow(*job.ID), nil
}

// Allocations returns the job's allocations, oldest first.
func (j *Job) Allocations(ctx context.Context) ([]*nomadapi.AllocationListStub, error) {
	list, _, err := j.cluster.Nomad.Jobs().Allocations(j.ID, true, (&nomadapi.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("list allocations of %s: %w", j.ID, err)
	}
	slices.SortFunc(list, func(a, b *nomadapi.AllocationListStub) int {
		if d := int64(a.CreateIndex) - int64(b.CreateIndex); d != 0 { //nolint:gosec // indexes are small
			return int(d)
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, nil
}

// Event is one line that a task's life has left in Nomad.
type Event struct {
	Alloc   string
	At      time.Time
	Type    string
	Message string
}

// Events returns the task events of all allocations, oldest first.
func (j *Job) Events(ctx context.Context) ([]Event, error) {
	list, err := j.Allocations(ctx)
	if err != nil {
		return nil, err
	}
	var out []Event
	for _, a := range list {
		for _, st := range a.TaskStates {
			for _, e := range st.Events {
				out = append(out, Event{Alloc: a.ID, At: time.Unix(0, e.Time), Type: e.Type, Message: e.DisplayMessage})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int { return a.At.Compare(b.At) })
	return out, nil
}

// Stop stops the job and its allocations.
func (j *Job) Stop(ctx context.Context) error {
	_, _, err := j.cluster.Nomad.Jobs().Deregister(j.ID, false, (&nomadapi.WriteOptions{}).WithContext(ctx))
	return err
}

// Report tells what is known about the job, for a failure: events, and the ends of the logs around it.
func (j *Job) Report(ctx context.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s\n", j.ID)
	list, err := j.Allocations(ctx)
	if err != nil {
		fmt.Fprintf(&b, "  %v\n", err)
	}
	for _, a := range list {
		fmt.Fprintf(&b, "  allocation %s on %s: desired %s (%s), is %s (%s)\n", a.ID, a.NodeName, a.DesiredStatus, a.DesiredDescription, a.ClientStatus, a.ClientDescription)
		for _, st := range a.TaskStates {
			for _, e := range st.Events {
				fmt.Fprintf(&b, "    %s %s: %s\n", time.Unix(0, e.Time).UTC().Format("15:04:05.000"), e.Type, e.DisplayMessage)
			}
		}
		for _, f := range j.cluster.taskLogs(a.ID) {
			fmt.Fprintf(&b, "%s\n", Tail(f, 8))
		}
	}
	return b.String()
}

// taskLogs returns the log files of an allocation, wherever it ran.
func (c *Cluster) taskLogs(alloc string) []string {
	files, _ := filepath.Glob(filepath.Join(c.values.Instances, "*", "nomad", "alloc", alloc, "alloc", "logs", "*")) // the pattern is well-formed
	return slices.DeleteFunc(files, func(p string) bool {
		info, err := os.Lstat(p)
		return err != nil || !info.Mode().IsRegular() // fifos lie beside them
	})
}

// AllocFile returns the path of a file in the folder that an allocation's tasks share, on whatever instance it ran.
func (c *Cluster) AllocFile(alloc, name string) (string, error) {
	files, err := filepath.Glob(filepath.Join(c.values.Instances, "*", "nomad", "alloc", alloc, "alloc", name))
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", fmt.Errorf("allocation %s has no file %s on any instance", alloc, name)
	}
	return files[0], nil
}

// HCL writes strings as a value of a variable: one as a string, several as a list. What looks like an interpolation
// stays for Nomad to fill in when the task starts.
func HCL(s ...string) string {
	quoted := make([]string, len(s))
	for i, v := range s {
		quoted[i] = strings.ReplaceAll(strconv.Quote(v), "${", "$${")
	}
	if len(s) == 1 {
		return quoted[0]
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
