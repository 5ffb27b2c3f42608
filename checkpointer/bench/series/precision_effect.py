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
the zip's checksums. The rows of many resumes round by a copy of the program's rule in this file, which is compared with what
the program restores. --rows adds rows with other rules. With --from "not interrupted" goes on from the exact checkpoint as well.
"""

import argparse
import copy
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import typing
import zipfile

import make_series as ms
import numpy as np
import torch
import torch.nn.functional as F

WHOLE, EXACT, COMPACT, DRIFT, OTHER, NONE = "not interrupted", "exact", "compact", "last bit", "other batches", "no moments"


class Rule(typing.NamedTuple):
    """How moments are rounded: as package quant does, unless said otherwise."""

    first: int = 2  # bits of mantissa that are kept of first moments
    second: int = 2
    spread: bool = True  # second moments go up with a probability, not to the nearest
    every: int = 0  # steps between resumes; 0: there is one

    def __str__(self):
        name = f"{self.first} and {self.second} bits{'' if self.spread else ', nearest'}"
        if self[:3] == Rule()[:3]:
            name = COMPACT
        return name + (f", every {self.every} steps" if self.every else "")

    @classmethod
    def parse(cls, text):
        """Reads M:V, with n for the nearest behind and /N for a resume every N steps."""
        m = re.fullmatch(r"(\d+):(\d+)(n?)(?:/(\d+))?", text)
        if not m:
            sys.exit(f"--rows: {text!r} is not like 3:2, 2:1n or 2:1n/10")
        return cls(int(m[1]), int(m[2]), not m[3], int(m[4] or 0))


def rounded(t, bits, spread):
    """t with so many bits of mantissa, as package quant rounds: to the nearest, or up with a probability."""
    u = t.numpy().view(np.uint32).astype(np.uint64)
    drop = 23 - bits
    low = u & ((1 << drop) - 1)
    down = u - low
    if spread:
        up = low > (u * 0x9E3779B1 & 0xFFFFFFFF) >> (32 - drop)
    else:
        up = low + (down >> drop & 1) > 1 << (drop - 1)
    r = np.where((u >> 23) & 255 > 0, down + (up.astype(np.uint64) << drop), u)
    return torch.from_numpy(r.astype(np.uint32).view(np.float32).reshape(t.shape).copy())


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
    if isinstance(how, Rule):
        for s in state["optim"]["state"].values():
            s["exp_avg"] = rounded(s["exp_avg"], how.first, False)
            s["exp_avg_sq"] = rounded(s["exp_avg_sq"], how.second, how.spread)
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
    mine = moments(state, Rule(), 0)["optim"]["state"]
    off = sum(int((s[k] != mine[i][k]).sum()) for i, s in back["optim"]["state"].items() for k in ("exp_avg", "exp_avg_sq"))
    if off:
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
    p.add_argument("--every", default="10,40", help="steps between many resumes, one row for each; default %(default)s")
    p.add_argument("--after", default="1,10,40,120", help="steps after the resume at which is measured; default %(default)s")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--rows", default="", help="more rows, of bits kept in first:second moments, such as 7:7,3:2,2:1n/10; n: second moments to the nearest; /N: every N steps")
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
    rows = [Rule(every=int(n)) for n in a.every.split(",") if n] + [Rule.parse(r) for r in a.rows.split(",") if r]
    how = [WHOLE, *([] if a.start else [EXACT]), COMPACT, *rows, DRIFT, OTHER, NONE]
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
            return moments(state, h, seed)

        for h in how:
            if h != WHOLE or a.start:
                run = job.run(resumed(h))
            feed = ms.batches(job.data, job.size, job.shape["context"], (2000 if h == OTHER else 1000) + seed)
            row = []
            for at in range(marks[-1] + 1):
                if at in marks:
                    row.append(job.loss(run))
                if isinstance(h, Rule) and h.every and at and at % h.every == 0:
                    run = job.run(moments(run.state(last + at, False), h, seed))
                if at < marks[-1]:
                    job.train(run, feed, last + at, 1)
            losses[h].append(row)
            print(f"seed {seed} {h}: {' '.join(f'{x:.5f}' for x in row)}", file=sys.stderr, flush=True)
    print(f"{a.start or 'small model'}, step {last}, beta2 {job.beta2}, {a.seeds} seeds")
    print(f"{'steps after the resume':40}" + "".join(f"{m:>20}" for m in marks))
    exact = losses[WHOLE]
    print(f"{'not interrupted, loss':40}" + "".join(f"{statistics.mean(r[i] for r in exact):>20.4f}" for i in range(len(marks))))
    for h in how[1:]:
        cells = []
        for i in range(len(marks)):
            d = [1e4 * (r[i] - e[i]) for r, e in zip(losses[h], exact)]
            cells.append(f"{statistics.mean(d):+9.1f} ± {statistics.pstdev(d):.1f}")
        print(f"{h!s:40}" + "".join(f"{c:>20}" for c in cells))
    print("rows below the first: 10⁻⁴ of loss more than not interrupted, mean ± standard deviation over the seeds")


if __name__ == "__main__":
    main()
