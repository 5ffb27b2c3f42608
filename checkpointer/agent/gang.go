package agent

import (
	"context"
	"errors"

	"nomad-spotter/checkpointer/repository"
)

// resume returns the writer of an epoch that was claimed before.
func (a *Agent) resume(repo *repository.Repository, epoch uint64) *repository.Writer {
	w := repo.Resume(a.conf.Lineage, epoch)
	w.Options, w.Rank, w.Ranks = a.options(), a.conf.Rank, a.conf.Ranks
	return w
}

// enter makes sure of an epoch: the one that was claimed for all ranks, or the next one.
func (a *Agent) enter(ctx context.Context, repo *repository.Repository) (*repository.Writer, error) {
	if a.conf.Epoch > 0 {
		w := a.resume(repo, a.conf.Epoch)
		return w, w.Current(ctx)
	}
	w, err := repo.Claim(ctx, a.conf.Lineage, a.conf.Writer, a.now())
	if err == nil {
		w.Options = a.options()
	}
	return w, err
}

// given tells whether a store is the one in which the epoch of all ranks was claimed; without such an epoch every one is.
func (a *Agent) given(ctx context.Context, repo *repository.Repository) error {
	if a.conf.Epoch == 0 {
		return nil
	}
	err := a.resume(repo, a.conf.Epoch).Current(ctx)
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
