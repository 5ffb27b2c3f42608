package simulate

import "time"

// forever is later than everything.
const forever = time.Duration(1<<63 - 1)

// agenda is a binary heap of runs by the time of their next event, ties by the order in which they began. Each run knows
// its place, so that a new time moves it and no event that is out of date is ever kept.
type agenda []*run

func before(a, b *run) bool { return a.next < b.next || a.next == b.next && a.serial < b.serial }

// first is the time of the next event.
func (h agenda) first() time.Duration {
	if len(h) == 0 {
		return forever
	}
	return h[0].next
}

// add adds a run.
func (h *agenda) add(r *run) {
	r.place = len(*h)
	*h = append(*h, r)
	h.up(r.place)
}

// remove takes a run out.
func (h *agenda) remove(r *run) {
	i, last := r.place, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		h.fix((*h)[i])
	}
}

// fix restores the order after a run's time has changed.
func (h agenda) fix(r *run) {
	if !h.down(r.place) {
		h.up(r.place)
	}
}

func (h agenda) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h agenda) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !before(h[i], h[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

// down reports whether the run moved.
func (h agenda) down(i int) bool {
	from := i
	for {
		least := 2*i + 1
		if least >= len(h) {
			break
		}
		if right := least + 1; right < len(h) && before(h[right], h[least]) {
			least = right
		}
		if !before(h[least], h[i]) {
			break
		}
		h.swap(i, least)
		i = least
	}
	return i > from
}
