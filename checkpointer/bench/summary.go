package main

import (
	"cmp"
	"slices"
)

// Summary is what one contender did with one series: medians over the repetitions. All ratios are stored over raw bytes.
type Summary struct {
	Series           string  `json:"series"`
	Contender        string  `json:"contender"`
	Effort           string  `json:"effort,omitempty"`
	Ours             bool    `json:"ours"`
	Exact            bool    `json:"exact"`
	Repetitions      int     `json:"repetitions"`
	Total            float64 `json:"total_ratio"` // of the whole series
	First            float64 `json:"first_ratio"`
	Later            float64 `json:"later_ratio"`     // median of the others; 0 if there are none
	LaterMax         float64 `json:"later_max_ratio"` // the largest of the others
	Last             float64 `json:"last_ratio"`
	Again            float64 `json:"again_ratio"` // the last checkpoint, unchanged, saved once more
	SaveCPUPerGB     float64 `json:"save_cpu_s_per_gb"`
	SaveWallPerGB    float64 `json:"save_wall_s_per_gb"`
	SavePeakMB       float64 `json:"save_peak_mb"`
	RestoreCPUPerGB  float64 `json:"restore_cpu_s_per_gb"` // of the last checkpoint
	RestoreWallPerGB float64 `json:"restore_wall_s_per_gb"`
	RestorePeakMB    float64 `json:"restore_peak_mb"`
	Compared         int     `json:"compared"`   // restored checkpoints that were compared byte by byte, all equal
	Miscounted       int64   `json:"miscounted"` // largest difference between what our command says and the growth, bytes
	ChainCost        float64 `json:"chain_cost"` // CPU to restore the last, over the dearest of the first five; 0 if unknown
	Largest          float64 `json:"largest"`    // the largest ratio of any single checkpoint
	CallsPerGB       float64 `json:"calls_per_gb"`
	Failure          string  `json:"failure,omitempty"`
	Points           []Point `json:"points"` // every checkpoint of the first repetition, for the plot
}

// Point is one checkpoint in a plot.
type Point struct {
	Step  int64   `json:"step"`
	Ratio float64 `json:"ratio"`
}

// summarize groups the runs by series and contender, in the order in which they first appear.
func summarize(runs []Run) []Summary {
	type key struct{ series, contender string }
	var order []key
	groups := map[key][]Run{}
	for _, r := range runs {
		k := key{r.Series, r.Contender}
		if len(groups[k]) == 0 {
			order = append(order, k)
		}
		groups[k] = append(groups[k], r)
	}
	out := make([]Summary, 0, len(order))
	for _, k := range order {
		out = append(out, summarizeOne(groups[k]))
	}
	return out
}

// summarizeOne summarizes the repetitions of one contender on one series.
func summarizeOne(runs []Run) Summary {
	r0 := runs[0]
	s := Summary{Series: r0.Series, Contender: r0.Contender, Effort: r0.Effort, Ours: r0.Ours, Exact: r0.Exact}
	var total, first, later, laterMax, last, again, saveCPU, saveWall, restoreCPU, restoreWall []float64
	for _, r := range runs {
		if r.Error != "" || len(r.Saves) == 0 || len(r.Restores) == 0 {
			s.Failure = cmp.Or(r.Error, "nothing was measured")
			continue
		}
		s.Repetitions++
		var raw, stored int64
		var use Usage
		var ratios []float64
		for _, v := range r.Saves {
			raw, stored, use = raw+v.Raw, stored+v.Stored, use.add(v.Usage)
			ratios = append(ratios, ratio(v.Stored, v.Raw))
			if r.Ours {
				s.Miscounted = max(s.Miscounted, abs(v.Claimed-v.Stored))
			}
		}
		if s.Points == nil {
			for i, v := range r.Saves {
				s.Points = append(s.Points, Point{v.Step, ratios[i]})
			}
		}
		gb := float64(raw) / 1e9
		s.CallsPerGB = float64(len(r.Saves)) / gb
		total, first, last = append(total, ratio(stored, raw)), append(first, ratios[0]), append(last, ratios[len(ratios)-1])
		if len(ratios) > 1 {
			later, laterMax = append(later, median(ratios[1:])), append(laterMax, slices.Max(ratios[1:]))
		}
		again = append(again, ratio(r.Again.Stored, r.Again.Raw))
		saveCPU, saveWall = append(saveCPU, use.CPUS/gb), append(saveWall, use.WallS/gb)
		s.SavePeakMB, s.Largest = max(s.SavePeakMB, use.PeakMB), max(s.Largest, slices.Max(ratios))
		end := r.Restores[len(r.Restores)-1]
		restoreCPU = append(restoreCPU, end.CPUS/(float64(end.Raw)/1e9))
		restoreWall = append(restoreWall, end.WallS/(float64(end.Raw)/1e9))
		for _, v := range r.Restores {
			s.RestorePeakMB = max(s.RestorePeakMB, v.PeakMB)
			if v.Compared {
				s.Compared++
			}
		}
		if s.ChainCost == 0 {
			s.ChainCost = chainCost(r.Restores)
		}
	}
	s.Total, s.First, s.Later, s.LaterMax, s.Last = median(total), median(first), median(later), median(laterMax), median(last)
	s.Again, s.SaveCPUPerGB, s.SaveWallPerGB = median(again), median(saveCPU), median(saveWall)
	s.RestoreCPUPerGB, s.RestoreWallPerGB = median(restoreCPU), median(restoreWall)
	return s
}

// chainCost compares restoring the end of a long series with restoring its beginning, where no chain can be longer than
// four links: 1 means independent of the length. 0 if the series is too short to tell.
func chainCost(rs []Restore) float64 {
	if len(rs) < 7 {
		return 0
	}
	dearest := 0.0
	for _, r := range rs[:5] {
		dearest = max(dearest, r.CPUS/float64(r.Raw))
	}
	var tail []float64
	for _, r := range rs[5:] {
		tail = append(tail, r.CPUS/float64(r.Raw))
	}
	if dearest == 0 {
		return 0
	}
	return median(tail) / dearest
}

// best returns the summary with the smallest value among those of a series that ok accepts, and whether there is one.
func best(all []Summary, series string, ok func(Summary) bool, value func(Summary) float64) (Summary, bool) {
	var out Summary
	found := false
	for _, s := range all {
		if s.Series == series && s.Failure == "" && ok(s) && (!found || value(s) < value(out)) {
			out, found = s, true
		}
	}
	return out, found
}

func isPeer(s Summary) bool { return !s.Ours }

// median of vs, the lower of the middle two if their number is even; 0 of none.
func median(vs []float64) float64 {
	if len(vs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(vs))
	return s[(len(s)-1)/2]
}

// ratio is a/b, and 0 where b is 0.
func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func abs(n int64) int64 { return max(n, -n) }
