"""The operator composed of PyTorch's own: the definition in float64, and what the backward pass is made of."""
from __future__ import annotations

from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from ._attributes import Attributes


class Operands(NamedTuple):
    """The tensors of one call, named and shaped as the operator's arguments."""

    x: Tensor
    weight: Tensor
    bias: Optional[Tensor] = None
    gamma: Optional[Tensor] = None
    beta: Optional[Tensor] = None
    lengths: Optional[Tensor] = None
    pre_slope: Optional[Tensor] = None
    post_slope: Optional[Tensor] = None
    film_scale: Optional[Tensor] = None
    film_shift: Optional[Tensor] = None
    residual: Optional[Tensor] = None


def valid_mask(lengths: Tensor, size) -> Tensor:
    """(N, 1, size): which positions lie before each sample's end."""
    return (torch.arange(size, device=lengths.device) < lengths[:, None])[:, None, :]


def output_mask(attributes: Attributes, lengths: Tensor, kernel: int, l_out) -> Tensor:
    """(N, 1, L_out): the outputs that a sample would have alone."""
    return valid_mask(attributes.output_length(lengths, kernel).clamp(min=0), l_out)


def _source_positions(attributes: Attributes, x: Tensor, lengths: Tensor, kernel: int) -> tuple[Tensor, Tensor]:
    """(N, L + pads): from where padded positions take their value, and whether they have one, sample by sample."""
    left, right = attributes.pads(kernel)
    position = torch.arange(-left, x.shape[2] + right, device=x.device).expand(x.shape[0], -1)
    last = (lengths - 1)[:, None].clamp(min=0)
    if attributes.padding_mode == "reflect":
        source = torch.where(position > last, 2 * last - position, position.abs())
    else:
        source = position
    return source.clamp(min=0).minimum(last), position <= last + right


def pad(attributes: Attributes, x: Tensor, lengths: Optional[Tensor], kernel: int) -> Tensor:
    """x (N, C_in, L) -> (N, C_in, L + pads)."""
    sides = attributes.pads(kernel)
    if lengths is not None:
        x = torch.where(valid_mask(lengths, x.shape[2]), x, 0)
        if attributes.padding_mode != "zeros":
            source, within = _source_positions(attributes, x, lengths, kernel)
            gathered = x.gather(2, source[:, None, :].expand(-1, x.shape[1], -1))
            return torch.where(within[:, None, :], gathered, 0)
    if sides == (0, 0):
        return x
    return F.pad(x, sides, mode={"zeros": "constant"}.get(attributes.padding_mode, attributes.padding_mode))


def pad_backward(attributes: Attributes, grad: Tensor, x: Tensor, lengths: Optional[Tensor], kernel: int) -> Tensor:
    """Gradient of the padded input -> gradient of x (N, C_in, L)."""
    left, right = attributes.pads(kernel)
    if lengths is not None and attributes.padding_mode != "zeros":
        source, within = _source_positions(attributes, x, lengths, kernel)
        index = source[:, None, :].expand(-1, x.shape[1], -1)
        grad_x = torch.zeros_like(x, dtype=grad.dtype).scatter_add(2, index, torch.where(within[:, None, :], grad, 0))
    elif (left, right) == (0, 0):
        grad_x = grad
    elif attributes.padding_mode == "zeros":
        grad_x = grad.narrow(2, left, x.shape[2])
    elif attributes.padding_mode == "reflect":
        grad_x = torch.ops.aten.reflection_pad1d_backward(grad, x.to(grad.dtype), [left, right])
    else:
        grad_x = torch.ops.aten.replication_pad1d_backward(grad, x.to(grad.dtype), [left, right])
    return grad_x if lengths is None else torch.where(valid_mask(lengths, x.shape[2]), grad_x, 0)


def per_channel(parameter: Tensor) -> Tensor:
    """(C) or (1) -> (C or 1, 1), to go with (N, C, L)."""
    return parameter.view(-1, 1)


