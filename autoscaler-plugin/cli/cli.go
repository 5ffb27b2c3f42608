// Package cli holds the commands of nomad-autoscaler-spotter, one file each. It writes data to standard output and
// everything else to standard error, and maps errors to exit codes in one place. It opens no provider itself: what the
// commands work with is handed to Run.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"nomad-spotter/autoscaler-plugin/pool"
)

// Name is the program's name, which nomad-autoscaler also knows the plugin by.
const Name = "nomad-autoscaler-spotter"

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the command could not do what it was asked
	exitUsage  = 2 // wrong command, flag or argument
)

// Program is what the commands are wired to.
type Program struct {
	Openers     map[string]pool.Opener // providers by their name in a pool file
	RunInstance func(ctx context.Context, dir string, log hclog.Logger) error
	RunInit     func(ctx context.Context, dir string) error
	Version     string
	Stdout      io.Writer
	Stderr      io.Writer
}

// usageError is an error in how the program was called.
type usageError struct{ error }

// Run executes one command line and returns the exit code.
func (p Program) Run(ctx context.Context, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	root := p.root()
	root.SetArgs(args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintf(p.Stderr, "%s: %v\n", Name, err)
	var usage usageError
	if errors.As(err, &usage) {
		_, _ = fmt.Fprintf(p.Stderr, "Run `%s --help` for how to call it.\n", Name)
		return exitUsage
	}
	return exitFailed
}

func (p Program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   Name,
		Short: "Keep pools of spot and on-demand Nomad nodes at their size",
		Long: `A plugin for nomad-autoscaler: the target "spotter-pool" keeps pools of Nomad nodes, bought as spot where there is
spot and on demand where there is not, at the size that a scaling policy asks for. nomad-autoscaler starts it with the
argument "target"; people use the other commands.`,
		Example: fmt.Sprintf("  %[1]s status --pool /etc/spotter/pool.hcl\n  %[1]s status --pool /etc/spotter/pool.hcl --json\n"+
			"  %[1]s plan --pool /etc/spotter/pool.hcl\n"+
			"  %[1]s market start --pool /etc/spotter/pool.hcl", Name),
		Version:       p.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("no command given; known are status, plan, market, target")}
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(p.target(), p.status(), p.plan(), p.market(), p.instance(), p.init())
	return root
}

// noArgs refuses positional arguments as errors of usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s: unexpected argument %q", cmd.CommandPath(), args[0])}
	}
	return nil
}

// poolFlags are the flags of commands that work on one pool of a pool file.
type poolFlags struct{ file, name string }

func (f *poolFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "pool", "", "pool file (required)")
	cmd.Flags().StringVar(&f.name, "name", "", "pool of the file; needed where the file has several")
}

func (f *poolFlags) load(p Program) (pool.Pool, error) {
	if f.file == "" {
		return pool.Pool{}, usageError{errors.New("--pool is missing; give the pool file")}
	}
	pools, err := pool.Load(f.file, p.Openers)
	if err != nil {
		return pool.Pool{}, err
	}
	return pool.Find(pools, f.name)
}
