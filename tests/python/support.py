"""Inputs, and what results are held against."""
import torch

from convnorm import reference
from convnorm._attributes import parse
from convnorm.reference import Operands


def fill(shape, step, offset, modulus, scale, shift=0.0, dtype=torch.float32):
    """((step*i + offset) mod modulus - modulus//2)/scale + shift for i = 0, 1, ...: exact in every dtype."""
    index = torch.arange(torch.Size(shape).numel())
    return (((step * index + offset) % modulus - modulus // 2) / scale + shift).reshape(shape).to(dtype)


def x_fill(*shape, dtype=torch.float32):
    return fill(shape, 37, 11, 101, 32, dtype=dtype)


def w_fill(*shape, dtype=torch.float32):
    return fill(shape, 53, 7, 61, 64, dtype=dtype)


def b_fill(channels):
    return fill((channels,), 29, 3, 17, 8)


def gamma_fill(channels):
    return fill((channels,), 5, 1, 9, 8, 1.0)


def beta_fill(channels):
    return fill((channels,), 7, 2, 13, 8)


def s1(dtype=torch.float32):
    """Case S1 of the bug cases: x (2, 6, 20), C_out 8, K 3, padding 1, G 4."""
    return Operands(x_fill(2, 6, 20, dtype=dtype), w_fill(8, 6, 3, dtype=dtype), b_fill(8), gamma_fill(8), beta_fill(8))


S1_LINE = "p=1,g=4"


def identity(channels):
    """Weight of a depthwise convolution that does nothing."""
    return torch.ones(channels, 1, 1)


def in_double(operands):
    return Operands(*(each.double() if each is not None and each.is_floating_point() else each for each in operands))


def call(line, operands):
    return torch.ops.convnorm.conv1d_group_norm(*operands[:5], line, 0, *operands[5:])


def expected(line, operands):
    """The composition in float64."""
    return reference.conv1d_group_norm(parse(line), in_double(operands))


def expect_close(actual, wanted, tolerance=2e-5):
    """Within tolerance * max(1, |wanted|) everywhere; NaN only where NaN is wanted."""
    actual, wanted = actual.double().cpu(), wanted.double().cpu()
    assert actual.shape == wanted.shape
    assert torch.equal(actual.isnan(), wanted.isnan())
    excess = ((actual - wanted).abs() - tolerance * wanted.abs().clamp(min=1)).nan_to_num(0)
    assert excess.numel() == 0 or excess.max() <= 0, f"too far by {excess.max().item()}"
