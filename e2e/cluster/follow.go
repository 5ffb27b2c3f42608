package cluster

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Line is one line of the training program's log.
type Line struct {
	Alloc string
	At    time.Time // the program's own clock
	Text  string    // what follows the time

	Step int64 // of a finished step; else 0
	Loss float64
}

// Job is a job of the training program whose log is followed across all its allocations. The log is read from the
// instances' disks: a killed node answers no more, and what its containers wrote counts.
type Job struct {
	ID      string
	cluster *Cluster
	cancel  context.CancelFunc
	done    chan struct{}

	mu    sync.Mutex
	lines []Line
	read  map[string]int // bytes taken of each file
}

// followEvery is how often the logs are read. Times come from the lines and do not depend on it.
const followEvery = 100 * time.Millisecond

func (c *Cluster) follow(id string) *Job {
	ctx, cancel := context.WithCancel(context.Background())
	j := &Job{ID: id, cluster: c, cancel: cancel, done: make(chan struct{}), read: map[string]int{}}
	go func() {
		defer close(j.done)
		var allocs []string
		looked := time.Time{}
		_ = Poll(ctx, followEvery, func() bool { // ends with ctx
			if time.Since(looked) > 3*followEvery {
				looked = time.Now()
				if list, err := j.Allocations(ctx); err == nil {
					for _, a := range list {
						if !slices.Contains(allocs, a.ID) {
							allocs = append(allocs, a.ID)
						}
					}
				}
			}
			for _, a := range allocs {
				j.take(a)
			}
			return false
		})
	}()
	return j
}

// Close stops following.
func (j *Job) Close() {
	j.cancel()
	<-j.done
}

// take reads what is new in an allocation's logs.
func (j *Job) take(alloc string) {
	for _, path := range j.cluster.taskLogs(alloc) {
		if !strings.Contains(path, ".stdout.") {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		j.mu.Lock()
		from := j.read[path]
		end := bytes.LastIndexByte(b, '\n') + 1 // the last line may still be being written
		if end > from {
			for line := range strings.Lines(string(b[from:end])) {
				j.lines = append(j.lines, parseLine(alloc, strings.TrimSuffix(line, "\n")))
			}
			j.read[path] = end
		}
		j.mu.Unlock()
	}
}

var stepLine = regexp.MustCompile(`^step (\d+) loss ([0-9.]+)$`)

// parseLine takes a line of the training program apart. A line of another form has no time.
func parseLine(alloc, s string) Line {
	l := Line{Alloc: alloc, Text: s}
	stamp, rest, _ := strings.Cut(s, " ")
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return l
	}
	l.At, l.Text = at, rest
	if m := stepLine.FindStringSubmatch(rest); m != nil {
		l.Step, _ = strconv.ParseInt(m[1], 10, 64) // digits, by the expression
		l.Loss, _ = strconv.ParseFloat(m[2], 64)
	}
	return l
}

// Lines returns all lines so far, or those of one allocation.
func (j *Job) Lines(alloc string) []Line {
	j.mu.Lock()
	defer j.mu.Unlock()
	if alloc == "" {
		return slices.Clone(j.lines)
	}
	var out []Line
	for _, l := range j.lines {
		if l.Alloc == alloc {
			out = append(out, l)
		}
	}
	return out
}

// Last returns the last finished step of the allocation that wrote last.
func (j *Job) Last() Line {
	lines := j.Lines("")
	var last Line
	for _, l := range lines {
		if l.Step > 0 && !l.At.Before(last.At) {
			last = l
		}
	}
	return last
}

// Run is what one container's own log tells of it. An in-place restart begins another in the same allocation.
type Run struct {
	Alloc   string
	Resumed int64 // step it went on from; 0: it began anew
	First   Line  // its first finished step
	Last    Line  // its last finished step
	Final   string
}

// Runs takes the log apart into the runs of the program, in the order of their first lines.
func (j *Job) Runs() []Run {
	lines := j.Lines("")
	slices.SortStableFunc(lines, func(a, b Line) int { return a.At.Compare(b.At) })
	byAlloc := map[string]int{}
	var runs []Run
	for _, l := range lines {
		i, known := byAlloc[l.Alloc]
		resumed, isResume := strings.CutPrefix(l.Text, "resumed at step ")
		if !known || isResume || l.Step > 0 && l.Step <= runs[i].Last.Step {
			runs = append(runs, Run{Alloc: l.Alloc})
			i = len(runs) - 1
			byAlloc[l.Alloc] = i
		}
		r := &runs[i]
		if isResume {
			r.Resumed, _ = strconv.ParseInt(resumed, 10, 64) // the program prints a number
		}
		if l.Step > 0 {
			if r.First.Step == 0 {
				r.First = l
			}
			r.Last = l
		}
		if sum, ok := strings.CutPrefix(l.Text, "final sha256 "); ok {
			r.Final = sum
		}
	}
	return runs
}

// Final returns the hash of the trained model, once a run has printed it.
func (j *Job) Final() string {
	for _, r := range slices.Backward(j.Runs()) {
		if r.Final != "" {
			return r.Final
		}
	}
	return ""
}
