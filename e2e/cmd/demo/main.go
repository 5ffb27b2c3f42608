// Command demo shows a training job that survives the reclaim of its spot instance, on real Nomad, Consul, containerd
// and nomad-autoscaler, all on this machine. `make demo` builds what it needs and runs it.
//
// Environment: DEMO_JSON=FILE writes the summary as JSON, KEEP=1 leaves everything running. `demo -stop DIR` ends what
// KEEP=1 left. Exit code 0: the job lost nothing and the model is bit-identical to an uninterrupted run; 1: not so, or
// something failed; 130: interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/term"

	"nomad-spotter/e2e/cluster"
	"nomad-spotter/e2e/engines"
)

// exitInterrupted is the exit code after Ctrl-C, as a shell reports it.
const exitInterrupted = 128 + int(syscall.SIGINT)

func main() {
	stop := flag.String("stop", "", "end the cluster in this `folder`, left by KEEP=1")
	bin := flag.String("bin", os.Getenv("SPOTTER_BIN"), "`folder` of Spotter's binaries; default: bin in the repository")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, cancel) // a second Ctrl-C does not wait for the cleaning up
	err := run(ctx, *bin, *stop)
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(exitInterrupted)
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, stop string) error {
	if stop != "" {
		return cluster.Remove(ctx, stop)
	}
	if bin == "" {
		root, err := engines.Root()
		if err != nil {
			return err
		}
		bin = filepath.Join(root, "bin")
	}
	s := &screen{w: os.Stdout, terminal: term.IsTerminal(int(os.Stdout.Fd()))}
	d := &demo{screen: s}
	err := d.play(ctx, bin)
	if d.result.finished {
		d.result.print(s)
		err = errors.Join(err, d.result.verdict(), d.result.write(os.Getenv("DEMO_JSON")))
	}
	if ctx.Err() != nil { // interrupted: nothing is to be found out from logs
		return errors.Join(context.Cause(ctx), d.close(ctx, false, false))
	}
	return errors.Join(err, d.close(ctx, err != nil, os.Getenv("KEEP") == "1"))
}
