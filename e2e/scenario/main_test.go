//go:build e2e

package scenario

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"nomad-spotter/e2e/cluster"
	"nomad-spotter/e2e/engines"
)

// shared is the cluster of all stories.
var shared *cluster.Cluster

// lane is a pair of spot offerings in two regions with a node each. A story's jobs may run on these nodes only.
type lane struct{ home, away string }

// general are the lanes that any story may take; weak is the one whose home node has a Nomad token that may change
// nothing.
var (
	general = []lane{{"one-west", "one-east"}, {"two-west", "two-east"}, {"three-west", "three-east"}}
	weak    = lane{"weak-west", "weak-east"}
	free    = make(chan lane, len(general))
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "scenario: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	bin := os.Getenv("SPOTTER_BIN")
	if bin == "" {
		root, err := engines.Root()
		if err != nil {
			return 1, err
		}
		bin = filepath.Join(root, "bin")
	}
	b, err := cluster.FindBinaries(ctx, bin)
	if err != nil {
		return 1, err
	}
	cfg := cluster.Config{
		Bin: b, OnDemandBase: 1, Nodes: 1, Notice: 2 * time.Minute, TimeScale: 1, Margin: 5 * time.Second,
		ACL: true, WeakOffering: weak.home,
		// A client that is started again, on two busy cores, must not be taken for lost.
		HeartbeatGrace: 6 * time.Second,
		Offerings:      []cluster.Offering{{Name: "on-demand", Region: "east", Zone: "east-1a", Kind: cluster.OnDemand, PriceUSDPerHour: 3}},
		Progress:       func(s string) { fmt.Println(s) },
	}
	for _, l := range append([]lane{weak}, general...) {
		cfg.Offerings = append(cfg.Offerings,
			cluster.Offering{Name: l.home, Region: "west", Zone: "west-1a", Kind: cluster.Spot, PriceUSDPerHour: 0.8},
			cluster.Offering{Name: l.away, Region: "east", Zone: "east-1a", Kind: cluster.Spot, PriceUSDPerHour: 0.8})
		cfg.Nodes += 2
	}
	for _, l := range general {
		free <- l
	}
	if shared, err = cluster.Start(ctx, cfg); err != nil {
		return 1, err
	}
	// Whatever ends the run, a panic or Ctrl-C included, the cluster is stopped, and once.
	var once sync.Once
	end := func(keep bool) (err error) {
		once.Do(func() { err = stop(ctx, keep) })
		return err
	}
	defer func() { _ = end(true) }() // only a panic finds it not done
	interrupted := context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "scenario: interrupted, stopping the cluster")
		_ = end(false) // prints what is wrong
		os.Exit(1)
	})
	code := m.Run()
	interrupted()
	return code, end(code != 0)
}

func stop(ctx context.Context, keep bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cluster.StopLimit)
	defer cancel()
	err := shared.Stop(ctx, keep)
	if keep || err != nil {
		fmt.Fprintf(os.Stderr, "scenario: logs are kept in %s\n", shared.Dir)
	}
	return err
}
