package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/discovery"
	"nomad-spotter/checkpointer/store"
)

// storeCommand is the command for the registrations of stores in Consul.
func storeCommand(l *line) *cobra.Command {
	c := &cobra.Command{
		Use:     "store",
		Short:   "Register stores with Consul, and list them",
		Example: "  checkpointer store register --url file:///mnt/checkpoints --consul http://127.0.0.1:8500 --keep",
		Args:    l.noCommand,
		RunE:    l.help,
	}
	c.AddCommand(storeRegisterCommand(l), storeDeregisterCommand(l), storeListCommand(l))
	return c
}

func (f *consulFlags) needed(l *line) {
	if f.address == "" {
		l.fault("--consul is missing: give the address of a Consul agent, such as http://127.0.0.1:8500")
		return
	}
	l.checkConsul("--consul", f.config())
}

// registered is what `store register --json` prints.
type registered struct {
	ID           string `json:"id"`
	URL          string `json:"url"`
	Region       string `json:"region"`
	Priority     int    `json:"priority"`
	Conditional  bool   `json:"conditional"` // the store creates objects conditionally
	SingleWriter bool   `json:"single_writer"`
}

// registerFlags are the flags of store register.
type registerFlags struct {
	consulFlags
	url, region, name string
	priority          int64
	ttl, interval     time.Duration
	keep, single      bool
	json              bool
}

func storeRegisterCommand(l *line) *cobra.Command {
	var f registerFlags
	c := &cobra.Command{
		Use:   "register",
		Short: "Test a store and register it with Consul",
		Long: `Test a store with a small write, read, listing, second creation and deletion, and register it with a Consul agent.

With --keep the command stays, repeats the test at every --interval and tells Consul how it went; at SIGTERM it takes the
registration back. Without it the store counts as healthy for --ttl, within which the command must be run again, or for good
if that is 0. A store that lets a second writer replace an object is refused: with --single-writer you vouch that no lineage
ever has two writers at a time.`,
		Example: `  checkpointer store register --url file:///mnt/checkpoints --consul http://127.0.0.1:8500 --region eu-west-1 --keep
  checkpointer store register --url s3://bucket/checkpoints --consul http://127.0.0.1:8500 --priority 10`,
		Args: l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.url == "" {
				l.fault("--url is missing: give the URL of a store")
			} else {
				l.checkURL("--url", f.url)
			}
			f.needed(l)
			if f.keep && f.ttl > 0 && f.ttl <= f.interval {
				l.fault("--ttl %s is not longer than --interval %s: the store would count as ill between two tests", f.ttl, f.interval)
			}
			if !f.keep && cmd.Flags().Changed("interval") {
				l.fault("--interval needs --keep")
			}
			if err := l.err(); err != nil {
				return err
			}
			return f.run(cmd)
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.url, "url", "", "URL of the store, as those who use it see it")
	c.Flags().StringVar(&f.region, "region", "", "region of the store; nodes with this region as node meta prefer it")
	c.Flags().StringVar(&f.name, "name", "", "ID of the registration (default: made from the URL)")
	l.whole(c.Flags(), &f.priority, "priority", discovery.DefaultPriority, math.MinInt32, "the lowest is preferred, before all nearness")
	l.span(c.Flags(), &f.ttl, "ttl", 0, 0, "how long one test counts (default with --keep: three intervals; else 0, for good)")
	l.span(c.Flags(), &f.interval, "interval", 30*time.Second, time.Second, "with --keep: time between two tests")
	c.Flags().BoolVar(&f.keep, "keep", false, "stay, and keep the health check up to date")
	c.Flags().BoolVar(&f.single, "single-writer", false, "accept a store without conditional creation")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object once it is registered")
	return c
}

// probeTimeout bounds one test of a store.
const probeTimeout = time.Minute

// probe tests a store; it tells whether it creates objects conditionally.
func (f *registerFlags) probe(ctx context.Context) (conditional bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	s, err := store.Open(f.url, false)
	if err != nil {
		return false, err
	}
	err = store.Probe(ctx, s)
	if errors.Is(err, store.ErrNotConditional) && f.single {
		return false, nil
	}
	if errors.Is(err, store.ErrNotConditional) {
		err = fmt.Errorf("%w; use it with --single-writer if no lineage ever has two writers at a time", err)
	}
	return err == nil, err
}

