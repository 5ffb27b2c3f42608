package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nomad-spotter/checkpointer/repository"
)

// line is one command line. Its faults are collected, so that all are reported together.
type line struct {
	faults []error
	args   []string // what is left when the faults are taken out
}

func (l *line) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Errorf(format, args...))
}

// check adds a fault if err is one.
func (l *line) check(flag string, err error) {
	if err != nil {
		l.fault("%s: %w", flag, err)
	}
}

// err is nil for a line without faults.
func (l *line) err() error {
	if len(l.faults) == 0 {
		return nil
	}
	return usageError{errors.Join(l.faults...)}
}

// scan notes flags that do not exist and values that are missing, for which the parser would stop at the first one.
func (l *line) scan(root *cobra.Command, args []string) {
	cmd, _, err := root.Find(args)
	if err != nil {
		l.args = args
		return
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			l.args = append(l.args, args[i:]...)
			return
		}
		name, _, valued := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if !strings.HasPrefix(a, "--") {
			if len(a) > 1 && a[0] == '-' && cmd.Flags().ShorthandLookup(a[1:2]) == nil {
				l.fault("unknown flag: %s", a)
				continue
			}
			l.args = append(l.args, a)
			continue
		}
		f := cmd.Flag(name)
		switch {
		case f == nil:
			l.fault("unknown flag: --%s", name)
			if !valued && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") && cmd.HasParent() {
				i++ // what it was to be, perhaps
			}
		case valued || f.NoOptDefVal != "":
			l.args = append(l.args, a)
		case i+1 == len(args):
			l.fault("flag --%s needs a value: %s", name, f.Usage)
		default:
			l.args = append(l.args, a, args[i+1])
			i++
		}
	}
}

// noArgs refuses arguments.
func (l *line) noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		l.fault("%s takes no argument %q", cmd.Name(), args[0])
	}
	return nil
}

// oneArg wants just one argument. An empty one is what a script has made of a variable that is not set.
func (l *line) oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) != 1:
			l.fault("%s takes one %s, got %d", cmd.Name(), what, len(args))
		case args[0] == "":
			l.fault("%s takes one %s, got an empty text", cmd.Name(), what)
		}
		return nil
	}
}

// needLineage wants the name of one lineage.
func (l *line) needLineage(lineage string) {
	if lineage == "" {
		l.fault("--lineage is missing: name the sequence of checkpoints, such as default/train")
		return
	}
	l.checkLineage(lineage)
}

// checkLineage accepts an empty lineage, which means all.
func (l *line) checkLineage(lineage string) {
	if lineage != "" {
		l.check("--lineage", repository.CheckLineage(lineage))
	}
}

// whole is a flag's whole number of at least min, in decimal digits. What is none is a fault of the line.
type whole struct {
	line  *line
	name  string
	to    *int64
	least int64
}

func (v whole) String() string {
	if v.to == nil || *v.to == 0 {
		return ""
	}
	return strconv.FormatInt(*v.to, 10)
}

func (v whole) Type() string { return "number" }

func (v whole) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		v.line.fault("invalid argument %q for \"--%s\": a whole number from %d to %d is needed", s, v.name, v.least, int64(math.MaxInt64))
	case n < v.least:
		v.line.fault("invalid argument %q for \"--%s\": it is less than %d", s, v.name, v.least)
	default:
		*v.to = n
	}
	return nil
}

// whole adds a flag for a whole number of at least min.
func (l *line) whole(f *pflag.FlagSet, to *int64, name string, value, least int64, usage string) {
	*to = value
	f.Var(whole{l, name, to, least}, name, usage)
}

// span is a flag's duration of at least min.
type span struct {
	line  *line
	name  string
	to    *time.Duration
	least time.Duration
}

func (v span) String() string {
	if v.to == nil {
		return ""
	}
	return v.to.String()
}

func (v span) Type() string { return "duration" }

func (v span) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		v.line.fault("invalid argument %q for \"--%s\": a duration such as 90s or 10m is needed", s, v.name)
	case d < v.least:
		v.line.fault("invalid argument %q for \"--%s\": it is less than %s", s, v.name, v.least)
	default:
		*v.to = d
	}
	return nil
}

// span adds a flag for a duration of at least min.
func (l *line) span(f *pflag.FlagSet, to *time.Duration, name string, value, least time.Duration, usage string) {
	*to = value
	f.Var(span{l, name, to, least}, name, usage)
}

// find returns the snapshot that a name or a step stands for: a name as `list` prints it; a step in its highest epoch.
func find(ctx context.Context, repo *repository.Repository, lineage, name string, step int64) (repository.Snapshot, error) {
	list, err := history(ctx, repo, lineage)
	if err != nil {
		return repository.Snapshot{}, err
	}
	var found []repository.Snapshot
	for _, s := range list {
		for _, p := range s.Parts() {
			if name != "" && p.ID == name && p.ID != s.ID {
				found = append(found, p)
			}
		}
		if name != "" && s.ID == name || name == "" && s.Step == step && len(found) == 0 {
			found = append(found, s)
		}
	}
	what := fmt.Sprintf("step %d", step)
	if name != "" {
		what = "snapshot " + name
	}
	switch {
	case len(found) == 0:
		return repository.Snapshot{}, fmt.Errorf("%s of %s: %w; `checkpointer list` shows those that exist", what, orAny(lineage), repository.ErrNoSnapshot)
	case len(found) > 1:
		return repository.Snapshot{}, usageError{fmt.Errorf("%s exists in %d lineages, %s and %s among them: add --lineage", what, len(found), found[0].Lineage, found[1].Lineage)}
	}
	return found[0], nil
}

// exists fails if a lineage has nothing at all in a store, neither itself nor as a fork: then its name is mistyped, or the
// store is another one. An empty name is that of all.
func exists(ctx context.Context, repo *repository.Repository, lineage string) error {
	if lineage == "" {
		return nil
	}
	if known, err := repo.Known(ctx, lineage); err != nil || known {
		return err
	}
	return fmt.Errorf("--lineage: %q is not in %s; `checkpointer list` shows those that are", lineage, repo.URL())
}

func orAny(lineage string) string {
	if lineage == "" {
		return "any lineage"
	}
	return lineage
}
