package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"nomad-spotter/autoscaler-plugin/forecast"
)

// python has statsmodels where Debian's python3-statsmodels is installed.
const python = "/usr/bin/python3"

// statsmodels fits series given as JSON and prints what it found and how long each fit took, without the import.
const statsmodels = `
import json, sys, time, warnings
import statsmodels
from statsmodels.tsa.arima.model import ARIMA
warnings.filterwarnings("ignore")
out = []
for c in json.load(sys.stdin):
    o = c["order"]
    begin = time.perf_counter()
    f = ARIMA(c["y"], order=(o["P"], o["D"], o["Q"]), seasonal_order=(o["SP"], o["SD"], o["SQ"], o["Season"])).fit()
    seconds = time.perf_counter() - begin
    p = dict(zip(f.model.param_names, map(float, f.params)))
    out.append({"seconds": seconds, "loglik": float(f.llf),
                "coefficients": [v for k, v in p.items() if k not in ("const", "sigma2")]})
print(json.dumps({"version": statsmodels.__version__, "fits": out}))
`

// fitCase is a series and the order that is fitted to it.
type fitCase struct {
	Order forecast.Order `json:"order"`
	Y     []float64      `json:"y"`
}

// fitCases are series by seed: an autoregression, a mixed process, a differenced one and the airline model.
func fitCases() []fitCase {
	r := rand.New(rand.NewPCG(20191220, 4))
	noise := func(n int) []float64 {
		e := make([]float64, n)
		for i := range e {
			e[i] = r.NormFloat64()
		}
		return e
	}
	ar, e := noise(300), noise(400)
	for t := 2; t < len(ar); t++ {
		ar[t] += .5*ar[t-1] + .3*ar[t-2]
	}
	mixed := make([]float64, len(e))
	for t := 1; t < len(e); t++ {
		mixed[t] = .7*mixed[t-1] + e[t] + .4*e[t-1]
	}
	e = noise(300)
	walk := make([]float64, len(e))
	for t := 1; t < len(e); t++ {
		walk[t] = walk[t-1] + e[t] - .5*e[t-1]
	}
	e = noise(180)
	airline := make([]float64, len(e))
	for t := 13; t < len(e); t++ {
		airline[t] = airline[t-1] + airline[t-12] - airline[t-13] + e[t] - .4*e[t-1] - .6*e[t-12] + .24*e[t-13]
	}
	return []fitCase{
		{forecast.Order{P: 2, Mean: true}, ar},
		{forecast.Order{P: 1, Q: 1, Mean: true}, mixed},
		{forecast.Order{D: 1, Q: 1}, walk},
		{forecast.Order{D: 1, Q: 1, SD: 1, SQ: 1, Season: 12}, airline},
	}
}

// forecastFits compares fits with those of statsmodels in the same run.
func forecastFits(w io.Writer) error {
	cases := fitCases()
	type fit struct {
		Seconds      float64
		Loglik       float64
		Coefficients []float64
	}
	ours := make([]fit, len(cases))
	const rounds = 20
	for i, c := range cases {
		begin := time.Now()
		for range rounds {
			m, err := forecast.FitARIMA(c.Y, c.Order)
			if err != nil {
				return err
			}
			ours[i].Loglik = m.LogLikelihood
			ours[i].Coefficients = append(append(append(append([]float64(nil), m.AR...), m.MA...), m.SeasonalAR...), m.SeasonalMA...)
		}
		ours[i].Seconds = time.Since(begin).Seconds() / rounds
	}
	in, err := json.Marshal(cases)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", statsmodels)
	cmd.Stdin = bytes.NewReader(in)
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(told.String()), "\n")
		_, _ = fmt.Fprintf(w, "\nfits of ARIMA beside statsmodels skipped: %s: %v: %s (Debian package python3-statsmodels)\n",
			python, err, lines[len(lines)-1])
		return nil
	}
	var theirs struct {
		Version string
		Fits    []fit
	}
	if err := json.Unmarshal(out, &theirs); err != nil {
		return fmt.Errorf("answer of statsmodels: %w", err)
	}
	_, _ = fmt.Fprintf(w, "\nfits of ARIMA by exact likelihood beside statsmodels %s, same series, same run\n", theirs.Version)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "order\tvalues\tlog-likelihood\tstatsmodels\tcoefficients apart\tms\tstatsmodels ms\tratio")
	var sum, sumTheirs float64
	for i, c := range cases {
		a, b := ours[i], theirs.Fits[i]
		apart := 0.0
		for j, v := range b.Coefficients {
			apart = math.Max(apart, math.Abs(a.Coefficients[j]-v)/math.Abs(v))
		}
		sum += a.Seconds
		sumTheirs += b.Seconds
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.4f\t%.4f\t%.3f %%\t%.2f\t%.1f\t%.0f\n", c.Order, len(c.Y), a.Loglik, b.Loglik, 100*apart,
			1e3*a.Seconds, 1e3*b.Seconds, b.Seconds/a.Seconds)
	}
	_, _ = fmt.Fprintf(t, "together\t\t\t\t\t%.2f\t%.1f\t%.0f\n", 1e3*sum, 1e3*sumTheirs, sumTheirs/sum)
	return t.Flush()
}
