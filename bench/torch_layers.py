"""Layers given as problem lines, computed by PyTorch's own operators: what ours is compared with."""
import re

import torch
import torch.nn.functional as F

ACTIVATIONS = {
    "relu": F.relu, "silu": F.silu, "gelu": F.gelu, "mish": F.mish, "elu": F.elu, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "glu": lambda z: F.glu(z, 1), "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "leaky_relu": F.leaky_relu,
}


def read_layers(path):
    """{name: problem line} of a file of bench/shapes."""
    with open(path) as f:
        rows = [row.rstrip("\n").split("\t") for row in f if row.strip() and not row.startswith("#")]
    return {name: line for name, line, *_ in rows}


def parse(line):
    q = dict(s=1, d=1, p="0", cg=1, bias=0, affine=1, eps=1e-5, pre="", post="", pad="zeros")
    q.update(kv.split("=", 1) for kv in line.split(","))
    q["post"] = q["post"].replace("leaky_relu(0.01)", "leaky_relu").replace("elu(1)", "elu")
    if not q["p"].isdigit() or "(" in q["post"] or "lengths" in q or "layout" in q:
        raise SystemExit(
            f"{line}: this comparison mirrors plain padding, default op parameters and NCL without lengths")
    for k in ("n", "c", "l", "o", "k", "s", "d", "cg", "g", "bias", "affine"):
        q[k] = int(q[k])
    return q


def with_dtype(line, dtype):
    """The problem line in another element type: f32, f16 or bf16."""
    line = re.sub(r",dtype=\w+", "", line)
    return line if dtype == "f32" else f"{line},dtype={dtype}"


class TorchLayer:
    """Conv1d, GroupNorm and what follows as PyTorch runs them, with random parameters."""

    def __init__(self, line, dtype=torch.float32, device="cpu", channels_last=False):
        self.q = q = parse(line)
        self.dtype, self.device, self.channels_last = dtype, device, channels_last
        conv = torch.nn.Conv1d(q["c"], q["o"], q["k"], q["s"], int(q["p"]), q["d"], q["cg"], bool(q["bias"]),
                               padding_mode=q["pad"])
        norm = torch.nn.GroupNorm(q["g"], q["o"], float(q["eps"]), bool(q["affine"]))
        self.conv, self.norm = conv.to(device, dtype), norm.to(device, dtype)
        # cuDNN knows channels last in two dimensions only.
        self.weight = self.conv.weight.unsqueeze(2).to(memory_format=torch.channels_last) if channels_last else None
        self.slope = torch.full((q["o"],), 0.25, dtype=dtype, device=device)
        self.post = [t for t in q["post"].split("+") if t]
        span = q["d"] * (q["k"] - 1) + 1
        l_out = (q["l"] + 2 * int(q["p"]) - span) // q["s"] + 1
        self.scale, self.shift = torch.randn(2, q["n"], q["o"], 1, device=device).to(dtype)
        self.residual = torch.randn(q["n"], q["o"], l_out, device=device).to(dtype) if "add" in self.post else None

    def draw_x(self):
        x = torch.randn(self.q["n"], self.q["c"], self.q["l"], device=self.device).to(self.dtype)
        return x.unsqueeze(2).to(memory_format=torch.channels_last) if self.channels_last else x

    def convolve(self, x):
        if not self.channels_last:
            return self.conv(x)
        q = self.q
        if q["pad"] != "zeros":
            x = F.pad(x, (int(q["p"]), int(q["p"]), 0, 0), mode=q["pad"])
        padding = (0, int(q["p"]) if q["pad"] == "zeros" else 0)
        return F.conv2d(x, self.weight, self.conv.bias, (1, q["s"]), padding, (1, q["d"]), q["cg"])

    def __call__(self, x):
        y = self.convolve(x)
        if self.q["pre"] == "prelu":
            y = F.prelu(y, self.slope)
        elif self.q["pre"] == "relu":
            y = F.relu(y)
        y = self.norm(y)
        lift = (lambda t: t.unsqueeze(2)) if self.channels_last else (lambda t: t)
        for op in self.post:
            if op == "film":
                y = y * lift(self.scale) + lift(self.shift)
            elif op == "add":
                y = y + lift(self.residual)
            else:
                y = ACTIVATIONS[op](y)
        return y

    def in_double(self):
        """The same layer with the same parameters in fp64."""
        twin = TorchLayer.__new__(TorchLayer)
        twin.__dict__.update(self.__dict__)
        twin.dtype, twin.channels_last = torch.float64, False
        twin.conv = torch.nn.Conv1d(self.q["c"], self.q["o"], self.q["k"], self.q["s"], int(self.q["p"]), self.q["d"],
                                    self.q["cg"], bool(self.q["bias"]), padding_mode=self.q["pad"])
        twin.norm = torch.nn.GroupNorm(self.q["g"], self.q["o"], float(self.q["eps"]), bool(self.q["affine"]))
        twin.conv, twin.norm = twin.conv.to(self.device).double(), twin.norm.to(self.device).double()
        twin.conv.load_state_dict({k: v.double() for k, v in self.conv.state_dict().items()})
        twin.norm.load_state_dict({k: v.double() for k, v in self.norm.state_dict().items()})
        for name in ("slope", "scale", "shift", "residual"):
            value = getattr(self, name)
            setattr(twin, name, None if value is None else value.double())
        return twin
