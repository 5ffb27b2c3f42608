package main

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"math"
	"os"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what page.html is filled with.
type page struct {
	Report
	All   []Table
	Plots []plot
}

// plot is one drawing: lines over the steps of a series, or points of cost against size.
type plot struct {
	Title, XLabel, YLabel string
	XTicks, YTicks        []tick
	Lines                 []line
}

type tick struct {
	At    float64 // in the drawing's units
	Label string
}

// line is one contender in a plot.
type line struct {
	Name   string
	Class  string // its colour
	Path   string // SVG path data; "" for single points
	Points []dot
}

type dot struct {
	X, Y float64
	Tip  string
}

// The drawing area, in SVG units.
const (
	plotLeft, plotRight = 52.0, 560.0
	plotTop, plotBottom = 12.0, 250.0
)

// scale maps values between lo and hi to from … to.
type scale struct{ lo, hi, from, to float64 }

func (s scale) at(v float64) float64 {
	if s.hi == s.lo {
		return (s.from + s.to) / 2
	}
	return math.Round(10*(s.from+(v-s.lo)/(s.hi-s.lo)*(s.to-s.from))) / 10
}

// ticks returns between two and about seven round values in [lo, hi], with their places.
func (s scale) ticks() []tick {
	span := s.hi - s.lo
	if span <= 0 || math.IsInf(span, 0) || math.IsNaN(span) {
		return []tick{{s.at(s.lo), number(s.lo)}}
	}
	unit := math.Pow(10, math.Floor(math.Log10(span)))
	for _, f := range []float64{.1, .2, .5, 1} {
		if span/(unit*f) <= 7 {
			unit *= f
			break
		}
	}
	var out []tick
	for k := math.Ceil(s.lo/unit - 1e-9); k*unit <= s.hi+unit*1e-9 && len(out) < 20; k++ {
		out = append(out, tick{s.at(k * unit), number(k * unit)})
	}
	return out
}

// plots draws, for each series, stored/raw over the steps, and the cost of saving over what it stores.
func plots(all []Summary) []plot {
	var names, series []string
	for _, s := range all {
		if !slices.Contains(names, s.Contender) {
			names = append(names, s.Contender)
		}
		if !slices.Contains(series, s.Series) {
			series = append(series, s.Series)
		}
	}
	var out []plot
	for _, name := range series {
		of := slices.DeleteFunc(slices.Clone(all), func(s Summary) bool { return s.Series != name || s.Failure != "" })
		if len(of) == 0 || len(of[0].Points) < 2 {
			continue
		}
		out = append(out, overSteps(name, of, names), costs(name, of, names))
	}
	return out
}

func class(names []string, name string) string {
	return fmt.Sprintf("c%d", slices.Index(names, name)%12)
}

func overSteps(series string, of []Summary, names []string) plot {
	var steps []float64
	top := 1.0
	for _, s := range of {
		for _, p := range s.Points {
			steps, top = append(steps, float64(p.Step)), max(top, p.Ratio)
		}
	}
	x := scale{slices.Min(steps), slices.Max(steps), plotLeft, plotRight}
	y := scale{0, top * 1.02, plotBottom, plotTop}
	p := plot{Title: series + ": stored/raw of each checkpoint", XLabel: "step", YLabel: "stored/raw", XTicks: x.ticks(), YTicks: y.ticks()}
	for _, s := range of {
		l := line{Name: s.Contender, Class: class(names, s.Contender)}
		var path strings.Builder
		for i, v := range s.Points {
			d := dot{x.at(float64(v.Step)), y.at(v.Ratio), fmt.Sprintf("%s, step %d: %s", s.Contender, v.Step, number(v.Ratio))}
			fmt.Fprintf(&path, "%s%g %g ", map[bool]string{true: "M", false: "L"}[i == 0], d.X, d.Y)
			l.Points = append(l.Points, d)
		}
		l.Path = path.String()
		p.Lines = append(p.Lines, l)
	}
	return p
}

func costs(series string, of []Summary, names []string) plot {
	right, top := 0.0, 1.0
	for _, s := range of {
		right, top = max(right, s.SaveCPUPerGB), max(top, s.Total)
	}
	x, y := scale{0, right * 1.05, plotLeft, plotRight}, scale{0, top * 1.02, plotBottom, plotTop}
	p := plot{
		Title: series + ": what is stored against what saving costs (left and low is good)", XLabel: "CPU s per GB saved",
		YLabel: "stored/raw", XTicks: x.ticks(), YTicks: y.ticks(),
	}
	for _, s := range of {
		tip := fmt.Sprintf("%s: %s stored, %s CPU s/GB", s.Contender, number(s.Total), number(s.SaveCPUPerGB))
		p.Lines = append(p.Lines, line{
			Name: s.Contender, Class: class(names, s.Contender), Points: []dot{{x.at(s.SaveCPUPerGB), y.at(s.Total), tip}},
		})
	}
	return p
}

// writeHTML writes a page that needs nothing else.
func (r Report) writeHTML(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pageTemplate.Execute(f, page{r, r.allTables(), plots(r.Summaries)}); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
