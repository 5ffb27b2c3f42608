// Command engines finds or builds the engines that the demo and the end-to-end tests run on.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"nomad-spotter/e2e/engines"
)

func main() {
	lint := flag.Bool("lint", false, "the linter of `make check` instead of the engines")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	list := engines.All()
	if *lint {
		list = []engines.Engine{engines.Lint()}
	}
	report := &engines.Report{W: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	if err := engines.Ensure(ctx, report, list...); err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}
