package cli

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func TestHours(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 70 * time.Second: "1m10s",
		100*time.Hour + time.Second: "100h0m1s", 1500 * time.Millisecond: "1.5s", 20 * time.Hour: "20h",
		3220*time.Second + 456*time.Millisecond: "53m40s",
	} {
		must.Eq(t, want, hours(d.Hours()))
	}
}

func TestFigure(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 1000: "1000", 0.4: "0.4", 0.12345: "0.1235", 0.00001: "0", 2.5: "2.5"} {
		must.Eq(t, want, figure(x))
	}
}

func TestChange(t *testing.T) {
	must.Eq(t, "", change(nil))
	for x, want := range map[float64]string{0.2: "+20.0 %", -0.5: "-50.0 %", 1e-9: "0.0 %", -1e-9: "0.0 %", 1: "+100.0 %"} {
		must.Eq(t, want, change(&x))
	}
}

// Every input is read, has a use that says its default or that it is required, and is in the plain form of an attribute.
func TestCostInputs(t *testing.T) {
	in := costInputs()
	seen := map[string]bool{}
	for _, i := range in.list {
		must.False(t, seen[i.name], must.Sprint(i.name))
		must.NotEq(t, "", i.usage)
		must.Eq(t, strings.ToLower(i.name), i.name)
		must.StrNotContains(t, i.name, "_")
		seen[i.name] = true
		// A text that no kind of input can be is a fault of that very input, so it was read.
		if i.kind != kindText {
			one := costInputs()
			must.NoError(t, one.find(i.name).Set("?"))
			_, err := one.costJob()
			must.ErrorContains(t, err, "--"+i.name+`: "?" is`)
		}
	}
}

// Faults of what was read and of what it means are told together, each once, and not what only follows from them.
func TestCostInputs_faults(t *testing.T) {
	for _, c := range []struct{ figures, want string }{
		{
			"hours=NaN on-demand-price=-3 spot-price=Inf interruptions=1e400",
			"--recovery-hours --on-demand-price --hours --spot-price --interruptions",
		},
		{"hours=x on-demand-price=3 spot-price=1 nodes=0", "--hours --nodes"},
		{"hours=1 on-demand-price=3 spot-price=1 interval=-1h", "--interval"},
		{"hours=1 on-demand-price=3 spot-price=1 interval=1h lag=-5h notice-success=3", "--notice-success --lag"},
		{"hours=1 on-demand-price=3 spot-price=1 interruptions=1 recovery-hours=-1", "--recovery-hours"},
		{"hours=1 on-demand-price=3 spot-price=1 spot-price-range=2..0.5", "--spot-price-range"},
	} {
		in := costInputs()
		for _, f := range strings.Fields(c.figures) {
			name, text, _ := strings.Cut(f, "=")
			must.NoError(t, in.find(name).Set(text))
		}
		_, err := in.costJob()
		must.Error(t, err)
		var told []string
		for line := range strings.SplitSeq(err.Error(), "\n") {
			told = append(told, strings.FieldsFunc(line, func(r rune) bool { return r == ':' || r == ' ' })[0])
		}
		must.Eq(t, c.want, strings.Join(told, " "), must.Sprint(err))
	}
}

// Whatever a file says, it is refused with faults that name its lines, or priced.
func FuzzCostFile(f *testing.F) {
	f.Add(string(exampleCost))
	f.Add(string(exampleInterval))
	f.Add("hours = 1\non_demand_price = 1\nspot_price = 1\nmtbf = \"1ns\"\ninterval = \"1ns\"")
	f.Add("hours = 1e400\nwhat_if = \",\"\nfull_size = \"-1GiB\"\nspot_price_range = \"..\"")
	f.Add("a { b = 1 }")
	f.Add("hours = null\ncurrency = \"\"")
	f.Fuzz(func(t *testing.T, text string) {
		in := costInputs()
		if err := in.readFile("f", []byte(text)); err != nil {
			must.StrHasPrefix(t, "f:", err.Error())
			return
		}
		job, err := in.costJob()
		if err != nil {
			return
		}
		out := job.output()
		must.NoError(t, printCost(&strings.Builder{}, out))
		must.NoError(t, writeJSON(&strings.Builder{}, out))
		for _, s := range out.Steps {
			if total := s.Cost.Total(); math.IsNaN(total) || math.IsInf(total, 0) {
				t.Fatalf("step %s costs %v", s.Name, total)
			}
		}
	})
}
