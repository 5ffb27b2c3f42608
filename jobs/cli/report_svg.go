package cli

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"time"

	"nomad-spotter/autoscaler-plugin/simulate"
)

// Sizes of plots, in units of their view boxes.
const (
	plotWidth  = 960
	plotLeft   = 150
	plotTotal  = plotLeft + plotWidth + 60
	laneHeight = 26
	laneGap    = 6
	rowHeight  = 12
	rowGap     = 3
	axisHeight = 28
	areaHeight = 260
)

// axis maps times to places on the page.
type axis struct{ length time.Duration }

func (a axis) x(t time.Duration) float64 {
	return plotLeft + plotWidth*float64(min(max(t, 0), a.length))/float64(a.length)
}

// drawing is an SVG in the making.
type drawing struct {
	axis
	b strings.Builder
}

func (a axis) draw(height float64, title string) *drawing {
	d := &drawing{axis: a}
	d.add(`<svg viewBox="0 0 %d %g" role="img" aria-label="%s">`, plotTotal, height, html.EscapeString(title))
	return d
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

func (d *drawing) text(x, y float64, class, s string) {
	d.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(s))
}

func (d *drawing) rect(class string, from, to time.Duration, y, height float64, title string) {
	x := d.x(from)
	d.add(`<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f">`, class, x, y, max(d.x(to)-x, 0.4), height)
	if title != "" {
		d.add(`<title>%s</title>`, html.EscapeString(title))
	}
	d.add(`</rect>`)
}

// end draws the time axis at a height and returns the SVG.
func (d *drawing) end(y float64) template.HTML {
	step := tickStep(d.length)
	for t := time.Duration(0); t <= d.length; t += step {
		d.add(`<line class="grid" x1="%.1f" x2="%.1f" y1="0" y2="%.1f"/>`, d.x(t), d.x(t), y)
		d.text(d.x(t), y+16, "tick", tickLabel(t, step))
	}
	d.add(`</svg>`)
	return template.HTML(d.b.String()) // every text in it went through html.EscapeString
}

// tickStep is a distance of ticks such that there are at most ten.
func tickStep(length time.Duration) time.Duration {
	for _, h := range []float64{1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720, 1440, 2880, 8760} {
		if step := time.Duration(h * float64(time.Hour)); length/step <= 10 {
			return step
		}
	}
	return length / 10
}

func tickLabel(t, step time.Duration) string {
	if step >= 24*time.Hour {
		return fmt.Sprintf("%.0f d", t.Hours()/24)
	}
	return fmt.Sprintf("%.0f h", t.Hours())
}

// priceRange is the lowest and the highest price of all lanes.
func priceRange(lanes []lane) (low, high float64) {
	low = math.Inf(1)
	for _, l := range lanes {
		for _, p := range l.price {
			low, high = min(low, p.price), max(high, p.price)
		}
	}
	return low, high
}

// market draws a lane for each spot offering: when it was up, and its price.
func (a axis) market(s *scene, lanes []lane) template.HTML {
	height := float64(len(lanes) * (laneHeight + laneGap))
	d := a.draw(height+axisHeight, "Price and availability of the spot offerings")
	low, high := priceRange(lanes)
	for i, l := range lanes {
		y := float64(i * (laneHeight + laneGap))
		name := s.offers[l.offering].Name
		d.text(plotLeft-8, y+laneHeight*0.65, "label", name)
		d.rect("lane", 0, a.length, y, laneHeight, "")
		up := time.Duration(0)
		for _, u := range l.up {
			d.rect("up", u.from, u.to, y, laneHeight, fmt.Sprintf("%s up from %s to %s", name, hours(u.from.Hours()), hours(u.to.Hours())))
			up += u.to - u.from
		}
		d.text(plotLeft+plotWidth+8, y+laneHeight*0.65, "value", fmt.Sprintf("%.0f %%", 100*float64(up)/float64(a.length)))
		if len(l.price) == 0 {
			continue
		}
		at := func(price float64) float64 {
			if high-low < 1e-9 {
				return y + laneHeight/2
			}
			return y + laneHeight - 3 - (laneHeight-6)*(price-low)/(high-low)
		}
		var path strings.Builder
		for n, p := range l.price {
			if n == 0 {
				fmt.Fprintf(&path, "M%.1f %.1f", d.x(0), at(p.price))
			} else {
				fmt.Fprintf(&path, "H%.1fV%.1f", d.x(p.at), at(p.price))
			}
		}
		fmt.Fprintf(&path, "H%.1f", d.x(a.length))
		last := l.price[len(l.price)-1].price
		d.add(`<path class="price" d="%s"><title>%s</title></path>`, path.String(),
			html.EscapeString(fmt.Sprintf("%s: %.4g $/h at first, %.4g at last; all lanes from %.4g to %.4g", name, l.price[0].price, last, low, high)))
	}
	return d.end(height)
}

// where draws what ran where: a row for each replica, coloured by place, with a mark where it was interrupted.
func (a axis) where(s *scene, p places, rows []row) template.HTML {
	height := float64(len(rows) * (rowHeight + rowGap))
	d := a.draw(height+axisHeight, "What ran where")
	for i, r := range rows {
		y := float64(i * (rowHeight + rowGap))
		d.text(plotLeft-8, y+rowHeight*0.85, "label small", r.label)
		for _, st := range r.stays {
			if st.Offering == simulate.Nowhere {
				d.rect("waits", st.From, st.To, y+rowHeight/2-1, 2, fmt.Sprintf("waits from %s to %s: %s",
					hours(st.From.Hours()), hours(st.To.Hours()), st.Reason))
				continue
			}
			o := s.offers[st.Offering]
			d.rect(p.class[p.of[st.Offering]], st.From, st.To, y, rowHeight, fmt.Sprintf("%s from %s to %s, %s, %.2f $: %s",
				o.Name, hours(st.From.Hours()), hours(st.To.Hours()), st.End, st.Cost, st.Reason))
			if st.End == simulate.Interrupted {
				d.rect("cut", st.To, st.To+a.length/plotWidth, y-1, rowHeight+2, "")
			}
		}
	}
	return d.end(height)
}

