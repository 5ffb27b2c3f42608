package cli

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/simulate"
)

//go:embed report.html
var reportHTML string

var reportPage = template.Must(template.New("report").Parse(reportHTML))

// page is what the template of the report shows.
type page struct {
	Policy string
	Facts  []fact
	Parts  []legend
	Places []legend
	Prices string // the range of the scale of Market
	Market template.HTML
	Where  template.HTML
	Money  template.HTML
	Work   template.HTML
	Note   string
	Rows   []usedOffering
}

type fact struct{ Name, Value, Detail string }

type legend struct {
	Class string
	Name  string
	Value string
}

// Rows of the report's plots: what is more would not be legible.
const (
	maxRows  = 60
	maxLines = 24
)

// writeReport writes a page with plots of a simulation.
func writeReport(path string, s *scene, o *outcome) error {
	lanes, err := s.lanes(max(o.longest(), time.Hour))
	if err != nil {
		return err
	}
	return writeWhole("--report", path, func(w io.Writer) error { return reportPage.Execute(w, newPage(s, o, lanes)) })
}

func newPage(s *scene, o *outcome, lanes []lane) page {
	length := max(o.longest(), time.Hour)
	x := axis{length: length}
	money := func(v float64) string { return cost.Money(v, o.Cost.Currency) }
	p := page{
		Policy: o.Policy,
		Facts: []fact{
			{"cost", money(o.Cost.Total()), fmt.Sprintf("%.1f %% of on-demand, %s", 100*(1-o.Cost.SavedShare()), money(o.Cost.OnDemand))},
			{"jobs", fmt.Sprint(o.Jobs), fmt.Sprintf("%d finished, %d late", o.Finished, o.Late)},
			{"makespan", minutes(o.MakespanHours), fmt.Sprintf("on a market of %s", minutes(o.MarketHours))},
			{"interruptions", fmt.Sprint(o.Interruptions), fmt.Sprintf("%d launches, %d moves", o.Launches, o.Moves)},
			{"work lost", minutes(o.LostHours), fmt.Sprintf("%s waited", minutes(o.WaitedHours))},
		},
		Rows:   o.Offerings,
		Market: x.market(s, lanes),
	}
	if low, high := priceRange(lanes); low < high {
		p.Prices = fmt.Sprintf("from %.4g to %.4g $/h", low, high)
	} else {
		p.Prices = fmt.Sprintf("always %.4g $/h", high)
	}
	for i, c := range costParts(o.Cost) {
		p.Parts = append(p.Parts, legend{fmt.Sprintf("part%d", i), c.name, money(c.cost)})
	}
	places := placesOf(s)
	for _, r := range places.names {
		p.Places = append(p.Places, legend{Class: places.class[r], Name: r})
	}
	rows := groupStays(o.stays)
	p.Where = x.where(s, places, rows[:min(len(rows), maxRows)])
	p.Money = x.money(o)
	p.Work = x.work(o, rows[:min(len(rows), maxLines)])
	var notes []string
	if len(rows) > maxRows {
		notes = append(notes, fmt.Sprintf("What ran where shows the first %d of %d replicas, progress the first %d.", maxRows, len(rows), maxLines))
	}
	if len(o.stays) == maxStays {
		notes = append(notes, fmt.Sprintf("Only the first %d stays are drawn; the figures above count all.", maxStays))
	}
	if o.MakespanHours > o.MarketHours {
		notes = append(notes, "The jobs outlast the recordings, which stand still after their ends.")
	}
	p.Note = strings.Join(notes, " ")
	return p
}

// minutes prints a number of hours as a duration, to the minute.
func minutes(h float64) string { return hours(math.Round(h*60) / 60) }

// lane is the market of one spot offering, as coarse as it is drawn.
type lane struct {
	offering int
	up       []span
	price    []pricePoint
}

type span struct{ from, to time.Duration }

type pricePoint struct {
	at    time.Duration
	price float64
}

// lanes plays the market up to a time.
func (s *scene) lanes(length time.Duration) (list []lane, err error) {
	feed, files, err := s.play()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	list = make([]lane, 0, len(s.offers))
	for i, o := range s.offers {
		if o.Kind == cost.Spot {
			list = append(list, lane{offering: i})
		}
	}
	up := make([]bool, len(list))
	since := make([]time.Duration, len(list))
	pixel := length / plotWidth
	end := func(i int, at time.Duration) {
		l := &list[i]
		if n := len(l.up); n > 0 && since[i]-l.up[n-1].to < pixel/2 {
			l.up[n-1].to = at
			return
		}
		l.up = append(l.up, span{since[i], at})
	}
	for {
		c, err := feed.Next()
		if errors.Is(err, io.EOF) || err == nil && c.At >= length {
			break
		}
		if err != nil {
			return nil, err
		}
		i := c.Offering
		if up[i] && !c.Up {
			end(i, c.At)
		}
		if c.Up && !up[i] {
			since[i] = c.At
		}
		up[i] = c.Up
		if l := &list[i]; c.Price >= 0 && (len(l.price) == 0 || c.Price != l.price[len(l.price)-1].price) {
			if n := len(l.price); n > 1 && c.At-l.price[n-1].at < pixel/2 {
				l.price = l.price[:n-1]
			}
			l.price = append(l.price, pricePoint{c.At, c.Price})
		}
	}
	for i := range list {
		if up[i] {
			end(i, length)
		}
	}
	return list, nil
}

// row is what became of one replica.
type row struct {
	label string
	stays []simulate.Stay
}

// groupStays sorts stays to their replicas, in the order of their jobs.
func groupStays(stays []simulate.Stay) []row {
	type key struct{ id, replica int }
	index := map[key]int{}
	var rows []row
	for _, s := range stays {
		k := key{s.ID, s.Replica}
		i, ok := index[k]
		if !ok {
			i = len(rows)
			index[k] = i
			rows = append(rows, row{label: jobLabel(s.Job, s.ID, s.Replica)})
		}
		rows[i].stays = append(rows[i].stays, s)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		x, y := a.stays[0], b.stays[0]
		if x.ID != y.ID {
			return x.ID - y.ID
		}
		return x.Replica - y.Replica
	})
	return rows
}

// places are the regions of spot, and the other kinds, each with a colour.
type places struct {
	names []string
	class map[string]string
	of    []string // by offering
}

// colours is how many the page has for regions.
const colours = 6

func placesOf(s *scene) places {
	p := places{class: map[string]string{}}
	n := 0
	for _, o := range s.offers {
		name := o.Key.Region
		if o.Kind != cost.Spot {
			name = string(o.Kind)
		}
		p.of = append(p.of, name)
		if p.class[name] != "" {
			continue
		}
		p.names = append(p.names, name)
		if o.Kind == cost.Spot {
			p.class[name] = fmt.Sprintf("region%d", n%colours)
			n++
		} else {
			p.class[name] = strings.ReplaceAll(name, "-", "")
		}
	}
	return p
}
