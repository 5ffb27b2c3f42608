package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// NomadNode is what Nomad knows of one node.
type NomadNode struct {
	ID         string
	Up         bool // its heartbeats arrive
	Eligible   bool
	Draining   bool // drained by this pool, not by an operator
	DrainSince time.Time
	Work       int // allocations that have not ended; counted only while this pool drains it
}

// drainMeta is the key under which a drain carries the name of the pool that ordered it, so that it is known as the
// pool's own after a restart, and an operator's drain is not taken for one.
const drainMeta = "spotter_pool"

// nomadTimeout bounds one request to Nomad.
const nomadTimeout = 10 * time.Second

// nomadNodes reaches the nodes of one pool through Nomad's API.
type nomadNodes struct {
	client *nomad.Client
	pool   string
}

func newNomadNodes(cfg *nomad.Config, pool string) (*nomadNodes, error) {
	client, err := nomad.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("open Nomad: %w", err)
	}
	return &nomadNodes{client: client, pool: pool}, nil
}

// list returns all nodes by name.
func (n *nomadNodes) list(ctx context.Context) (map[string]NomadNode, error) {
	ctx, cancel := context.WithTimeout(ctx, nomadTimeout)
	defer cancel()
	stubs, _, err := n.client.Nodes().List((&nomad.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("list Nomad nodes: %w", err)
	}
	nodes := make(map[string]NomadNode, len(stubs))
	for _, s := range stubs {
		node := NomadNode{ID: s.ID, Up: s.Status == nomad.NodeStatusReady, Eligible: s.SchedulingEligibility == nomad.NodeSchedulingEligible && !s.Drain}
		if d := s.LastDrain; !node.Eligible && d != nil && d.Meta[drainMeta] == n.pool && d.Status != nomad.DrainStatusCanceled {
			node.Draining, node.DrainSince = true, d.StartedAt
			if node.Work, err = n.work(ctx, s.ID); err != nil {
				return nil, err
			}
		}
		if known, twice := nodes[s.Name]; twice && known.Up && !node.Up {
			continue // a node that came back under a new ID; the old one is down
		}
		nodes[s.Name] = node
	}
	return nodes, nil
}

// work counts the allocations of a node that have not ended.
func (n *nomadNodes) work(ctx context.Context, nodeID string) (int, error) {
	allocs, _, err := n.client.Nodes().Allocations(nodeID, (&nomad.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return 0, fmt.Errorf("list allocations of node %s: %w", nodeID, err)
	}
	count := 0
	for _, a := range allocs {
		if !a.ClientTerminalStatus() {
			count++
		}
	}
	return count, nil
}

// drain makes a node ineligible and has its work moved. The drain has no deadline of its own: at one, Nomad stops batch
// allocations without replacing them.
func (n *nomadNodes) drain(ctx context.Context, nodeID, reason string) error {
	return n.update(ctx, nodeID, &nomad.DrainOptions{
		DrainSpec: &nomad.DrainSpec{},
		Meta:      map[string]string{drainMeta: n.pool, "message": reason},
	})
}

// undrain cancels a drain and makes the node eligible again.
func (n *nomadNodes) undrain(ctx context.Context, nodeID string) error {
	return n.update(ctx, nodeID, &nomad.DrainOptions{MarkEligible: true})
}

func (n *nomadNodes) update(ctx context.Context, nodeID string, options *nomad.DrainOptions) error {
	ctx, cancel := context.WithTimeout(ctx, nomadTimeout)
	defer cancel()
	_, err := n.client.Nodes().UpdateDrainOpts(nodeID, options, (&nomad.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("update drain of node %s: %w", nodeID, err)
	}
	return nil
}

// stopWork stops what is left on a node, one allocation at a time: other than a drain's deadline, that has Nomad place
// replacements for batch allocations too.
func (n *nomadNodes) stopWork(ctx context.Context, nodeID string) error {
	ctx, cancel := context.WithTimeout(ctx, nomadTimeout)
	defer cancel()
	allocs, _, err := n.client.Nodes().Allocations(nodeID, (&nomad.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("list allocations of node %s: %w", nodeID, err)
	}
	var faults []error
	for _, a := range allocs {
		if a.ClientTerminalStatus() || a.DesiredStatus == nomad.AllocDesiredStatusStop {
			continue
		}
		if _, err := n.client.Allocations().Stop(a, (&nomad.QueryOptions{Params: map[string]string{"reschedule": "true"}}).WithContext(ctx)); err != nil {
			faults = append(faults, fmt.Errorf("stop allocation %s: %w", a.ID, err))
		}
	}
	return errors.Join(faults...)
}

// purge makes Nomad forget a node that is gone for good.
func (n *nomadNodes) purge(ctx context.Context, nodeID string) error {
	ctx, cancel := context.WithTimeout(ctx, nomadTimeout)
	defer cancel()
	if _, _, err := n.client.Nodes().Purge(nodeID, (&nomad.QueryOptions{}).WithContext(ctx)); err != nil {
		return fmt.Errorf("purge node %s: %w", nodeID, err)
	}
	return nil
}
