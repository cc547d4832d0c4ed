"""A transposed convolution as a convolution whose channels are the positions between two inputs.

    y[o, q * s + r] = sum over c, d of x[c, q + d] * w[c, o, r + p - s * d]

for stride s and padding p: an ordinary convolution over d with s output channels, r = 0 .. s - 1, for each of the
original's, whose results then take turns along the length. There is one weight, the module's: what is kept of it is its
packed form, as of any other, by the same rules.
"""
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from . import functional
from .nn import kept_number, plain_parameters

_phases = torch.ops.convnorm.phases.default
_dispatch = getattr(_phases, "_op", _phases)


@dataclass(frozen=True)
class Shape:
    """The convolution in the place of a transposed one."""

    stride: int
    padding: int  # of the transposed one
    first: int  # the smallest d
    taps: int
    extra_positions: int  # per channel, beyond those of x

    @property
    def pads(self) -> tuple[int, int]:
        return -self.first, self.extra_positions + self.first + self.taps - 1

    @property
    def left(self) -> int:
        """Zeros before the transposed one's first tap, so that its taps fall into rows of `stride`."""
        return self.stride * (self.first + self.taps - 1) - self.padding

    @functools.lru_cache(maxsize=None)
    def line(self, precision: str) -> str:
        return functional.line_of(0, 1, 1, self.pads, "zeros", 1, 1e-5, "none", (), "ncl", precision)


@functools.lru_cache(maxsize=4096)
def _shape(kernel: int, stride: int, padding: int, output_padding: int) -> Optional[Shape]:
    beyond = kernel + output_padding - 2 * padding
    if stride == 1 or beyond % stride != 0:
        return None
    first, last = -((kernel - 1 - padding) // stride), (stride - 1 + padding) // stride
    shape = Shape(stride, padding, first, last - first + 1, beyond // stride - 1)
    return shape if first <= 0 and shape.pads[1] >= 0 else None


def shape_of(conv: nn.ConvTranspose1d, kernel: int) -> Optional[Shape]:
    """None where no convolution can stand in for it."""
    if conv.groups != 1 or conv.dilation != (1,):
        return None
    return _shape(kernel, conv.stride[0], conv.padding[0], conv.output_padding[0])


def is_taken(module: Any) -> bool:
    return type(module) is nn.ConvTranspose1d and shape_of(module, module.weight.shape[2]) is not None


def run(x: Tensor, conv: nn.ConvTranspose1d) -> Tensor:
    """The module's result: through the operator where nothing but numbers is asked for, else by the module itself."""
    parameters = plain_parameters(x, conv)
    shape = None if parameters is None else _taken_shape(x, *parameters, conv)
    if shape is None:
        return conv(x)
    weight, bias = parameters
    arguments = (x, weight, shape.line(functional.precision_for(x, None)), shape.stride, shape.left, shape.taps,
                 kept_number(conv))
    if torch.is_inference_mode_enabled():
        return _in_turns(_dispatch(*arguments), shape.stride, bias)
    with torch._C._AutoDispatchBelowAutograd():
        return _in_turns(_dispatch(*arguments), shape.stride, bias)


def _taken_shape(x: Tensor, weight: Tensor, bias: Optional[Tensor], conv: nn.ConvTranspose1d) -> Optional[Shape]:
    """None for what the operator does not take, or where an error is to be PyTorch's."""
    if x.dim() != 3 or weight.dim() != 3:
        return None
    (n, channels, length), (c_in, c_out, kernel) = x.shape, weight.shape
    if channels != c_in or n == 0 or length == 0 or (bias is not None and (bias.dim() != 1 or len(bias) != c_out)):
        return None
    shape = shape_of(conv, kernel)
    return shape if shape is not None and length + shape.extra_positions > 0 else None


def _in_turns(phases: Tensor, stride: int, bias: Optional[Tensor]) -> Tensor:
    """(N, C_out * stride, positions) -> (N, C_out, positions * stride), with the bias added: PixelShuffle in one dimension."""
    n, channels, positions = phases.shape
    c_out = channels // stride
    turns = phases.as_strided((n, c_out, positions, stride), (channels * positions, stride * positions, 1, positions))
    y = phases.new_empty((n, c_out, positions, stride))
    if bias is None:
        y.copy_(turns)
    else:
        torch.add(turns, bias.view(c_out, 1, 1), out=y)
    return y.view(n, c_out, positions * stride)
