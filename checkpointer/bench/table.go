package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table is what is printed: the first column is text, the others are numbers.
type Table struct {
	Title  string     `json:"title"`
	Note   string     `json:"note,omitempty"`
	Header []string   `json:"header"`
	Rows   [][]string `json:"rows"`
}

// text writes t with aligned columns.
func (t Table) text(w io.Writer) error {
	widths := make([]int, len(t.Header))
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(&b, "(%s)\n", t.Note)
	}
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		var line strings.Builder
		for i, c := range row {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i == 0 {
				line.WriteString(c + gap)
			} else {
				line.WriteString("  " + gap + c)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// markdown writes t as a table of GitHub's Markdown.
func (t Table) markdown(w io.Writer) error {
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	line := func(row []string) string {
		out := make([]string, len(row))
		for i, c := range row {
			out[i] = cell.Replace(c)
		}
		return "| " + strings.Join(out, " | ") + " |\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(&b, "%s\n\n", t.Note)
	}
	b.WriteString(line(t.Header) + "|---" + strings.Repeat("|---:", len(t.Header)-1) + "|\n")
	for _, row := range t.Rows {
		b.WriteString(line(row))
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// number prints v with three digits that count, or as a whole number from 100 on.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return trimmed(v, 1)
	case a >= 1:
		return trimmed(v, 3)
	case a >= .001:
		return trimmed(v, 4)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func trimmed(v float64, digits int) string {
	s := strconv.FormatFloat(v, 'f', digits, 64)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// goalTable shows the goals with one column for each setting that occurs.
func goalTable(goals []Goal) Table {
	var settings []string
	for _, g := range goals {
		for _, m := range g.Measured {
			if !slices.Contains(settings, m.Name) {
				settings = append(settings, m.Name)
			}
		}
	}
	t := Table{Title: "Goals", Header: slices.Concat([]string{"goal", "bound"}, settings, []string{"reached"})}
	for _, g := range goals {
		row := []string{g.Name, g.bound()}
		for _, s := range settings {
			i := slices.IndexFunc(g.Measured, func(m Setting) bool { return m.Name == s })
			if i < 0 {
				row = append(row, "-")
			} else {
				row = append(row, number(g.Measured[i].Value))
			}
		}
		t.Rows = append(t.Rows, append(row, g.answer()))
	}
	return t
}

// seriesTables shows one table for each series: what every contender did.
func seriesTables(all []Summary) []Table {
	var out []Table
	for _, s := range all {
		if len(out) == 0 || out[len(out)-1].Title != "Series "+s.Series {
			out = append(out, Table{
				Title: "Series " + s.Series,
				Header: []string{
					"contender", "stored/raw", "first", "later", "last", "again", "save CPU s/GB", "save wall s/GB", "save peak MB",
					"restore CPU s/GB", "restore wall s/GB", "restore peak MB", "compared",
				},
			})
		}
		t := &out[len(out)-1]
		if s.Failure != "" {
			t.Rows = append(t.Rows, append([]string{s.Contender, "failed"}, slices.Repeat([]string{"-"}, len(t.Header)-2)...))
			continue
		}
		t.Note = fmt.Sprintf("medians of repetitions: %d; later: median of all but the first checkpoint; restore: of the last", s.Repetitions)
		row := []string{s.Contender}
		for _, v := range []float64{
			s.Total, s.First, s.Later, s.Last, s.Again, s.SaveCPUPerGB, s.SaveWallPerGB, s.SavePeakMB, s.RestoreCPUPerGB,
			s.RestoreWallPerGB, s.RestorePeakMB,
		} {
			row = append(row, number(v))
		}
		t.Rows = append(t.Rows, append(row, strconv.Itoa(s.Compared)))
	}
	return out
}

// peerTable compares ours with the best peer of each column, series by series.
func peerTable(all []Summary) Table {
	t := Table{
		Title: "Ours : best peer",
		Note: "below 1: ours is smaller or cheaper. Each column names the best peer of its own; CPU counts only restic, borg and kopia, " +
			"as copying and compressing one file keep no history",
		Header: []string{"series, setting", "stored", "peer", "save CPU", "peer", "save wall", "peer", "restore wall", "peer"},
	}
	for _, s := range all {
		if !s.Ours || s.Failure != "" {
			continue
		}
		row := []string{s.Series + ", " + s.Contender}
		for _, c := range []struct {
			ok    func(Summary) bool
			value func(Summary) float64
		}{
			{isPeer, func(s Summary) float64 { return s.Total }},
			{isRepository, func(s Summary) float64 { return s.SaveCPUPerGB }},
			{isRepository, func(s Summary) float64 { return s.SaveWallPerGB }},
			{isRepository, func(s Summary) float64 { return s.RestoreWallPerGB }},
		} {
			p, ok := best(all, s.Series, c.ok, c.value)
			if !ok || c.value(p) == 0 {
				row = append(row, "-", "none")
				continue
			}
			row = append(row, number(c.value(s)/c.value(p)), p.Contender)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// fixedTable shows what a call costs whatever it saves.
func fixedTable(order []Contender, fixed map[string]Usage) Table {
	t := Table{
		Title:  "One call: 4 KiB into a new repository",
		Note:   "part of every figure above; restic and kopia derive their key from a password, slowly on purpose",
		Header: []string{"contender", "CPU s", "wall s", "peak MB"},
	}
	for _, c := range order {
		if u, ok := fixed[c.Name]; ok {
			t.Rows = append(t.Rows, []string{c.Name, number(u.CPUS), number(u.WallS), number(u.PeakMB)})
		}
	}
	return t
}
