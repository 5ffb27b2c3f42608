package notice

import "context"

// None is the source of a machine that nobody takes away with a notice.
type None struct{}

var _ Source = None{}

// Name implements Source.
func (None) Name() string { return "none" }

// Watch implements Source; it says that it is off and waits for ctx.
func (n None) Watch(ctx context.Context, emit func(Event)) {
	emit(Event{Kind: KindHealth, Source: n.Name(), Health: n.Health()})
	<-ctx.Done()
}

// Health implements Source.
func (None) Health() Health { return Health{Off: true} }
