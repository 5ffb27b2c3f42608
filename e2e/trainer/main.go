// Command trainer is the training program of the demo and of the end-to-end tests: a two-layer network, Adam, and
// minibatches in a shuffled order, in plain Go, so that it needs neither a GPU nor a base image. It is deterministic bit
// for bit on one machine, interrupted or not: weights, both moments, random generator, data order and position are all in
// its checkpoints.
//
// It runs plainly, and under Spotter when the SPOTTER_ variables are set. Standard output has one line per finished step,
//
//	2026-01-31T12:00:00.000Z step 120 loss 0.4213
//
// and ends with "… final sha256 <hex>", the hash of the file named by --out.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"nomad-spotter/checkpointer/api"
)

// exitStopped is the exit code after SIGTERM, as a shell reports it.
const exitStopped = 128 + int(syscall.SIGTERM)

var errStopped = errors.New("stopped")

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, errStopped):
		os.Exit(exitStopped)
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "trainer: %v\n", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	steps, every, stepsSeed uint64
	keep                    int
	pace                    time.Duration
	size                    byteSize
	out, ask                string
	idle                    bool
}

func parse(args []string) (options, error) {
	o := options{size: 1 << 20}
	f := flag.NewFlagSet("trainer", flag.ContinueOnError)
	f.Uint64Var(&o.steps, "steps", 1000, "train this many `steps`")
	f.Uint64Var(&o.every, "checkpoint-every", 50, "write a checkpoint each so many `steps`; 0 never")
	f.Uint64Var(&o.stepsSeed, "seed", 1, "`seed` of data and weights")
	f.IntVar(&o.keep, "keep", 3, "leave this `many` checkpoints in the directory")
	f.DurationVar(&o.pace, "step-time", 0, "let a step take at least this `long`")
	f.Var(&o.size, "size", "`bytes` of a checkpoint, about, such as 256KiB or 10MiB")
	f.StringVar(&o.out, "out", "", "write the trained weights to this `file`")
	f.StringVar(&o.ask, "ask", askSocket, "how a checkpoint is asked for: socket, signal (SIGUSR1), file or none")
	f.BoolVar(&o.idle, "idle", false, "after training wait to be stopped, for jobs of type service")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.keep < 1 {
		return o, fmt.Errorf("--keep: %d is less than 1", o.keep)
	}
	return o, nil
}

// run trains to the end.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir := os.Getenv(api.EnvCheckpointDir)
	ask, err := newAsker(o.ask, dir, os.Getenv(api.EnvSocket))
	if err != nil {
		return err
	}
	s, err := start(o, os.Getenv(api.EnvResumePath), os.Getenv(api.EnvResumeStep))
	if err != nil {
		return err
	}
	l := &loop{options: o, trainer: newTrainer(s, newDataset(o.stepsSeed)), asker: ask, dir: dir, out: out}
	askCtx, cancel := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		ask.run(askCtx)
	}()
	defer func() {
		cancel()
		<-asked
	}()
	if s.step > 0 {
		l.print("resumed at step %d", s.step)
	}
	return l.run(ctx)
}

// start returns the state to go on from: the restored checkpoint, or a fresh network.
func start(o options, path, step string) (*state, error) {
	if path == "" {
		return newState(o.stepsSeed, hiddenFor(int64(o.size))), nil
	}
	s, err := load(path)
	if err != nil {
		return nil, err
	}
	if step != "" && step != strconv.FormatInt(s.step, 10) {
		return nil, fmt.Errorf("%s is %s, but the checkpoint at %s is of step %d", api.EnvResumeStep, step, path, s.step)
	}
	return s, nil
}

// loop is a training run.
type loop struct {
	options
	*trainer
	asker *asker
	dir   string
	out   io.Writer
	saved int64 // step of the last checkpoint
}

func (l *loop) print(format string, args ...any) {
	fmt.Fprintf(l.out, "%s %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), fmt.Sprintf(format, args...))
}

func (l *loop) run(ctx context.Context) error {
	for uint64(l.step) < l.steps {
		begun := time.Now()
		loss := l.train()
		l.print("step %d loss %.4f", l.step, loss)
		if l.every > 0 && uint64(l.step)%l.every == 0 {
			if err := l.checkpoint(ctx, 0); err != nil {
				return err
			}
		}
		if err := l.rest(ctx, l.pace-time.Since(begun)); err != nil {
			return err
		}
	}
	if l.saved != l.step {
		if err := l.checkpoint(ctx, 0); err != nil {
			return err
		}
	}
	if err := l.finish(); err != nil {
		return err
	}
	for l.idle { // a service that ended would be started again for ever
		if err := l.rest(ctx, time.Hour); err != nil {
			return err
		}
	}
	return nil
}

// rest answers requests, at least those already there, until d is over.
func (l *loop) rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	for over := false; ; {
		if ctx.Err() != nil { // before all else: after a final request not one more step may be done
			l.print("stopped after step %d", l.step)
			return errStopped
		}
		if over { // the timer may win while a request is there as well
			select {
			case r := <-l.asker.requests:
				if err := l.answer(ctx, r); err != nil {
					return err
				}
				continue
			default:
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case r := <-l.asker.requests:
			if err := l.answer(ctx, r); err != nil {
				return err
			}
		case <-t.C:
			over = true
		}
	}
}

// answer makes the checkpoint that r asks for. After a final one it waits, so that no step is done twice.
func (l *loop) answer(ctx context.Context, r api.Request) error {
	l.print("asked for a checkpoint: %s", describe(r))
	if err := l.checkpoint(ctx, r.ID); err != nil {
		return err
	}
	if r.Final {
		l.asker.withdrawn(ctx, r)
	}
	return nil
}

func describe(r api.Request) string {
	switch {
	case r.ID == 0:
		return "signal"
	case r.Final:
		return fmt.Sprintf("%s, final", r.Reason)
	}
	return string(r.Reason)
}

// checkpoint saves the state, where there is a directory for it, in answer to a request or to none (0).
func (l *loop) checkpoint(ctx context.Context, request uint64) error {
	if l.dir == "" {
		return nil
	}
	path, err := l.save(l.dir, l.keep)
	if err != nil {
		return err
	}
	l.saved = l.step
	l.print("checkpoint %d", l.step)
	if err := l.asker.finished(ctx, l.step, path, request); err != nil && ctx.Err() == nil {
		// The agent may be about to be started again; it finds the file by itself.
		l.print("could not report checkpoint %d: %v", l.step, err)
	}
	return nil
}

// finish writes the model and prints its hash.
func (l *loop) finish() error {
	b := l.model()
	if l.options.out != "" {
		if err := os.MkdirAll(filepath.Dir(l.options.out), 0o755); err != nil {
			return err
		}
		if err := writeDurably(l.options.out, b); err != nil {
			return err
		}
	}
	l.print("final sha256 %x", sha256.Sum256(b))
	return nil
}

// byteSize is a flag such as 256KiB.
type byteSize int64

// String implements flag.Value.
func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }

// Set implements flag.Value.
func (b *byteSize) Set(s string) error {
	unit := int64(1)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = n, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > 1<<40/unit {
		return fmt.Errorf("%q is not a size such as 256KiB", s)
	}
	*b = byteSize(n * unit)
	return nil
}