func (f *registerFlags) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	c, err := discovery.New(f.config())
	if err != nil {
		return err
	}
	r := discovery.Registration{ID: f.name, URL: f.url, Region: f.region, Priority: int(f.priority), TTL: f.ttl}
	if r.ID == "" {
		r.ID = discovery.InstanceID(f.url)
	}
	if f.keep && r.TTL == 0 {
		r.TTL = 3 * f.interval
	}
	conditional, err := f.probe(ctx)
	if err != nil {
		// One that is registered from an earlier run must not count as healthy any longer. There may be none.
		_ = tell(ctx, func(ctx context.Context) error { return c.Fail(ctx, r.ID, err.Error()) })
		return fmt.Errorf("register store: %w", err)
	}
	r.SingleWriter = !conditional
	if err := tell(ctx, func(ctx context.Context) error { return c.Register(ctx, r) }); err != nil {
		return err
	}
	out := registered{r.ID, r.URL, r.Region, r.Priority, conditional, r.SingleWriter}
	if f.json {
		err = writeJSON(cmd.OutOrStdout(), out)
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Registered %s as %s\n", r.URL, r.ID)
	}
	if err != nil || !f.keep {
		return err
	}
	f.watch(ctx, cmd.ErrOrStderr(), c, r)
	return tell(context.WithoutCancel(ctx), func(ctx context.Context) error { return c.Deregister(ctx, r.ID) })
}

// tell bounds a call to Consul.
func tell(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return f(ctx)
}

// watch tests the store at every interval until ctx is done, and says so when that turns out another way than before.
func (f *registerFlags) watch(ctx context.Context, w io.Writer, c *discovery.Consul, r discovery.Registration) {
	ill, deaf := false, false
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := f.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if (err != nil) != ill {
			if ill = err != nil; ill {
				complain(w, err)
			} else {
				complain(w, fmt.Errorf("%s works again", f.url))
			}
		}
		cerr := f.report(ctx, c, r, err)
		if (cerr != nil) != deaf && ctx.Err() == nil {
			if deaf = cerr != nil; deaf {
				complain(w, cerr)
			} else {
				complain(w, errors.New("the Consul agent answers again"))
			}
		}
	}
}

// report tells Consul how a test went. A Consul agent that has lost the registration gets it again.
func (f *registerFlags) report(ctx context.Context, c *discovery.Consul, r discovery.Registration, failed error) error {
	say := func(ctx context.Context) error { return c.Pass(ctx, r.ID, "written and read back") }
	if failed != nil {
		say = func(ctx context.Context) error { return c.Fail(ctx, r.ID, failed.Error()) }
	}
	err := tell(ctx, say)
	if err == nil {
		return nil
	}
	if rerr := tell(ctx, func(ctx context.Context) error { return c.Register(ctx, r) }); rerr != nil {
		return errors.Join(err, rerr)
	}
	return tell(ctx, say)
}

func storeDeregisterCommand(l *line) *cobra.Command {
	var (
		f         consulFlags
		url, name string
	)
	c := &cobra.Command{
		Use:     "deregister",
		Short:   "Take the registration of a store back; the store itself is not touched",
		Example: "  checkpointer store deregister --url s3://bucket/checkpoints --consul http://127.0.0.1:8500",
		Args:    l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (url == "") == (name == "") {
				l.fault("give exactly one of --url URL and --name ID")
			}
			f.needed(l)
			if err := l.err(); err != nil {
				return err
			}
			c, err := discovery.New(f.config())
			if err != nil {
				return err
			}
			id := name
			if id == "" {
				id = discovery.InstanceID(url)
			}
			if err := tell(cmd.Context(), func(ctx context.Context) error { return c.Deregister(ctx, id) }); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Deregistered %s\n", id)
			return err
		},
	}
	f.add(c)
	c.Flags().StringVar(&url, "url", "", "URL that the store was registered with")
	c.Flags().StringVar(&name, "name", "", "ID that it was registered with")
	return c
}

// foundStore is one element of what `store list --json` prints.
type foundStore struct {
	URL          string `json:"url"`
	Priority     int    `json:"priority"`
	Region       string `json:"region"`
	Datacenter   string `json:"datacenter"`
	Node         string `json:"node"`
	SingleWriter bool   `json:"single_writer"`
}

func storeListCommand(l *line) *cobra.Command {
	var (
		f      consulFlags
		asJSON bool
	)
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the healthy stores, in the order in which they are tried",
		Example: "  checkpointer store list --consul http://127.0.0.1:8500",
		Args:    l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.needed(l)
			if err := l.err(); err != nil {
				return err
			}
			stores, err := f.find(cmd.Context())
			if err != nil {
				return err
			}
			out := make([]foundStore, len(stores))
			for i, s := range stores {
				out[i] = foundStore{s.URL, s.Priority, s.Region, s.Datacenter, s.Node, s.SingleWriter}
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), out)
			}
			return table(cmd.OutOrStdout(), func(w io.Writer) {
				fmt.Fprintln(w, "URL\tPRIORITY\tREGION\tDATACENTER\tNODE\tWRITERS")
				for _, s := range out {
					writers := "many"
					if s.SingleWriter {
						writers = "one"
					}
					fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", s.URL, s.Priority, s.Region, s.Datacenter, s.Node, writers)
				}
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}
