package pool

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// actTimeout bounds one action.
const actTimeout = 2 * time.Minute

// act carries out the actions of one tick: launches first and together, since each may take a while, then the rest in
// order. A failed launch is held against its offering; the next tick decides anew.
func (l *Loop) act(ctx context.Context, m *memory, nv nomadView, actions []Action) error {
	var wg sync.WaitGroup
	failed := make([]error, len(actions))
	for i, a := range actions {
		if a.Verb != Launch {
			continue
		}
		wg.Go(func() {
			defer func() { // a fault of a provider must not end the plugin, which nobody would start again
				if r := recover(); r != nil {
					failed[i] = fmt.Errorf("launch %s: panic: %v\n%s", a.Offering, r, debug.Stack())
				}
			}()
			failed[i] = l.launch(ctx, a)
		})
	}
	wg.Wait()
	var faults []error
	for i, a := range actions {
		err := failed[i]
		switch {
		case a.Verb == Launch && err != nil && ctx.Err() == nil:
			m.fail(l.pool.Config, a.Offering, l.now())
			if errors.Is(err, cloud.ErrUnavailable) {
				l.log.Warn("offering has no capacity", "offering", a.Offering, "error", err, "retry_at", m.retryAt(l.pool.Config, a.Offering))
				err = nil // not a fault of the pool: another offering is next
				if o, ok := findOffering(l.pool.Config, a.Offering); ok {
					err = m.hazards.refused(o, l.now())
				}
			}
		case a.Verb != Launch:
			err = l.change(ctx, m, nv, a)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func (l *Loop) launch(ctx context.Context, a Action) error {
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	id, err := newID(a.Offering)
	if err != nil {
		return err
	}
	l.log.Info("launching", "offering", a.Offering, "instance", id, "reason", a.Reason)
	if _, err := l.pool.Providers[a.Provider].Launch(ctx, cloud.Launch{ID: id, Offering: a.Offering, MaxPriceUSDPerHour: a.Bid}); err != nil {
		return fmt.Errorf("launch %s: %w", a.Offering, err)
	}
	return nil
}

// newID makes the ID of an instance: the offering, for people, and 24 random bits, for uniqueness.
func newID(offering string) (string, error) {
	random := make([]byte, 3)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("make instance id: %w", err)
	}
	return offering + "-" + hex.EncodeToString(random), nil
}

// change carries out an action on a living instance.
func (l *Loop) change(ctx context.Context, m *memory, nv nomadView, a Action) error {
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	l.log.Info("changing instance", "action", string(a.Verb), "instance", a.Instance, "reason", a.Reason)
	node := nv.nodes[a.Instance].ID
	switch a.Verb {
	case Drain:
		return l.nodes.drain(ctx, node, a.Reason)
	case Undrain:
		return l.nodes.undrain(ctx, node)
	case StopWork:
		return l.nodes.stopWork(ctx, node)
	case GiveUp:
		m.fail(l.pool.Config, a.Offering, l.now())
		return l.terminate(ctx, a)
	case Terminate:
		return l.terminate(ctx, a)
	default:
		return fmt.Errorf("unknown action %q", a.Verb)
	}
}

func (l *Loop) terminate(ctx context.Context, a Action) error {
	provider := l.pool.Providers[a.Provider]
	if provider == nil {
		return fmt.Errorf("terminate %s: provider %q is not in the pool file any more; add it again, or end the instance by hand", a.Instance, a.Provider)
	}
	err := provider.Terminate(ctx, a.Instance, a.Reason)
	if errors.Is(err, cloud.ErrNotFound) {
		return nil
	}
	return err
}

// purge makes Nomad forget nodes whose instances are gone, once it has seen that they are down. A failure is only logged:
// Nomad collects such nodes by itself after a day.
func (l *Loop) purge(ctx context.Context, instances []cloud.Instance, nv nomadView) {
	for _, i := range instances {
		node, ok := nv.nodes[i.ID]
		if i.State != cloud.Gone || !ok || node.Up {
			continue
		}
		if err := l.nodes.purge(ctx, node.ID); err != nil {
			l.log.Debug("node of a gone instance not purged", "instance", i.ID, "error", err)
			continue
		}
		l.log.Info("purged node of a gone instance", "instance", i.ID)
	}
}
