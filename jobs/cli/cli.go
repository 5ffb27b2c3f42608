// Package cli is the spotter command: one file per subcommand. Data goes to standard output, all else to standard error.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// Name is the program's name.
const Name = "spotter"

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // the command could not do what it was asked
	exitUsage  = 2 // wrong command, flag or argument
)

// usageError is a mistake in the command line.
type usageError struct{ error }

// commands make the subcommands, in the order of the help.
var commands = []func() *cobra.Command{
	costCommand,
	bidsCommand,
	planCommand,
	simulateCommand,
	forecastPrices,
	backtest,
}

// Main runs one command line and returns its exit code.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   Name,
		Short: "Plan, price and simulate training on spot instances",
		Long: `spotter says what training on spot instances costs and when it is done, and runs the pool's own decisions on recorded
markets.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Version:       version,
		Args:          noArgs,
		RunE:          noCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	for _, c := range commands {
		root.AddCommand(c())
	}
	root.SetArgs(args)
	err := interruptible(ctx, root.ExecuteContext)
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		complain(stderr, err)
		called, _, unknown := root.Find(args)
		if unknown != nil {
			called = root
		}
		_, _ = fmt.Fprintf(stderr, "Run `%s --help` for how to call it.\n", called.CommandPath())
		return exitUsage
	}
	complain(stderr, err)
	return exitFailed
}

// grace is how long a command that is interrupted has to clean up.
const grace = 300 * time.Millisecond

// interruptible runs f until it is done or the context ends, even where f does not look at it: what is computed can be
// dropped, and files are written whole or not at all. The process must end soon after, since f may go on.
func interruptible(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		if err == nil || !errors.Is(err, ctx.Err()) {
			return err
		}
	case <-time.After(grace):
	}
	return errors.New("interrupted")
}

// complain prints an error, each of its lines with the program's name.
func complain(w io.Writer, err error) {
	for s := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintf(w, "%s: %s\n", Name, s)
	}
}

// noCommand is the RunE of a command that only has subcommands.
func noCommand(cmd *cobra.Command, _ []string) error {
	names := make([]string, 0, len(cmd.Commands()))
	for _, c := range cmd.Commands() {
		if c.Name() != "help" {
			names = append(names, c.Name())
		}
	}
	return usageError{fmt.Errorf("%sno command given; known are %s", inCommand(cmd), strings.Join(names, ", "))}
}

// noArgs refuses positional arguments as errors of usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%sunexpected argument %q", inCommand(cmd), args[0])}
	}
	return nil
}

// inCommand begins an error of a command, after the program's name.
func inCommand(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return ""
	}
	return strings.TrimPrefix(cmd.CommandPath(), Name+" ") + ": "
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table writes rows of cells that are parted by tabs.
func table(w io.Writer, f func(w io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	f(t)
	return t.Flush()
}
