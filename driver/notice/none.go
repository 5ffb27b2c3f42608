package notice

import "context"

// None is the source of a machine that nobody takes away with a notice.
type None struct{}

var _ Source = None{}

// Name implements Source.
func (None) Name() string { return "none" }

// Watch implements Source; it waits for ctx.
func (None) Watch(ctx context.Context, _ func(Event)) { <-ctx.Done() }

// Health implements Source.
func (None) Health() Health { return Health{Detail: "no notice source is configured"} }