// bins is how many steps areas are drawn in.
const bins = 320

// money draws the cost up to each time, stacked by component.
func (a axis) money(o *outcome) template.HTML {
	var sums [5][bins + 1]float64
	spread := func(part int, from, to time.Duration, amount float64) {
		if amount == 0 {
			return
		}
		at := func(t time.Duration) float64 { return bins * float64(min(max(t, 0), a.length)) / float64(a.length) }
		x, y := at(from), max(at(to), at(from)+1e-9)
		for b := int(x); b < bins && float64(b) < y; b++ {
			sums[part][b+1] += amount * (min(y, float64(b+1)) - max(x, float64(b))) / (y - x)
		}
		if x >= bins {
			sums[part][bins] += amount
		}
	}
	for _, s := range o.stays {
		spread(0, s.From, s.To, s.Training)
		spread(1, s.From, s.To, s.Stalls)
		spread(2, s.From, s.To, s.Recovery)
	}
	for _, e := range o.ended {
		c := o.prices.Of(e.Usage)
		spread(3, e.Arrive, e.At, c.Storage)
		spread(4, e.Arrive, e.At, c.Transfer)
	}
	total := 0.0
	for part := range sums {
		for b := 1; b <= bins; b++ {
			sums[part][b] += sums[part][b-1]
		}
		total += sums[part][bins]
	}
	d := a.draw(areaHeight+axisHeight, "Cost up to each time, by component")
	top := max(total*1.04, 1e-9)
	y := func(v float64) float64 { return areaHeight * (1 - v/top) }
	var base [bins + 1]float64
	for part := range sums {
		var path strings.Builder
		for b := 0; b <= bins; b++ {
			fmt.Fprintf(&path, "%c%.1f %.2f", "ML"[min(b, 1)], plotLeft+plotWidth*float64(b)/bins, y(base[b]+sums[part][b]))
		}
		for b := bins; b >= 0; b-- {
			fmt.Fprintf(&path, "L%.1f %.2f", plotLeft+plotWidth*float64(b)/bins, y(base[b]))
			base[b] += sums[part][b]
		}
		c := costParts(o.Cost)[part]
		d.add(`<path class="part%d" d="%sZ"><title>%s</title></path>`, part, path.String(),
			html.EscapeString(fmt.Sprintf("%s: %.2f $", c.name, c.cost)))
	}
	for _, v := range valueTicks(top) {
		d.add(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, plotLeft, plotLeft+plotWidth, y(v), y(v))
		d.text(plotLeft-8, y(v)+4, "label", fmt.Sprintf("%g $", v))
	}
	return d.end(areaHeight)
}

// valueTicks are round values up to a maximum.
func valueTicks(top float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(top)))
	for top/step < 4 {
		step /= 2
	}
	var ticks []float64
	for v := 0.0; v <= top; v += step {
		ticks = append(ticks, v)
	}
	return ticks
}

// work draws how much of each job is done, from its arrival to its deadline.
func (a axis) work(o *outcome, rows []row) template.HTML {
	d := a.draw(areaHeight+axisHeight, "Progress against the deadline")
	y := func(done float64) float64 { return areaHeight - (areaHeight-10)*done }
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
		d.add(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, plotLeft, plotLeft+plotWidth, y(v), y(v))
		d.text(plotLeft-8, y(v)+4, "label", fmt.Sprintf("%.0f %%", 100*v))
	}
	late := map[int]bool{}
	for _, e := range o.ended {
		late[e.ID] = e.Late
	}
	for i, r := range rows {
		first := r.stays[0]
		whole := float64(max(first.Work, 1))
		class := fmt.Sprintf("line region%dline", i%colours)
		if late[first.ID] {
			class = "line late"
		}
		var path strings.Builder
		fmt.Fprintf(&path, "M%.1f %.1f", d.x(first.From), y(0))
		for _, s := range r.stays {
			done := 1 - float64(s.Work)/whole
			peak := 1 - float64(s.Left-s.Lost)/whole
			fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1f", d.x(s.Working), y(done), d.x(s.To), y(min(max(peak, done), 1)))
			if s.Lost > 0 {
				fmt.Fprintf(&path, "L%.1f %.1f", d.x(s.To), y(1-float64(s.Left)/whole))
			}
		}
		d.add(`<path class="%s" d="%s"><title>%s</title></path>`, class, path.String(), html.EscapeString(r.label))
	}
	for _, e := range o.ended {
		if e.Deadline == 0 || e.ID >= maxLines || e.Arrive+e.Deadline > a.length {
			continue
		}
		x := d.x(e.Arrive + e.Deadline)
		d.add(`<path class="deadline" d="M%.1f %.1fl-4 -8h8z"><title>%s</title></path>`, x, y(1),
			html.EscapeString(fmt.Sprintf("deadline of %s, %s", jobLabel(e.Name, e.ID, 0), hours((e.Arrive+e.Deadline).Hours()))))
	}
	return d.end(areaHeight)
}
