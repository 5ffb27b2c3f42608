#!/usr/bin/env python3
"""Measures what rounding an optimizer's moments does to a training that resumes from them.

A model is trained up to a step, where it is interrupted. It then goes on with the same batches and learning rates: without
having been interrupted; from its exact state; from its state with moments as a compact snapshot has them; and so again and
again, rounded anew every few steps. What is printed are losses on text that is not trained on, averaged over seeds, as
differences to the run that was not interrupted, which is deterministic. Three rows tell how to read them: "last bit" resumes
from exact moments and from weights of which one in a thousand is off by one in the last place; "other batches" goes on with
other batches; "no moments" resumes without any.

    /usr/bin/python3 precision_effect.py --checkpointer ./checkpointer        # the small model of make_series.py
    /usr/bin/python3 precision_effect.py --checkpointer ./checkpointer --from ~/.cache/spotter/series/fp32/ckpt_0220.pt

The compact row is a checkpoint that the program has saved with --precision compact and restored; weights are compared, and
the zip's checksums. The row of many resumes rounds by a copy of the program's rule in this file, which is compared with what
the program restores. --rows adds rows with other numbers of bits. With --from "not interrupted" goes on from the exact checkpoint as well.
"""

import argparse
import copy
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile

import make_series as ms
import numpy as np
import torch
import torch.nn.functional as F

WHOLE, EXACT, COMPACT, DRIFT, OTHER, NONE = "not interrupted", "exact", "compact", "last bit", "other batches", "no moments"
MANY = "compact, many times"
KEPT = (2, 1)  # bits of mantissa that package quant keeps of first and second moments


def to_nearest(a, b):
    """Where numbers between a and b are parted: the middle."""
    return (a + b) / 2


def unbiased(a, b):
    """Where they are parted so that 1/sqrt(x) keeps its mean, if all x from a to b are equally frequent by octaves."""
    fa, fb = a**-0.5, b**-0.5
    return a * math.exp((2 * (fa - fb) - fb * math.log(b / a)) / (fa - fb))


def rounded(t, bits, part):
    """t with so many bits of mantissa, as package quant rounds, but for what is exactly at a limit."""
    u = t.numpy().view(np.uint32).astype(np.uint64)
    drop = 23 - bits
    step = 2.0**-bits
    up = [(1 << 23) * (1 + (i + 1) * step - part(1 + i * step, 1 + (i + 1) * step)) for i in range(1 << bits)]
    up = np.array([round(x) for x in up], dtype=np.uint64)
    normal = (u >> 23) & 255 > 0
    r = (u + up[(u >> drop) & ((1 << bits) - 1)]) >> drop << drop
    return torch.from_numpy(np.where(normal, r, u).astype(np.uint32).view(np.float32).reshape(t.shape).copy())


def moments(state, how, seed):
    """The state as it is resumed."""
    state = copy.deepcopy(state)
    if how == DRIFT:
        g = torch.Generator().manual_seed(seed)
        for t in state["model"].values():
            hit = torch.rand(t.shape, generator=g) < 1e-3
            t[hit] = torch.nextafter(t[hit], torch.full_like(t[hit], 10.0))
    if how == NONE:
        state["optim"]["state"] = {}
    if isinstance(how, tuple):
        for s in state["optim"]["state"].values():
            s["exp_avg"] = rounded(s["exp_avg"], how[0], to_nearest)
            s["exp_avg_sq"] = rounded(s["exp_avg_sq"], how[1], unbiased)
    return state


def through(binary, state, step):
    """The state after a save with --precision compact and a restore."""
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, f"ckpt_{step}.pt")
        torch.save(state, file)
        common = ["--store", f"file://{d}/store", "--lineage", "l", "--json"]
        saved = json.loads(subprocess.check_output([binary, "save", file, "--step", str(step), "--precision", "compact", *common]))
        got = json.loads(subprocess.check_output([binary, "restore", "--to", os.path.join(d, "out"), *common]))
        print(f"stored {saved['stored_bytes']} of {saved['raw_bytes']} bytes, precision {got['precision']}", file=sys.stderr)
        back = torch.load(got["path"])
        if (bad := zipfile.ZipFile(got["path"]).testzip()) is not None:
            sys.exit(f"the checksum of {bad} is wrong")
    for k, t in state["model"].items():
        if not torch.equal(t, back["model"][k]):
            sys.exit(f"weights {k} differ")
    mine = moments(state, KEPT, 0)["optim"]["state"]
    off = sum(int((s[k] != mine[i][k]).sum()) for i, s in back["optim"]["state"].items() for k in ("exp_avg", "exp_avg_sq"))
    if off > 1e-5 * sum(t.numel() for t in state["model"].values()):  # what is exactly at a limit
        sys.exit(f"{off} moments are rounded otherwise than here")
    return back


