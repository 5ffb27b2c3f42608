package main

import (
	"fmt"
	"slices"
	"strings"
)

// Goal is one row of what the repository is meant to reach, and what was measured.
type Goal struct {
	Name     string    `json:"name"`
	Limit    float64   `json:"limit"`
	AtLeast  bool      `json:"at_least"` // the limit is a lower one
	Unit     string    `json:"unit,omitempty"`
	Measured []Setting `json:"measured"`
	Missing  string    `json:"missing,omitempty"` // why nothing was measured
	Reached  []string  `json:"reached"`           // the settings that reach it
}

// Setting is one value with the setting in which it was measured.
type Setting struct {
	Name  string  `json:"setting"`
	Value float64 `json:"value"`
}

// judged fills in which settings reach the goal.
func (g Goal) judged() Goal {
	g.Reached = []string{}
	for _, m := range g.Measured {
		if g.AtLeast && m.Value >= g.Limit || !g.AtLeast && m.Value <= g.Limit {
			g.Reached = append(g.Reached, m.Name)
		}
	}
	return g
}

// answer is "yes", "no", or the settings that reach the goal where others do not.
func (g Goal) answer() string {
	switch {
	case len(g.Measured) == 0:
		return "not measured: " + g.Missing
	case len(g.Reached) == 0:
		return "no"
	case len(g.Reached) == len(g.Measured):
		return "yes"
	}
	return "yes: " + strings.Join(g.Reached, ", ")
}

func (g Goal) bound() string {
	sign := "≤"
	if g.AtLeast {
		sign = "≥"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", sign, number(g.Limit), g.Unit))
}

// ratioGoals are the goals that the series answer.
// fixed is what one call costs each contender.
func ratioGoals(all []Summary, fixed map[string]Usage) []Goal {
	total := func(s Summary) float64 { return s.Total }
	later := func(s Summary) float64 { return s.LaterMax }
	given := func(name, series string, limit float64, value func(Summary) float64) Goal {
		return ofSeries(all, name, series, limit, "", value)
	}
	out := []Goal{
		given("fp32 + AdamW series, stored/raw, total", "fp32", .79, total),
		given("given small series, total", "given", .785, total),
		given("given small series, last delta", "given", .745, func(s Summary) float64 { return s.Last }),
		given("bf16 weights, fine-tuning at 1e-5: largest later checkpoint", "ftbf16"+weightsOnly, .155, later),
		given("bf16 weights at 1e-6: largest later checkpoint", "rlbf16"+weightsOnly, .045, later),
		given("frozen backbone (92 %): largest later checkpoint", "frozen", .165, later),
		given("frozen backbone, whole series against full copies", "frozen", .30, total),
		given("bf16 weights at 1e-6, whole series against full copies", "rlbf16"+weightsOnly, .30, total),
		ofAll(all, "unchanged checkpoint saved again", .001, func(s Summary) float64 { return s.Again }),
		ofAll(all, "never larger than raw: largest of all checkpoints", 1.001, func(s Summary) float64 { return s.Largest }),
		ofAll(all, "stored_bytes: largest difference from the store's growth, bytes", 0, func(s Summary) float64 { return float64(s.Miscounted) }),
	}
	chain := ofSeries(all, "restore, fp32: CPU of checkpoints 6 to 9 over the dearest of 1 to 5", "fp32", 1.1, "times",
		func(s Summary) float64 { return s.ChainCost })
	compact := Goal{Name: "precision compact, fp32 series, total", Limit: .40, Missing: "no such setting, or no fp32 series"}
	for _, s := range all {
		if s.Series == "fp32" && s.Ours && !s.Exact && s.Failure == "" {
			compact.Measured = append(compact.Measured, Setting{"compact", s.Total})
		}
	}
	out = append(out,
		cpuGoal(all, "CPU per byte, best of restic, borg, kopia over ours", func(s Summary) float64 { return s.SaveCPUPerGB }),
		cpuGoal(all, "the same without what a call costs at least", func(s Summary) float64 {
			return s.SaveCPUPerGB - s.CallsPerGB*fixed[s.Contender].CPUS
		}),
		chain, compact.judged())
	return out
}

// cpuGoal compares the CPU that saving the fp32 series takes.
func cpuGoal(all []Summary, what string, value func(Summary) float64) Goal {
	g := Goal{
		Name: "save, file + fsync, fp32: " + what, Limit: 4, AtLeast: true, Unit: "times",
		Missing: "it takes the fp32 series, and one of restic, borg and kopia",
	}
	peer, ok := best(all, "fp32", isRepository, value)
	for _, s := range all {
		if ok && s.Series == "fp32" && s.Ours && s.Exact && s.Failure == "" && value(s) > 0 {
			g.Measured = append(g.Measured, Setting{setting(s), value(peer) / value(s)})
		}
	}
	return g.judged()
}

// ofSeries is a goal that one series answers in every exact setting of ours.
func ofSeries(all []Summary, name, series string, limit float64, unit string, value func(Summary) float64) Goal {
	g := Goal{Name: name, Limit: limit, Unit: unit, Missing: "the series " + series + " was not run"}
	for _, s := range all {
		if s.Series == series && s.Ours && s.Exact && s.Failure == "" {
			g.Measured = append(g.Measured, Setting{setting(s), value(s)})
		}
	}
	return g.judged()
}

// ofAll is a goal that the worst of all series answers.
func ofAll(all []Summary, name string, limit float64, value func(Summary) float64) Goal {
	g := Goal{Name: name, Limit: limit, Missing: "no series was run"}
	for _, s := range all {
		if !s.Ours || !s.Exact || s.Failure != "" {
			continue
		}
		i := slices.IndexFunc(g.Measured, func(m Setting) bool { return m.Name == setting(s) })
		if i < 0 {
			g.Measured = append(g.Measured, Setting{setting(s), value(s)})
			continue
		}
		g.Measured[i].Value = max(g.Measured[i].Value, value(s))
	}
	return g.judged()
}

func setting(s Summary) string {
	if s.Effort == "" {
		return "only"
	}
	return s.Effort
}

// isRepository tells the peers that keep a history from those that copy or compress one file.
func isRepository(s Summary) bool {
	return !s.Ours && slices.ContainsFunc([]string{"restic", "borg", "kopia"}, func(p string) bool { return strings.HasPrefix(s.Contender, p) })
}
