package cli

import (
	"fmt"
	"io"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/simulate"
)

// outcome is a simulation's result as it is printed.
type outcome struct {
	Policy        string         `json:"policy"`
	Seed          uint64         `json:"seed"`
	MarketHours   float64        `json:"market_h"`
	Jobs          int            `json:"jobs"`
	Finished      int            `json:"finished"`
	Late          int            `json:"late"`
	MakespanHours float64        `json:"makespan_h"`
	Launches      int            `json:"launches"`
	Interruptions int            `json:"interruptions"`
	Moves         int            `json:"moves"`
	LostHours     float64        `json:"lost_work_h"`
	WaitedHours   float64        `json:"waited_h"`
	Cost          cost.Breakdown `json:"cost"`
	Usage         cost.Usage     `json:"usage"`
	Offerings     []usedOffering `json:"offerings"`
	JobList       []endedJob     `json:"job_list"`
	Decisions     []decision     `json:"decisions,omitempty"`

	prices cost.Prices
	stays  []simulate.Stay // for the report
	ended  []simulate.Ended
}

type usedOffering struct {
	Name          string    `json:"name"`
	Kind          cost.Kind `json:"kind"`
	Hours         float64   `json:"hours"`
	Cost          float64   `json:"cost"`
	Launches      int       `json:"launches"`
	Interruptions int       `json:"interruptions"`
}

type endedJob struct {
	Name          string  `json:"name"`
	ID            int     `json:"id"`
	ArriveHours   float64 `json:"arrive_h"`
	EndHours      float64 `json:"end_h"`
	Finished      bool    `json:"finished"`
	Late          bool    `json:"late"`
	Cost          float64 `json:"cost"`
	Interruptions int     `json:"interruptions"`
	LostHours     float64 `json:"lost_work_h"`
}

type decision struct {
	Job       string       `json:"job"`
	ID        int          `json:"id"`
	Replica   int          `json:"replica"`
	AtHours   float64      `json:"at_h"`
	Offering  string       `json:"offering"` // empty: wait
	Reason    string       `json:"reason"`
	Until     float64      `json:"until_h"`
	End       simulate.End `json:"end"`
	LostHours float64      `json:"lost_work_h,omitempty"`
}

// maxStays bounds what a report shows.
const maxStays = 20_000

// play runs one policy.
func (f *simulateFlags) play(s *scene, work workload, prices cost.Prices, name string, keep bool) (*outcome, error) {
	feed, files, err := s.play()
	if err != nil {
		return nil, err
	}
	defer files.Close()
	o := &outcome{Policy: name, Seed: f.seed, MarketHours: s.length.Hours(), prices: prices, JobList: []endedJob{}}
	jobs := slices.Clone(work.jobs)
	c := simulate.Config{Offerings: offerings(s.offers), Market: feed, Jobs: &jobs, Seed: f.seed}
	policy(name, prices)(&c)
	c.Done = func(e simulate.Ended) {
		o.JobList = append(o.JobList, endedJob{
			Name: e.Name, ID: e.ID, ArriveHours: e.Arrive.Hours(), EndHours: e.At.Hours(), Finished: e.Finished, Late: e.Late,
			Cost: prices.Of(e.Usage).Total(), Interruptions: e.Interruptions, LostHours: e.Lost.Hours(),
		})
		if keep {
			o.ended = append(o.ended, e)
		}
	}
	if f.decisions || keep {
		c.Record = func(stay simulate.Stay) {
			if keep && len(o.stays) < maxStays {
				o.stays = append(o.stays, stay)
			}
			if f.decisions {
				o.Decisions = append(o.Decisions, decide(stay, s))
			}
		}
	}
	r, err := simulate.Run(c)
	if err != nil {
		return nil, err
	}
	o.take(r, s)
	return o, nil
}

func decide(stay simulate.Stay, s *scene) decision {
	d := decision{
		Job: stay.Job, ID: stay.ID, Replica: stay.Replica, AtHours: stay.From.Hours(), Reason: stay.Reason,
		Until: stay.To.Hours(), End: stay.End, LostHours: stay.Lost.Hours(),
	}
	if stay.Offering != simulate.Nowhere {
		d.Offering = s.offers[stay.Offering].Name
	}
	return d
}