def statistics(z: Tensor, groups: int, eps: float, mask: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and rstd (N, G, 1) of each group, of its valid positions where `mask` is given."""
    n, channels, length = z.shape
    grouped = z.reshape(n, groups, -1)
    if mask is None:
        mean = grouped.mean(-1, keepdim=True)
        return mean, ((grouped - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
    valid = mask.expand(n, channels, length).reshape(n, groups, -1)
    count = valid.sum(-1, keepdim=True).clamp(min=1)
    mean = torch.where(valid, grouped, 0).sum(-1, keepdim=True) / count
    variance = torch.where(valid, grouped - mean, 0).square().sum(-1, keepdim=True) / count
    return mean, (variance + eps).rsqrt()


def normalise(attributes: Attributes, z: Tensor, gamma: Optional[Tensor], beta: Optional[Tensor],
              mask: Optional[Tensor]) -> Tensor:
    """GroupNorm of z (N, C_out, L_out), over valid positions only where `mask` is given."""
    if attributes.groups == 0:
        return z
    if mask is None:
        return F.group_norm(z, attributes.groups, gamma, beta, attributes.eps)
    mean, rstd = statistics(z, attributes.groups, attributes.eps, mask)
    normalised = ((z.reshape(z.shape[0], attributes.groups, -1) - mean) * rstd).reshape(z.shape)
    return normalised if gamma is None else normalised * per_channel(gamma) + per_channel(beta)


def prelu(v: Tensor, slope: Tensor) -> Tensor:
    """v >= 0 ? v : slope * v, with one slope or one per channel."""
    return torch.where(v >= 0, v, v * per_channel(slope))


def post_stage(name: str, parameter: Optional[float], v: Tensor, operands: Operands) -> Tensor:
    """One operation after the norm."""
    if name == "prelu":
        return prelu(v, operands.post_slope)
    if name == "film":
        return v * operands.film_scale[:, :, None] + operands.film_shift[:, :, None]
    if name == "add":
        return v + operands.residual
    if name == "leaky_relu":
        return F.leaky_relu(v, parameter)
    if name == "elu":
        return F.elu(v, parameter)
    if name == "glu":
        return F.glu(v, 1)
    if name == "gelu_tanh":
        return F.gelu(v, approximate="tanh")
    return {"relu": torch.relu, "silu": F.silu, "gelu": F.gelu, "mish": F.mish, "tanh": torch.tanh,
            "sigmoid": torch.sigmoid}[name](v)


def convolution(attributes: Attributes, operands: Operands) -> Tensor:
    """z before the norm, (N, C_out, L_out)."""
    x, weight = operands.x, operands.weight
    padded = pad(attributes, x, operands.lengths, weight.shape[2])
    return F.conv1d(padded, weight, operands.bias, attributes.stride, 0, attributes.dilation, attributes.conv_groups)


def pre_stage(attributes: Attributes, z: Tensor, slope: Optional[Tensor]) -> Tensor:
    """The operation between convolution and norm."""
    if attributes.pre == "relu":
        return torch.relu(z)
    return prelu(z, slope) if attributes.pre == "prelu" else z


def conv1d_group_norm(attributes: Attributes, operands: Operands) -> Tensor:
    """What torch.ops.convnorm.conv1d_group_norm computes, by PyTorch's operators and differentiable by its autograd."""
    if attributes.layout == "nlc":
        operands = operands._replace(x=operands.x.transpose(1, 2), residual=None if operands.residual is None
                                     else operands.residual.transpose(1, 2))
    z = convolution(attributes, operands)
    mask = None
    if operands.lengths is not None:
        mask = output_mask(attributes, operands.lengths, operands.weight.shape[2], z.shape[2])
    z = pre_stage(attributes, z, operands.pre_slope)
    y = normalise(attributes, z, operands.gamma, operands.beta, mask)
    for name, parameter in attributes.post_stages:
        y = post_stage(name, parameter, y, operands)
    if mask is not None:
        y = torch.where(mask, y, 0)
    return y.transpose(1, 2).contiguous() if attributes.layout == "nlc" else y
