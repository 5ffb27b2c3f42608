#!/usr/bin/env python3
"""Writes arima_golden.json: reference fits by statsmodels of the series that it generates by seed.

Run: /usr/bin/python3 testdata/arima_golden.py > testdata/arima_golden.json (Debian package python3-statsmodels)
"""
import json
import warnings

import numpy as np
import statsmodels
from statsmodels.tsa.arima.model import ARIMA

warnings.filterwarnings("ignore")


def generate(rng, n, ar, ma, seasonal_ar, seasonal_ma, season, d, sd, mean):
    burn = 300
    phi = np.polymul(np.r_[1, -np.array(ar)][::-1], spread(-np.array(seasonal_ar), season)[::-1])[::-1]
    theta = np.polymul(np.r_[1, np.array(ma)][::-1], spread(np.array(seasonal_ma), season)[::-1])[::-1]
    e = rng.standard_normal(n + burn)
    w = np.zeros(n + burn)
    for t in range(n + burn):
        w[t] = sum(theta[i] * e[t - i] for i in range(min(len(theta), t + 1)))
        w[t] -= sum(phi[i] * w[t - i] for i in range(1, min(len(phi), t + 1)))
    y = w[burn:] + mean
    for _ in range(d):
        y = np.cumsum(y)
    for _ in range(sd):
        for t in range(season, len(y)):
            y[t] += y[t - season]
    return np.round(y, 6)


def spread(c, season):
    out = np.zeros(len(c) * season + 1)
    out[0] = 1
    for i, v in enumerate(c):
        out[(i + 1) * season] = v
    return out


CASES = [
    # name, n, ar, ma, seasonal ar, seasonal ma, season, order, seasonal order, mean
    ("ar1", 200, [0.7], [], [], [], 1, (1, 0, 0), (0, 0, 0), 5.0),
    ("ar2", 300, [0.5, 0.3], [], [], [], 1, (2, 0, 0), (0, 0, 0), -2.0),
    ("ma1", 200, [], [0.6], [], [], 1, (0, 0, 1), (0, 0, 0), 1.0),
    ("ma2", 250, [], [0.4, 0.3], [], [], 1, (0, 0, 2), (0, 0, 0), 0.0),
    ("arma11", 300, [0.8], [0.4], [], [], 1, (1, 0, 1), (0, 0, 0), 10.0),
    ("arma21", 400, [0.6, 0.2], [-0.4], [], [], 1, (2, 0, 1), (0, 0, 0), 0.0),
    ("ima11", 200, [], [-0.5], [], [], 1, (0, 1, 1), (0, 0, 0), 0.0),
    ("ari11", 200, [0.5], [], [], [], 1, (1, 1, 0), (0, 0, 0), 0.0),
    ("airline", 144, [], [-0.4], [], [-0.6], 12, (0, 1, 1), (0, 1, 1), 0.0),
    ("sar", 240, [0.5], [], [0.6], [], 12, (1, 0, 0), (1, 0, 0), 3.0),
    ("quarterly", 160, [0.6], [], [], [0.5], 4, (1, 0, 0), (0, 0, 1), 0.0),
]


def main():
    rng = np.random.default_rng(20191220)
    out = {"statsmodels": statsmodels.__version__, "cases": []}
    for name, n, ar, ma, sar, sma, season, order, sorder, mean in CASES:
        y = generate(rng, n, ar, ma, sar, sma, season, order[1], sorder[1], mean)
        so = sorder + (season,) if season > 1 else (0, 0, 0, 0)
        model = ARIMA(y, order=order, seasonal_order=so)
        fit = model.fit(method_kwargs={"maxiter": 500, "pgtol": 1e-9, "factr": 1e2})
        p = dict(zip(model.param_names, (float(v) for v in fit.params)))
        forecast = fit.get_forecast(12)
        out["cases"].append({
            "name": name, "order": order, "seasonal": sorder, "season": season if season > 1 else 0,
            "y": y.tolist(), "loglik": float(fit.llf),
            "mean": p.get("const"), "sigma2": p["sigma2"],
            "ar": [p[f"ar.L{i+1}"] for i in range(order[0])],
            "ma": [p[f"ma.L{i+1}"] for i in range(order[2])],
            "seasonal_ar": [p[f"ar.S.L{(i+1)*season}"] for i in range(sorder[0])],
            "seasonal_ma": [p[f"ma.S.L{(i+1)*season}"] for i in range(sorder[2])],
            "forecast": forecast.predicted_mean.tolist(), "forecast_sd": forecast.se_mean.tolist(),
        })
    print(json.dumps(out))


main()
