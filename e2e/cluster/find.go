package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Process is a process of the cluster.
type Process struct {
	PID     int
	Command string // program and arguments
}

// OwnProcesses returns all processes of the cluster whose command matches.
func (c *Cluster) OwnProcesses(match func(command string) bool) []Process {
	var out []Process
	for _, pid := range c.marked() {
		if cmd := commandLine(pid); match(cmd) {
			out = append(out, Process{PID: pid, Command: cmd})
		}
	}
	return out
}

// TaskProcesses returns the processes in the containers of an instance whose command matches.
func (c *Cluster) TaskProcesses(i Instance, match func(command string) bool) []Process {
	var out []Process
	for _, p := range c.OwnProcesses(match) {
		groups, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "cgroup")) // unreadable: it has just ended
		if bytes.Contains(groups, []byte(c.values.CgroupParent+"/"+i.ID+"/containers/")) {
			out = append(out, p)
		}
	}
	return out
}

// Processes returns the processes of a running instance, outside containers, whose command matches.
func (c *Cluster) Processes(i Instance, match func(command string) bool) ([]Process, error) {
	want, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(i.Init.PID), "ns", "pid"))
	if err != nil {
		return nil, fmt.Errorf("find processes of instance %s: %w", i.ID, err)
	}
	var out []Process
	for _, p := range c.OwnProcesses(match) {
		got, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.PID), "ns", "pid"))
		if err == nil && got == want {
			out = append(out, p)
		}
	}
	return out, nil
}
