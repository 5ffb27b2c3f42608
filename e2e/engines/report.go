package engines

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// interval between two progress lines of one build.
const interval = 5 * time.Second

// tailLines is how much of a failed build's output an error carries.
const tailLines = 30

// Report writes progress lines: one every few seconds while something is built, on a terminal over each other.
type Report struct {
	W        io.Writer
	Terminal bool
}

func (r *Report) done(e Engine, how string) {
	if how == "built" || r.Terminal {
		fmt.Fprintf(r.W, "%s%s: %s\n", r.erase(), e.Version, how)
	}
}

func (r *Report) erase() string {
	if r.Terminal {
		return "\r\x1b[K"
	}
	return ""
}

// buildWatch counts what `go build -v` prints, a line per package, and reports it.
type buildWatch struct {
	r      *Report
	label  string
	start  time.Time
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	partial   []byte
	lines     []string // the last tailLines
	downloads int
	packages  int
}

func (r *Report) watch(ctx context.Context, e Engine, name string) *buildWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &buildWatch{r: r, label: fmt.Sprintf("building %s (%s)", name, e.Version), start: time.Now(), cancel: cancel}
	w.line()
	w.wg.Go(func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				w.line()
			}
		}
	})
	return w
}

func (w *buildWatch) line() {
	w.mu.Lock()
	defer w.mu.Unlock()
	what := "starting"
	switch {
	case w.packages > 0:
		what = fmt.Sprintf("%d packages compiled", w.packages)
	case w.downloads > 0:
		what = fmt.Sprintf("%d modules downloaded", w.downloads)
	}
	end := "\n"
	if w.r.Terminal {
		end = ""
	}
	fmt.Fprintf(w.r.W, "%s%s: %s, %s%s", w.r.erase(), w.label, what, time.Since(w.start).Round(time.Second), end)
}

// Write implements io.Writer for the compiler's standard error.
func (w *buildWatch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial = append(w.partial, p...)
	for {
		i := bytes.IndexByte(w.partial, '\n')
		if i < 0 {
			return len(p), nil
		}
		line := string(w.partial[:i])
		w.partial = w.partial[i+1:]
		if strings.HasPrefix(line, "go: downloading ") {
			w.downloads++
		} else {
			w.packages++
		}
		w.lines = append(w.lines, line)
		if len(w.lines) > tailLines {
			w.lines = w.lines[1:]
		}
	}
}

func (w *buildWatch) close() {
	w.cancel()
	w.wg.Wait()
}

func (w *buildWatch) tail() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lines...)
}
