// Package cli is the checkpointer command: one file per subcommand. Data goes to stdout, all else to stderr.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitDamage = 3
)

// errDamage is returned after damage was reported.
var errDamage = errors.New("damage found")

// usageError is a mistake in the command line.
type usageError struct{ error }

// Main runs the command and returns its exit code.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	l := &line{}
	root := &cobra.Command{
		Use:   "checkpointer",
		Short: "Keep training checkpoints, and bring them back byte for byte",
		Long: `checkpointer keeps training checkpoints in a store, by content, and restores them byte for byte.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 damage found.`,
		Example: `  checkpointer save ckpt_1200.pt --store file:///mnt/checkpoints --lineage default/train
  checkpointer restore --store file:///mnt/checkpoints --lineage default/train --to /tmp/restored
  checkpointer verify --consul http://127.0.0.1:8500`,
		Version:       version,
		Args:          l.noCommand,
		RunE:          l.help,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		l.faults = append(l.faults, err)
		return l.err()
	})
	for _, c := range commands {
		root.AddCommand(c(l))
	}
	l.scan(root, args)
	root.SetArgs(l.args)
	err := root.ExecuteContext(ctx)
	var usage usageError
	var d *repository.DamageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errDamage):
		return exitDamage
	case errors.As(err, &usage):
		complain(stderr, err)
		fmt.Fprintln(stderr, "Run `checkpointer --help` for usage.")
		return exitUsage
	case errors.As(err, &d), errors.Is(err, store.ErrDamaged):
		complain(stderr, err)
		return exitDamage
	}
	complain(stderr, err)
	return exitFailed
}

// commands make the subcommands.
var commands = []func(*line) *cobra.Command{saveCommand, claimCommand, restoreCommand, listCommand, showCommand, verifyCommand, statsCommand, gcCommand, cpCommand, keyCommand, storeCommand, watchCommand, agentCommand}

// complain prints an error, each of its lines with the program's name.
func complain(w io.Writer, err error) {
	for s := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(w, "checkpointer: %s\n", s)
	}
}

func (l *line) noCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		l.fault("there is no command %q", strings.TrimPrefix(cmd.CommandPath()+" "+args[0], "checkpointer "))
	}
	return nil
}

func (l *line) help(cmd *cobra.Command, _ []string) error {
	if err := l.err(); err != nil {
		return err
	}
	return cmd.Help()
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func table(w io.Writer, f func(w io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	f(t)
	return t.Flush()
}

// bar is a progress bar on w if that is a terminal, and silent otherwise. It is drawn by whoever makes progress: what the
// library would start to turn a spinner reads the bar's state without its lock.
func bar(w io.Writer, total int64, what string) *progressbar.ProgressBar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return progressbar.NewOptions64(total, progressbar.OptionSetVisibility(false))
	}
	return progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100e6), progressbar.OptionSetSpinnerChangeInterval(0))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 1000 && n > -1000:
		return fmt.Sprintf("%d B", n)
	case n < 1e6 && n > -1e6:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1e9 && n > -1e9:
		return megabytes(n)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}