func (o *outcome) take(r simulate.Result, s *scene) {
	o.Jobs, o.Finished, o.Late, o.MakespanHours = r.Jobs, r.Finished, r.Late, r.Makespan.Hours()
	o.Launches, o.Interruptions, o.Moves = r.Launches, r.Interruptions, r.Moves
	o.LostHours, o.WaitedHours = r.Lost.Hours(), r.Waited.Hours()
	o.Usage, o.Cost = r.Usage, o.prices.Of(r.Usage)
	for i, u := range r.Offerings {
		o.Offerings = append(o.Offerings, usedOffering{
			Name: s.offers[i].Name, Kind: s.offers[i].Kind, Hours: u.Bought.Hours, Cost: u.Bought.Cost,
			Launches: u.Launches, Interruptions: u.Interruptions,
		})
	}
	slices.SortFunc(o.Decisions, func(a, b decision) int {
		if a.AtHours != b.AtHours {
			return int(min(max((a.AtHours-b.AtHours)*1e9, -1), 1))
		}
		return a.ID - b.ID
	})
}

func printOutcomes(w io.Writer, outcomes []*outcome, decisions bool) error {
	first := outcomes[0]
	if _, err := fmt.Fprintf(w, "%d jobs on a market of %s\n\n", first.Jobs, hours(first.MarketHours)); err != nil {
		return err
	}
	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "POLICY\tCOST\tOF ON-DEMAND\tLATE\tUNFINISHED\tMAKESPAN\tINTERRUPTIONS\tMOVES\tLOST WORK\tWAITED")
		for _, o := range outcomes {
			fmt.Fprintf(w, "%s\t%s\t%.1f %%\t%d\t%d\t%s\t%d\t%d\t%s\t%s\n", o.Policy, cost.Money(o.Cost.Total(), o.Cost.Currency),
				100*(1-o.Cost.SavedShare()), o.Late, o.Jobs-o.Finished, hours(o.MakespanHours), o.Interruptions, o.Moves,
				hours(o.LostHours), hours(o.WaitedHours))
		}
	})
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		if err := o.print(w, decisions); err != nil {
			return err
		}
	}
	return nil
}

func (o *outcome) print(w io.Writer, decisions bool) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", o.Policy); err != nil {
		return err
	}
	err := table(w, func(w io.Writer) {
		for _, c := range costParts(o.Cost) {
			fmt.Fprintf(w, "  %s\t%s\n", c.name, cost.Money(c.cost, o.Cost.Currency))
		}
		fmt.Fprintf(w, "  total\t%s\n", cost.Money(o.Cost.Total(), o.Cost.Currency))
		fmt.Fprintf(w, "  on demand\t%s\n", cost.Money(o.Cost.OnDemand, o.Cost.Currency))
	})
	if err != nil {
		return err
	}
	err = table(w, func(w io.Writer) {
		fmt.Fprintln(w, "  OFFERING\tKIND\tHOURS\tCOST\tLAUNCHES\tINTERRUPTIONS")
		for _, u := range o.Offerings {
			fmt.Fprintf(w, "  %s\t%s\t%.1f\t%s\t%d\t%d\n", u.Name, u.Kind, u.Hours, cost.Money(u.Cost, o.Cost.Currency), u.Launches, u.Interruptions)
		}
	})
	if err != nil || !decisions {
		return err
	}
	return table(w, func(w io.Writer) {
		fmt.Fprintln(w, "  AT\tJOB\tPLACE\tUNTIL\tENDED BY\tREASON")
		for _, d := range o.Decisions {
			at := d.Offering
			if at == "" {
				at = "waits"
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", hours(d.AtHours), jobLabel(d.Job, d.ID, d.Replica), at, hours(d.Until), d.End, d.Reason)
		}
	})
}

func jobLabel(name string, id, replica int) string {
	label := fmt.Sprintf("%s/%d", name, id)
	if replica > 0 {
		label += fmt.Sprintf(" replica %d", replica)
	}
	return label
}

// costPart is a part of a cost.
type costPart struct {
	name string
	cost float64
}

// costParts are the parts of a cost, in the order in which they are told.
func costParts(b cost.Breakdown) []costPart {
	return []costPart{
		{"training", b.Compute}, {"checkpoint stalls", b.Stall}, {"recovery", b.Recovery}, {"storage", b.Storage}, {"transfer", b.Transfer},
	}
}

// after is how many jobs were done after a time.
func (o *outcome) after(length time.Duration) int {
	n := 0
	for _, j := range o.JobList {
		if j.Finished && j.EndHours > length.Hours() {
			n++
		}
	}
	return n
}

// longest is the end of what a simulation shows.
func (o *outcome) longest() time.Duration {
	end := time.Duration(0)
	for _, s := range o.stays {
		end = max(end, s.To)
	}
	return end
}
