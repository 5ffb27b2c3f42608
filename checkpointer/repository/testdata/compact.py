"""Torch checkpoints for the test of compact snapshots.

compact.py make DIR: saves model and AdamW state of two steps of a training, ckpt_1.pt and ckpt_2.pt.
compact.py check SAVED RESTORED MOMENTUM VARIANCE: compares what torch.load makes of two files. The bounds are the largest
errors of moments, relative. Prints how many moments differ. Exit status 77: there is no PyTorch.
"""
import os, sys, warnings, zipfile

warnings.filterwarnings("ignore")
try:
    import torch
except ImportError:
    sys.exit(77)


def make(out):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.LayerNorm(400), torch.nn.Linear(400, 200))
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in (1, 2):
        optim.zero_grad()
        model(torch.randn(32, 300)).square().mean().backward()
        optim.step()
        state = {"model": model.state_dict(), "optim": optim.state_dict(), "step": step, "rng": torch.get_rng_state()}
        torch.save(state, os.path.join(out, f"ckpt_{step}.pt"))


def check(saved, restored, momentum, variance):
    bad = zipfile.ZipFile(restored).testzip()
    assert bad is None, f"the checksum of {bad} is wrong"
    a, b = torch.load(saved), torch.load(restored)
    assert a["step"] == b["step"] and torch.equal(a["rng"], b["rng"])
    assert a["model"].keys() == b["model"].keys()
    for k, t in a["model"].items():
        assert torch.equal(t, b["model"][k]), k
    changed = 0
    assert a["optim"]["state"].keys() == b["optim"]["state"].keys()
    for i, s in a["optim"]["state"].items():
        r = b["optim"]["state"][i]
        assert torch.equal(torch.as_tensor(s["step"]), torch.as_tensor(r["step"]))
        for name, bound in (("exp_avg", momentum), ("exp_avg_sq", variance)):
            x, y = s[name].double(), r[name].double()
            assert (y - x).abs().le(bound * x.abs()).all(), f"{name} of {i}"
            changed += int((x != y).sum())
    torch.optim.AdamW([t.requires_grad_() for t in b["model"].values()]).load_state_dict(b["optim"])
    print(changed)


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    check(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
