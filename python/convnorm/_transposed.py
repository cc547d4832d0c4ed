"""A transposed convolution as a convolution whose channels are the positions between two inputs.

    y[o, q * s + r] = sum over c, d of x[c, q + d] * w[c, o, r + p - s * d]

for stride s and padding p: an ordinary convolution over d with s output channels, r = 0 .. s - 1, for each of the
original's, whose results then take turns along the length.
"""
from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Iterable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import functional
from .nn import WeightId, transposed_weights


@dataclass(frozen=True)
class Shape:
    """The convolution in the place of a transposed one."""

    stride: int
    padding: int  # of the transposed one
    first: int  # the smallest d
    taps: int
    more: int  # positions per channel that there are beyond those of x

    @property
    def padding_pair(self) -> tuple[int, int]:
        return -self.first, self.more + self.first + self.taps - 1


def shape_of(module: Any) -> Optional[Shape]:
    """None for what is no plain ConvTranspose1d, or none that a convolution can stand in for."""
    if type(module) is not nn.ConvTranspose1d or module.groups != 1 or module.dilation != (1,):
        return None
    (k,), (s,), (p,), (extra,) = module.kernel_size, module.stride, module.padding, module.output_padding
    if s == 1 or (k + extra - 2 * p) % s != 0:
        return None
    first, last = -((k - 1 - p) // s), (s - 1 + p) // s
    shape = Shape(s, p, first, last - first + 1, (k + extra - 2 * p) // s - 1)
    return shape if first <= 0 and shape.padding_pair[1] >= 0 else None


def arranged(weight: Tensor, shape: Shape) -> Tensor:
    """(C_in, C_out, K) to (C_out * stride, C_in, taps)."""
    r = torch.arange(shape.stride, device=weight.device)[:, None]
    d = torch.arange(shape.first, shape.first + shape.taps, device=weight.device)[None, :]
    tap = r + shape.padding - shape.stride * d
    inside = (tap >= 0) & (tap < weight.shape[2])
    taken = torch.where(inside, weight[:, :, tap.clamp(0, weight.shape[2] - 1)], 0)  # (C_in, C_out, stride, taps)
    return taken.permute(1, 2, 0, 3).reshape(-1, weight.shape[0], shape.taps).contiguous()


class Arranged:
    """The arranged weight and bias of one module. They are made again, in the same memory, when those change."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.id = WeightId()
        self.weight: Optional[Tensor] = None
        self.bias: Optional[Tensor] = None
        self._counts: tuple = ()
        self._sources: tuple = ()
        self._held: tuple = ()  # their memory: as long as it is held nothing else has its address
        self._lines: dict[str, str] = {}
        transposed_weights.add(self)

    def line(self, precision: str) -> str:
        if precision not in self._lines:
            self._lines[precision] = functional.line_of(0, 1, 1, self.shape.padding_pair, "zeros", 1, 1e-5, "none", (),
                                                        "ncl", precision)
        return self._lines[precision]

    def forget(self, tensors: set[int]) -> None:
        """Lets them be made again if one of the tensors whose id() is given is their source."""
        if any(id(source()) in tensors for source in self._sources):
            self._counts = ()

    def update(self, weight: Tensor, bias: Optional[Tensor]) -> bool:
        """Whether they are up to date now. A CUDA graph that is being captured would hold the arranging."""
        try:  # addresses, too: what is put in a parameter's place by .to() or as its data is not counted
            counts = weight._version, weight.data_ptr()
            if bias is not None:
                counts += bias._version, bias.data_ptr()
        except RuntimeError:  # of an inference tensor, whose changes are not counted
            return False
        if counts == self._counts:
            return True
        if weight.is_cuda and torch.cuda.is_current_stream_capturing():
            return False
        with torch.inference_mode(False), torch.no_grad():
            self.weight = _into(self.weight, arranged(weight, self.shape))
            self.bias = None if bias is None else _into(self.bias, bias.repeat_interleave(self.shape.stride))
        self._counts = counts
        sources = [each for each in (weight, bias) if each is not None]
        self._sources, self._held = tuple(map(weakref.ref, sources)), tuple(each.detach() for each in sources)
        return True

    def __deepcopy__(self, memo: dict) -> "Arranged":
        return Arranged(self.shape)

    def __reduce__(self) -> tuple:
        return Arranged, (self.shape,)


def _into(old: Optional[Tensor], new: Tensor) -> Tensor:
    if old is None or (old.shape, old.dtype, old.device) != (new.shape, new.dtype, new.device):
        return new
    return old.copy_(new)


def run(x: Tensor, module: nn.ConvTranspose1d) -> Tensor:
    """The module's result: through the operator where nothing but numbers is asked for, else by the module itself."""
    weight, bias = module._parameters["weight"], module._parameters["bias"]
    its: Optional[Arranged] = module.__dict__.get("_convnorm_arranged")
    plain = type(x) is Tensor and x.dim() == 3 and x.dtype is weight.dtype is not torch.float64
    if (not plain or its is None or module.training or torch.compiler.is_compiling() or
            functional.is_watched(x, weight, bias) or not its.update(weight, bias)):
        return module(x)
    y = functional.apply(its.line(functional.precision_for(x, None)), its.id.number, x, its.weight, its.bias, None, None)
    n, channels, length = y.shape
    stride = its.shape.stride
    turns = y.as_strided((n, channels // stride, length, stride), (channels * length, stride * length, 1, length))
    return turns.reshape(n, channels // stride, length * stride)
