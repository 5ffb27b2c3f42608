#!/usr/bin/env python3
"""Trains a small GPT on text found on this machine and keeps its checkpoints: real data for benchmarks of a
checkpoint store. README.md beside this file says which series there are and what is in them.

Needs PyTorch (Debian: python3-torch) and the sources of Go's standard library. Nothing is downloaded. The same seed,
text, PyTorch and processor give the same bytes; a sequence of checkpoints is kept as it comes out of training, so its
statistics are those of any other run.
"""

import argparse
import collections
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MB = 1000 * 1000

# The model of the full series (10.05 M parameters) and of the small one (402,640).
LARGE = dict(vocabulary=8192, width=320, layers=6, heads=5, context=96)
SMALL = dict(vocabulary=2048, width=80, layers=3, heads=4, context=64)

# The kinds that continue the fp32 run from its last step: learning rate, second beta, steps that are kept.
CONTINUED = {
    "ft": dict(lr=1e-5, beta2=0.999, steps=[0, 25, 50, 75, 100]),
    "rl": dict(lr=1e-6, beta2=0.95, steps=[0, 10, 20, 30, 40]),
    "dense": dict(lr=6e-5, beta2=0.95, steps=[0, 1, 2, 5, 10]),
}
# A kind with a twin whose weights are cast to bfloat16 when they are saved.
TWIN = {"fp32": "bf16", "ft": "ftbf16", "rl": "rlbf16", "dense": "densebf16"}
DEFAULT_KINDS = "small,fp32,bf16,ft,ftbf16,rl,rlbf16,frozen,frozen-constant"
ALL_KINDS = set(DEFAULT_KINDS.split(",")) | {"dense", "densebf16"}


