"""Writes checkpoints of several kinds into the directory given, for the tests of the package beside it.

Beside each FILE there is FILE.json: the storages by the path that leads to each, with the CRC-32 of their bytes.
Exit status 77: there is no PyTorch.
"""
import collections, json, os, sys, warnings, zlib

warnings.filterwarnings("ignore")
try:
    import torch
except ImportError:
    sys.exit(77)

out = sys.argv[1]
torch.manual_seed(1)


def walk(path, value, seen, found):
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            walk(path + ["1", "0"], value._indices(), seen, found)
            walk(path + ["1", "1"], value._values(), seen, found)
            return
        storage = value.storage()
        if storage.data_ptr() in seen or not storage.nbytes():
            return
        seen.add(storage.data_ptr())
        raw = bytes(torch.tensor([], dtype=torch.uint8).set_(storage.untyped()).numpy().tobytes())
        found[".".join(path)] = {
            "dtype": str(value.dtype).removeprefix("torch."), "bytes": len(raw), "crc": zlib.crc32(raw)}
    elif isinstance(value, dict):
        for k, v in value.items():
            walk(path + ["(%s)" % ",".join(map(str, k)) if isinstance(k, tuple) else str(k)], v, seen, found)
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            walk(path + [str(i)], v, seen, found)


def save(name, value, **how):
    found = {}
    walk([], value, set(), found)
    torch.save(value, os.path.join(out, name), **how)
    with open(os.path.join(out, name + ".json"), "w") as f:
        json.dump(found, f)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(50, 8)
        self.body = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(12)])
        self.norm = torch.nn.BatchNorm1d(8)
        self.head = torch.nn.Linear(8, 50, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.norm(self.body(self.emb(x))))


def train(optimizer, **options):
    net = Net()
    opt = optimizer(net.parameters(), lr=1e-3, **options)
    x = torch.randint(0, 50, (16,))
    before = state(net, opt)
    save(optimizer.__name__ + "_0.pt", before)
    for step in range(1, 3):
        torch.nn.functional.cross_entropy(net(x), x).backward()
        opt.step()
    save(optimizer.__name__ + "_20000.pt", state(net, opt, 20000))
    return net, opt


def state(net, opt, step=0):
    return {"model": net.state_dict(), "optim": opt.state_dict(), "step": step, "rng": torch.get_rng_state(),
            "name": "a" * (step // 1000), "loss": torch.tensor(1.5)}


net, opt = train(torch.optim.Adam)
train(torch.optim.AdamW, amsgrad=True)
train(torch.optim.SGD, momentum=0.9)
train(torch.optim.RMSprop)
train(torch.optim.Adagrad)

save("types.pt", {n: (torch.randn(6) * 9).to(getattr(torch, n)) for n in (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")})
save("half.pth", {k: v.half() if v.is_floating_point() else v for k, v in net.state_dict().items()})
base = torch.randn(4, 6)
save("views.pt", {"rows": base[1:3], "all": base, "t": base.t(), "scalar": base[0, 0], "empty": torch.zeros(0)})
save("parameter.bin", torch.nn.Parameter(torch.randn(5)))
save("tensor.pt", torch.randn(5, 5))
save("sparse.pt", {"s": torch.eye(5).to_sparse(), "d": torch.ones(3)})
save("nested.ckpt", {
    "epoch": 3, "global_step": 70000, "pytorch-lightning_version": "2.0",
    "state_dict": collections.OrderedDict((k, v) for k, v in net.state_dict().items()),
    "optimizer_states": [opt.state_dict()], "lr_schedulers": [{"last_epoch": 3, "_last_lr": [1e-3]}],
    "loops": {"fit_loop": {"state": {}}}, "callbacks": {("a", 1): {"best": torch.ones(2)}},
    "floats": [0.1, True, None, (1, 2, {"deep": (torch.ones(4), [torch.zeros(2, 2)])})],
    "hyper_parameters": {"bytes": b"\x00\xff", "set": {1, 2}, "big": 1 << 90, "negative": -5}})
for protocol in (2, 3, 4, 5):
    save("protocol%d.pt" % protocol, {"model": net.state_dict(), "u": "é" * 300, "l": list(range(2000)), "p": list(net.parameters())},
         pickle_protocol=protocol)
many = {"layer.%d" % i: torch.full((3,), float(i)) for i in range(3000)}
save("many.pt", many)

torch.save(net, os.path.join(out, "module.pt"))
torch.save({"a": torch.ones(3)}, os.path.join(out, "legacy.pt"), _use_new_zipfile_serialization=False)
torch.jit.script(torch.nn.Linear(3, 3)).save(os.path.join(out, "script.pt"))

# What torch.distributed.checkpoint's FileSystemWriter does with two blobs and the tensors of a rank.
with open(os.path.join(out, "__0_0.distcp"), "wb") as f:
    torch.save({"lr": 1e-3, "rng": torch.get_rng_state()}, f)
    torch.save([1, 2, 3], f)
    for p in net.parameters():
        torch.save(p.detach().clone(), f)
    torch.save(torch.randn(300_000), f)