class Job:
    """What is trained: shape, batches, learning rate."""

    def __init__(self, shape, data, size, beta2, lr):
        self.shape, self.size, self.beta2, self.lr = shape, size, beta2, lr
        data = data % shape["vocabulary"]
        runs = data.split(5000)
        self.data = torch.cat([r for i, r in enumerate(runs) if i % 50])
        feed = ms.batches(torch.cat(runs[::50]), 32, shape["context"], 12345)
        self.held = [next(feed) for _ in range(4)]

    def run(self, state=None):
        model = ms.GPT(**self.shape)
        r = ms.Run(model, ms.adamw(model, 1e-3, self.beta2), self.shape)
        if state:
            model.load_state_dict(state["model"])
            r.optimizer.load_state_dict(state["optim"])
            for group in r.optimizer.param_groups:
                group["betas"] = (0.9, self.beta2)
        return r

    def train(self, run, feed, first, steps):
        for step in range(first + 1, first + steps + 1):
            run.step(next(feed), self.lr(step))

    def loss(self, run):
        with torch.no_grad():
            return statistics.mean(F.cross_entropy(run.model(x).flatten(0, 1), y.flatten()).item() for x, y in self.held)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--from", dest="start", help="checkpoint of make_series.py to resume; default: train the small model")
    p.add_argument("--beta2", type=float, help="default .999, with --from .95")
    p.add_argument("--lr", type=float, help="constant; default: the cosine of the series")
    p.add_argument("--step", type=int, default=180, help="where the small model is interrupted; default %(default)s")
    p.add_argument("--every", type=int, default=10, help="steps between many resumes; default %(default)s")
    p.add_argument("--after", default="1,10,40,120", help="steps after the resume at which is measured; default %(default)s")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--rows", default="", help="more rows, of bits kept in first:second moments, such as 7:7,3:2")
    p.add_argument("--checkpointer", required=True, help="the program")
    p.add_argument("--goroot")
    a = p.parse_args()
    torch.set_num_threads(1)
    goroot = a.goroot or subprocess.run(["go", "env", "GOROOT"], check=True, capture_output=True, text=True).stdout.strip()
    data = ms.tokens(goroot, 8192)
    marks = [int(s) for s in a.after.split(",")]
    if a.start:
        given = torch.load(a.start)
        last = int(max(s["step"] for s in given["optim"]["state"].values()))
        job = Job(given["config"], data, 4, a.beta2 or 0.95, lambda s: a.lr or ms.cosine(s, 6e-4, 6e-5, 50, 420))
    else:
        last = a.step
        job = Job(ms.SMALL, data, 16, a.beta2 or 0.999, lambda s: a.lr or ms.cosine(s, 1e-3, 6e-5, 50, 300))
    rows = [tuple(map(int, r.split(":"))) for r in a.rows.split(",") if r]
    how = [WHOLE, *([] if a.start else [EXACT]), COMPACT, MANY, *rows, DRIFT, OTHER, NONE]
    losses = {h: [] for h in how}
    for seed in range(1, a.seeds + 1):
        state = given if a.start else None
        if state is None:
            torch.manual_seed(seed)
            run = job.run()
            job.train(run, ms.batches(job.data, job.size, job.shape["context"], seed), 0, last)
            state = copy.deepcopy(run.state(last, False))

        def resumed(h):
            if h == COMPACT:
                return through(a.checkpointer, state, last)
            return moments(state, KEPT if h == MANY else h, seed)

        for h in how:
            if h != WHOLE or a.start:
                run = job.run(resumed(h))
            feed = ms.batches(job.data, job.size, job.shape["context"], (2000 if h == OTHER else 1000) + seed)
            row = []
            for at in range(marks[-1] + 1):
                if at in marks:
                    row.append(job.loss(run))
                if h == MANY and at and at % a.every == 0:
                    run = job.run(moments(run.state(last + at, False), KEPT, seed))
                if at < marks[-1]:
                    job.train(run, feed, last + at, 1)
            losses[h].append(row)
            print(f"seed {seed} {h}: {' '.join(f'{x:.5f}' for x in row)}", file=sys.stderr, flush=True)
    print(f"{a.start or 'small model'}, step {last}, beta2 {job.beta2}, {a.seeds} seeds")
    print(f"{'steps after the resume':24}" + "".join(f"{m:>20}" for m in marks))
    exact = losses[WHOLE]
    print(f"{'not interrupted, loss':24}" + "".join(f"{statistics.mean(r[i] for r in exact):>20.4f}" for i in range(len(marks))))
    for h in how[1:]:
        name = f"mantissa {h[0]} and {h[1]} bits" if isinstance(h, tuple) else f"compact, every {a.every} steps" if h == MANY else h
        cells = []
        for i in range(len(marks)):
            d = [1e4 * (r[i] - e[i]) for r, e in zip(losses[h], exact)]
            cells.append(f"{statistics.mean(d):+9.1f} ± {statistics.pstdev(d):.1f}")
        print(f"{name:24}" + "".join(f"{c:>20}" for c in cells))
    print("rows below the first: 10⁻⁴ of loss more than not interrupted, mean ± standard deviation over the seeds")


if __name__ == "__main__":
    main()
