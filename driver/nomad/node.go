package nomad

import (
	"context"
	"errors"
	"net/http"

	"github.com/hashicorp/nomad/api"
)

// Node carries out and watches what concerns one node.
type Node struct {
	c  *Client
	id string
}

// ID is the node's ID.
func (n *Node) ID() string { return n.id }

// MarkIneligible keeps new allocations away from the node. took is false when it was ineligible already.
func (n *Node) MarkIneligible(ctx context.Context) (took bool, err error) {
	node, _, err := n.info(ctx, nodeRight("read the node's eligibility", "write"), 0)
	if err != nil {
		return false, err
	}
	if node.SchedulingEligibility == api.NodeSchedulingIneligible {
		return false, nil
	}
	return true, n.toggle(ctx, "mark the node ineligible", false)
}

// MarkEligible lets allocations come again. It fails while the node is being drained.
func (n *Node) MarkEligible(ctx context.Context) error {
	return n.toggle(ctx, "mark the node eligible", true)
}

func (n *Node) toggle(ctx context.Context, op string, eligible bool) error {
	return n.c.write(ctx, nodeRight(op, "write"), func(o *api.WriteOptions) error {
		_, err := n.c.api.Nodes().ToggleEligibility(n.id, eligible, o)
		return err
	})
}

// StopAlloc stops an allocation so that its replacement is placed at once. An allocation that is gone counts as
// stopped.
func (n *Node) StopAlloc(ctx context.Context, namespace, allocID string) error {
	need := namespaceRight("stop allocation "+allocID, namespace, "alloc-lifecycle")
	// Newer Nomad stops a batch allocation of a draining node without a replacement, unless told to reschedule it;
	// 1.6 ignores the parameter and always places one.
	opts := api.QueryOptions{Namespace: namespace, Params: map[string]string{"reschedule": "true"}}
	err := n.c.read(ctx, callTimeout, need, opts, func(o *api.QueryOptions) error {
		_, err := n.c.api.Allocations().Stop(&api.Allocation{ID: allocID}, o)
		return err
	})
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return nil
	}
	return err
}

// info reads the node; with index > 0 it blocks until the node is newer or waitTime is over.
func (n *Node) info(ctx context.Context, need right, index uint64) (*api.Node, uint64, error) {
	opts, timeout := api.QueryOptions{}, callTimeout
	if index > 0 {
		opts.WaitIndex, opts.WaitTime, timeout = index, waitTime, waitTime+waitGrace
	}
	var node *api.Node
	var at uint64
	err := n.c.read(ctx, timeout, need, opts, func(o *api.QueryOptions) error {
		got, meta, err := n.c.api.Nodes().Info(n.id, o)
		if err == nil {
			node, at = got, meta.LastIndex
		}
		return err
	})
	return node, at, err
}
