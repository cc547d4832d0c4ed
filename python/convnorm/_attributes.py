"""The attributes of a problem, as the line that the operator takes: see docs/problem-line.md.

Shapes, dtype and which tensors are given are not among them: the tensors say that.
"""
from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Sequence, Union

Padding = Union[int, str, "tuple[int, int]"]
Post = Union[None, str, Sequence[str]]


@dataclass(frozen=True)
class Attributes:
    """`y = post(GroupNorm(pre(conv1d(x, w) + b)))` without its shapes."""

    groups: int  # of the norm; 0: no norm
    stride: int = 1
    dilation: int = 1
    padding: Padding = 0  # both sides, (left, right), "same" or "causal"
    padding_mode: str = "zeros"
    conv_groups: int = 1
    eps: float = 1e-5
    pre: str = "none"
    post: tuple[str, ...] = ()  # as in a problem line: "silu", "leaky_relu(0.2)", "film", "add", ...
    layout: str = "ncl"
    precision: str = "high"

    @property
    def line(self) -> str:
        padding = one(self.padding)
        if isinstance(padding, tuple):
            if len(padding) != 2:
                raise ValueError(f"padding={padding} must be a number, (left, right), 'same' or 'causal'")
            padding = f"{padding[0]}:{padding[1]}"
        wanted = {
            "s": (one(self.stride), 1),
            "d": (one(self.dilation), 1),
            "p": (padding, 0),
            "pad": (self.padding_mode, "zeros"),
            "cg": (self.conv_groups, 1),
            "g": (self.groups, None),
            "eps": (self.eps, 1e-5),
            "pre": (self.pre, "none"),
            "post": ("+".join(self.post), ""),
            "layout": (self.layout, "ncl"),
            "precision": (self.precision, "high")
        }
        return ",".join(f"{key}={value}" for key, (value, default) in wanted.items() if value != default)

    @property
    def post_stages(self) -> tuple[tuple[str, float | None], ...]:
        """Name and parameter of each operation after the norm."""
        return stages_of(self.post)

    @property
    def uses_sum_with_residual(self) -> bool:
        """Whether an operation follows the addition of the residual, so that gradients depend on it."""
        return "add" in self.post[:-1]

    def pads(self, kernel: int) -> tuple[int, int]:
        """Padding on the left and on the right."""
        return pads_of(self.padding, self.dilation, kernel)

    def output_length(self, length, kernel):
        """L_out for L inputs; also of tensors and of symbolic sizes."""
        return output_length(length, kernel, self.stride, self.dilation, self.padding)

    def channels_at(self, stage: str, channels: int) -> int:
        """Channels where `stage` stands among the operations after the norm; "": those of y."""
        for name, _ in self.post_stages:
            if name == stage:
                break
            if name == "glu":
                channels //= 2
        return channels


def one(value: Any) -> Any:
    """(2,) -> 2, as nn.Conv1d takes it."""
    return value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value


def pads_of(padding: Padding, dilation: int, kernel: int) -> tuple[int, int]:
    span = dilation * (kernel - 1)
    if padding == "same":
        return span // 2, span - span // 2
    if padding == "causal":
        return span, 0
    return (padding, padding) if isinstance(padding, int) else padding


def output_length(length, kernel: int, stride: int, dilation: int, padding: Padding):
    left, right = pads_of(padding, dilation, kernel)
    return (length + left + right - dilation * (kernel - 1) - 1) // stride + 1


@functools.lru_cache(maxsize=4096)
def stages_of(post: tuple[str, ...]) -> tuple[tuple[str, float | None], ...]:
    stages = []
    for text in post:
        name, parameter = re.fullmatch(r"(\w+)(?:\(([^()]*)\))?", text).groups()
        default = {"leaky_relu": 0.01, "elu": 1.0}.get(name)
        stages.append((name, default if parameter is None else float(parameter)))
    return tuple(stages)


@functools.lru_cache(maxsize=4096)
def parse(line: str) -> Attributes:
    """The attributes in a line. Rules are checked where the line is planned; here it only has to be readable."""
    given = dict(part.split("=", 1) for part in line.split(","))
    unknown = given.keys() - {"s", "d", "p", "pad", "cg", "g", "eps", "pre", "post", "layout", "precision"}
    if unknown:
        raise ValueError(f"attributes {line!r}: {sorted(unknown)[0]} is not among s, d, p, pad, cg, g, eps, pre, post, "
                         "layout, precision")
    padding = given.get("p", "0")
    if ":" in padding:
        padding = tuple(int(side) for side in padding.split(":"))
    elif padding not in ("same", "causal"):
        padding = int(padding)
    post = given.get("post", "none")
    return Attributes(groups=int(given["g"]), stride=int(given.get("s", 1)), dilation=int(given.get("d", 1)),
                      padding=padding, padding_mode=given.get("pad", "zeros"), conv_groups=int(given.get("cg", 1)),
                      eps=float(given.get("eps", 1e-5)), pre=given.get("pre", "none"),
                      post=() if post == "none" else tuple(post.split("+")), layout=given.get("layout", "ncl"),
                      precision=given.get("precision", "high"))


@functools.lru_cache(maxsize=4096, typed=True)  # 4.0 is refused, whether 4 was asked for before or not
def line_of(groups: int, stride: int, dilation: int, padding: Padding, padding_mode: str, conv_groups: int, eps: float,
            pre: str, post: tuple[str, ...], layout: str, precision: str) -> str:
    """The line of these attributes, built once."""
    return Attributes(groups, stride, dilation, padding, padding_mode, conv_groups, eps, pre, post, layout,
                      precision).line


def post_of(activation: Post, film: bool, residual: bool) -> tuple[str, ...]:
    """Operations after the norm in their order: `film` and `add` stand last where they are given and not named."""
    if activation is None or activation == "none":
        named = ()
    else:
        named = tuple(activation.split("+")) if isinstance(activation, str) else tuple(activation)
    if film and "film" not in named:
        named += ("film",)
    if residual and "add" not in named:
        named += ("add",)
    return named
