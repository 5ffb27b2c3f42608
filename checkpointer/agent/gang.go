package agent

import (
	"cmp"
	"context"
	"errors"

	"nomad-spotter/checkpointer/epoch"
	"nomad-spotter/checkpointer/repository"
)

// resume returns the writer of an epoch that was claimed before.
func (a *Agent) resume(repo *repository.Repository, lineage string, epoch uint64) *repository.Writer {
	w := repo.Resume(lineage, epoch)
	w.Options, w.Rank, w.Ranks = a.options(), a.conf.Rank, a.conf.Ranks
	return w
}

// enter makes sure of an epoch: the one that was claimed for all ranks, or the next one. single tells that whoever
// registered the store vouches for one writer per lineage.
func (a *Agent) enter(ctx context.Context, repo *repository.Repository, single bool) (*repository.Writer, error) {
	if a.conf.Epoch > 0 {
		w := a.resume(repo, a.conf.Lineage, a.conf.Epoch)
		return w, w.Current(ctx)
	}
	claim := repository.Claim{Writer: a.conf.Writer, Now: a.now(), Fork: a.conf.Fork, SingleWriter: a.conf.SingleWriter || single}
	if a.conf.Consul != nil {
		claim.Authority = func(ctx context.Context) (repository.Authority, error) { return epoch.NewConsul(ctx, *a.conf.Consul) }
	}
	w, err := repo.ClaimWith(ctx, a.conf.Lineage, claim)
	if err == nil {
		w.Options = a.options()
	}
	return w, err
}

// line is the name under which the lineage is written in a store. The caller holds mu.
func (a *Agent) line(url string) string { return cmp.Or(a.state.Lines[url], a.conf.Lineage) }

// given tells whether a store is the one in which the epoch of all ranks was claimed; without such an epoch every one is.
func (a *Agent) given(ctx context.Context, repo *repository.Repository) error {
	if a.conf.Epoch == 0 {
		return nil
	}
	err := a.resume(repo, a.conf.Lineage, a.conf.Epoch).Current(ctx)
	if errors.Is(err, repository.ErrSuperseded) {
		return nil
	}
	return err
}

// lasting tells whether a restore fails for a reason that does not pass by itself.
func lasting(err error) bool {
	var d *repository.DamageError
	for _, e := range []error{repository.ErrNoSnapshot, repository.ErrRanks, repository.ErrSuperseded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.As(err, &d)
}