class Block(nn.Module):
    """One pre-LayerNorm transformer block without dropout."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        mixed = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    """Learned positions; the head is the token embedding."""

    def __init__(self, vocabulary, width, layers, heads, context):
        super().__init__()
        self.tok = nn.Embedding(vocabulary, width)
        self.pos = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, x):
        t = x.shape[1]
        h = self.tok(x) + self.pos.weight[:t]
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        for block in self.blocks:
            h = block(h, mask)
        return F.linear(self.ln(h), self.tok.weight)


def text_files(root, suffixes, limit):
    """Yields the content of files below root in sorted order, up to limit bytes in all."""
    left = limit
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if left <= 0:
                return
            if os.path.islink(path) or not (name.endswith(suffixes) or ("" in suffixes and "." not in name)):
                continue
            try:
                with open(path, "rb") as f:
                    data = f.read(left)
            except OSError:
                continue
            left -= len(data)
            yield data


def tokens(goroot, vocabulary):
    """The text as token numbers: 256 byte values, then the most frequent words."""
    text = b"\n".join(text_files(os.path.join(goroot, "src"), (".go",), 18 * MB))
    text += b"\n" + b"\n".join(text_files("/usr/share/doc", (".txt", ".html", ".md", ".rst", ""), 8 * MB))
    if len(text) < MB:
        sys.exit(f"only {len(text)} bytes of text below {goroot}/src and /usr/share/doc: at least 1 MB is needed")
    words = re.findall(rb" ?[A-Za-z_]+|[0-9]+|[ \t]+|\n+|[^A-Za-z0-9_\s]+", text)
    counts = collections.Counter(words)
    frequent = sorted(counts, key=lambda w: (-counts[w], w))[: vocabulary - 256]
    number = {w: 256 + i for i, w in enumerate(frequent)}
    out = []
    for w in words:
        n = number.get(w)
        if n is None:
            out.extend(w)
        else:
            out.append(n)
    return torch.from_numpy(np.array(out, dtype=np.int64))


def batches(data, size, context, seed):
    """Endless random batches; the same seed gives the same ones."""
    g = torch.Generator().manual_seed(seed)
    while True:
        at = torch.randint(len(data) - context - 1, (size,), generator=g)
        rows = torch.stack([data[i : i + context + 1] for i in at.tolist()])
        yield rows[:, :-1], rows[:, 1:]


def adamw(model, lr, beta2):
    """AdamW with weight decay on matrices only; parameters that need no gradient are left out."""
    ps = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in ps if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in ps if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, beta2), eps=1e-8)


class Run:
    """A training: model, optimizer and the smoothed loss. What is saved is what a restart needs."""

    def __init__(self, model, optimizer, config, loss=None):
        self.model, self.optimizer, self.config, self.loss = model, optimizer, config, loss

    def step(self, batch, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        x, y = batch
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.grad is not None], 1.0)
        self.optimizer.step()
        value = loss.item()
        self.loss = value if self.loss is None else 0.95 * self.loss + 0.05 * value

    def state(self, step, bf16):
        weights = self.model.state_dict()
        if bf16:
            weights = collections.OrderedDict((k, v.to(torch.bfloat16)) for k, v in weights.items())
        return {
            "model": weights,
            "optim": self.optimizer.state_dict(),
            "step": step,
            "loss": self.loss,
            "rng": torch.get_rng_state(),
            "config": dict(self.config),
        }


def write_safetensors(path, weights):
    """The safetensors format: length of the header (8 bytes, little-endian), JSON header, tensors."""
    names = {torch.float32: "F32", torch.bfloat16: "BF16"}
    header, at = {}, 0
    for key, t in weights.items():
        size = t.numel() * t.element_size()
        header[key] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in weights.values():
            t = t.contiguous()
            f.write((t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().tobytes())


class Series:
    """The folders that are being filled. A folder gets its name when it is complete."""

    def __init__(self, out, kinds):
        self.out = out
        self.kinds = [k for k in kinds if not os.path.isdir(os.path.join(out, k))]

    def wanted(self, *kinds):
        return any(k in self.kinds for k in kinds)

    def begin(self):
        for k in self.kinds:
            shutil.rmtree(self.part(k), ignore_errors=True)

    def part(self, kind):
        return os.path.join(self.out, kind + ".part")

    def save(self, kind, run, step):
        for k, bf16 in ((kind, False), (TWIN.get(kind), True)):
            if k in self.kinds:
                self.write(k, run.state(step, bf16), f"ckpt_{step:04d}.pt", step)
        if kind == "frozen" and "frozen-constant" in self.kinds:
            # torch.save puts the file's name before every entry; through a file object it is always "archive".
            self.write("frozen-constant", run.state(step, False), None, step)

    def write(self, kind, state, name, step):
        folder = self.part(kind)
        os.makedirs(folder, exist_ok=True)
        if name:
            torch.save(state, os.path.join(folder, name))
        else:
            with open(os.path.join(folder, f"ckpt_{step:04d}.pt"), "wb") as f:
                torch.save(state, f)
        write_safetensors(os.path.join(folder, f"model_{step:04d}.safetensors"), state["model"])

    def finish(self, *kinds):
        for k in kinds:
            if k in self.kinds:
                os.rename(self.part(k), os.path.join(self.out, k))


def cosine(step, peak, floor, warmup, last):
    """Learning rate of a step: linear warm-up, then half a cosine."""
    if step <= warmup:
        return peak * step / warmup
    return floor + 0.5 * (peak - floor) * (1 + math.cos(math.pi * (step - warmup) / (last - warmup)))


def train_small(series, data, seed):
    torch.manual_seed(seed)
    model = GPT(**SMALL)
    run = Run(model, adamw(model, 1e-3, 0.999), SMALL)
    feed = batches(data % SMALL["vocabulary"], 16, SMALL["context"], seed)
    for step in range(1, 301):
        run.step(next(feed), cosine(step, 1e-3, 6e-5, 50, 300))
        if step >= 100 and (step - 100) % 40 == 0:
            series.save("small", run, step)
            report("small", step, run.loss)
    series.finish("small")


def train_base(series, data, shape, seed):
    torch.manual_seed(seed)
    model = GPT(**shape)
    run = Run(model, adamw(model, 6e-4, 0.95), shape)
    feed = batches(data, 4, shape["context"], seed)
    for step in range(1, 421):
        run.step(next(feed), cosine(step, 6e-4, 6e-5, 50, 420))
        if step >= 100 and (step - 100) % 40 == 0:
            series.save("fp32", run, step)
            report("fp32", step, run.loss)
    series.finish("fp32", "bf16")
    return {"model": model.state_dict(), "optim": run.optimizer.state_dict(), "loss": run.loss}


def train_continued(series, data, shape, seed, kind, base):
    torch.manual_seed(seed)
    o = CONTINUED[kind]
    model = GPT(**shape)
    model.load_state_dict(base["model"])
    optimizer = adamw(model, o["lr"], o["beta2"])
    optimizer.load_state_dict(base["optim"])
    for group in optimizer.param_groups:
        group["betas"] = (0.9, o["beta2"])
    train_steps(series, data, shape, seed, kind, Run(model, optimizer, shape, base["loss"]), o["steps"], o["lr"])
    series.finish(kind, TWIN[kind])


def train_frozen(series, data, shape, seed, base):
    torch.manual_seed(seed)
    model = GPT(**shape)
    model.load_state_dict(base["model"])
    trained = [f"blocks.{shape['layers'] - 1}.{m}." for m in ("up", "down")] + ["ln."]
    for name, p in model.named_parameters():
        p.requires_grad = name.startswith(tuple(trained))
    run = Run(model, adamw(model, 2e-4, 0.95), shape, base["loss"])
    train_steps(series, data, shape, seed, "frozen", run, [0, 25, 50, 75, 100, 125], 2e-4)
    series.finish("frozen", "frozen-constant")


def train_steps(series, data, shape, seed, kind, run, steps, lr):
    feed = batches(data, 4, shape["context"], seed)
    for step in range(steps[-1] + 1):
        if step:
            run.step(next(feed), lr)
        if step in steps:
            series.save(kind, run, step)
            report(kind, step, run.loss)


def load_base(path):
    """The last checkpoint of an fp32 series made before, or None."""
    if not os.path.exists(path):
        return None
    return {k: v for k, v in torch.load(path).items() if k in ("model", "optim", "loss")}


def report(kind, step, loss):
    print(f"{time.strftime('%H:%M:%S')} {kind} step {step} loss {loss:.3f}", file=sys.stderr, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True, help="folder for the series; what is complete there is kept")
    p.add_argument("--kinds", default=DEFAULT_KINDS, help="comma-separated; default %(default)s; also dense,densebf16")
    p.add_argument("--small", action="store_true", help="train the small model (5 MB a checkpoint) for every kind")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--goroot", help="default: what `go env GOROOT` says")
    a = p.parse_args()
    kinds = a.kinds.split(",")
    if unknown := set(kinds) - ALL_KINDS:
        p.error(f"unknown kinds: {', '.join(sorted(unknown))}; there are {', '.join(sorted(ALL_KINDS))}")
    goroot = a.goroot or subprocess.run(["go", "env", "GOROOT"], check=True, capture_output=True, text=True).stdout.strip()
    torch.set_num_threads(1)
    os.makedirs(a.out, exist_ok=True)
    series = Series(a.out, kinds)
    series.begin()
    if not series.kinds:
        return
    shape = SMALL if a.small else LARGE
    data = tokens(goroot, 8192)
    print(f"{len(data) / 1e6:.1f} M tokens", file=sys.stderr, flush=True)
    if series.wanted("small"):
        train_small(series, data, a.seed)
    if not set(series.kinds) - {"small"}:
        return
    data = data % shape["vocabulary"]
    base = load_base(os.path.join(a.out, "fp32", "ckpt_0420.pt"))
    if base is None or series.wanted("fp32", "bf16"):
        base = train_base(series, data, shape, a.seed)
    if series.wanted("frozen", "frozen-constant"):
        train_frozen(series, data, shape, a.seed, base)
    for kind in CONTINUED:
        if series.wanted(kind, TWIN[kind]):
            train_continued(series, data, shape, a.seed, kind, base)


if __name__ == "__main__":
    main()
