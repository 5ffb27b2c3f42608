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

// weak is the on-demand offering, whose node has a Nomad token that may change nothing. Stories that do not ask for it
// get spot nodes.
const weak = "on-demand"

// poolNodes is the desired count of the pool that the stories share.
const poolNodes = 7

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
		Bin: b, OnDemandBase: 1, Nodes: poolNodes, Notice: 2 * time.Minute, TimeScale: 1, Margin: 5 * time.Second,
		Backoff: time.Second, // the stories take more back in minutes than a market in a week
		ACL:     true, WeakOffering: weak,
		// A client that is started again, on two busy cores, must not be taken for lost.
		HeartbeatGrace: 6 * time.Second,
		Offerings: []cluster.Offering{
			{Name: weak, Region: "east", Zone: "east-1a", Kind: cluster.OnDemand, PriceUSDPerHour: 3},
			{Name: "spot-west", Region: "west", Zone: "west-1a", Kind: cluster.Spot, PriceUSDPerHour: 0.8},
			{Name: "spot-east", Region: "east", Zone: "east-1a", Kind: cluster.Spot, PriceUSDPerHour: 0.8},
			{Name: "spot-north", Region: "north", Zone: "north-1a", Kind: cluster.Spot, PriceUSDPerHour: 0.8},
		},
		Progress: func(s string) { fmt.Println(s) },
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
