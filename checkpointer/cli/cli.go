// Package cli is the checkpointer command: one file per subcommand. Data goes to stdout, all else to stderr.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/discovery"
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

// lookTimeout bounds one question to Consul.
const lookTimeout = 30 * time.Second

// errDamage is returned after damage was reported.
var errDamage = errors.New("damage found")

// usageError is a mistake in the command line.
type usageError struct{ error }

// Main runs the command and returns its exit code.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "checkpointer",
		Short: "Save, restore, list and verify training checkpoints",
		Long: `checkpointer keeps training checkpoints in a store, by content, and restores them byte for byte.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 damage found.`,
		Example: `  checkpointer save ckpt_1200.pt --store file:///mnt/checkpoints --lineage default/train
  checkpointer restore --store file:///mnt/checkpoints --lineage default/train --to /tmp/restored
  checkpointer verify --consul http://127.0.0.1:8500`,
		Version: version,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no command %q", args[0])}
			}
			return nil
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(saveCommand(), restoreCommand(), listCommand(), verifyCommand(), agentCommand())
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errDamage):
		return exitDamage
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "checkpointer: %v\nRun `checkpointer --help` for usage.\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "checkpointer: %v\n", err)
	return exitFailed
}

// storeFlags are the flags that say which store.
type storeFlags struct{ url, consul, token, service string }

func (f *storeFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "store", "", "store URL: file:///absolute/path")
	c.Flags().StringVar(&f.consul, "consul", "", "address of a Consul agent to find the store with, such as http://127.0.0.1:8500")
	c.Flags().StringVar(&f.token, "consul-token", os.Getenv("CONSUL_HTTP_TOKEN"), "Consul token (default $CONSUL_HTTP_TOKEN)")
	c.Flags().StringVar(&f.service, "service", "checkpoint-store", "Consul service of the stores")
}

// open opens the repository that the flags name; with create, an empty store becomes one.
func (f *storeFlags) open(ctx context.Context, create bool) (*repository.Repository, error) {
	switch {
	case (f.url == "") == (f.consul == ""):
		return nil, usageError{errors.New("give exactly one of --store URL and --consul ADDRESS")}
	case f.url != "":
		if _, _, err := store.Parse(f.url); err != nil {
			return nil, usageError{fmt.Errorf("--store: %w", err)}
		}
		return openURL(ctx, f.url, create)
	}
	finder, err := discovery.New(api.ConsulConfig{Address: f.consul, Token: f.token, Service: f.service})
	if err != nil {
		return nil, usageError{err}
	}
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	stores, err := finder.Stores(look)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range stores {
		r, err := openURL(ctx, s.URL, create)
		if err == nil {
			return r, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func openURL(ctx context.Context, url string, create bool) (*repository.Repository, error) {
	s, err := store.Open(url, create)
	if err != nil {
		return nil, err
	}
	return repository.Open(ctx, s, create)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no argument %q", cmd.Name(), args[0])}
	}
	return nil
}

func needLineage(lineage string) error {
	if lineage == "" {
		return usageError{errors.New("--lineage is missing: name the sequence of checkpoints, such as default/train")}
	}
	return checkLineage(lineage)
}

// checkLineage accepts an empty lineage, which means all.
func checkLineage(lineage string) error {
	if lineage == "" {
		return nil
	}
	if err := repository.CheckLineage(lineage); err != nil {
		return usageError{fmt.Errorf("--lineage: %w", err)}
	}
	return nil
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

// bar is a progress bar on w if that is a terminal, and silent otherwise.
func bar(w io.Writer, total int64, what string) *progressbar.ProgressBar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return progressbar.DefaultBytesSilent(total, what)
	}
	return progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100e6))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
