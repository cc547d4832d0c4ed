"""Gradients of the operator. z and what follows it are computed again, so that a forward pass keeps its inputs only."""
from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from . import reference
from ._attributes import Attributes
from .reference import Operands, per_channel

aten = torch.ops.aten


def _prelu_backward(grad: Tensor, v: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    grad_v = torch.where(v >= 0, grad, grad * per_channel(slope))
    toward_slope = torch.where(v >= 0, 0, grad * v)
    return grad_v, toward_slope.sum().view(1) if slope.numel() == 1 else toward_slope.sum((0, 2))


def _pointwise_backward(name: str, parameter: Optional[float], grad: Tensor, v: Tensor) -> Tensor:
    if name == "relu":
        return torch.where(v > 0, grad, 0)
    if name == "leaky_relu":
        return aten.leaky_relu_backward(grad, v, parameter, False)
    if name in ("silu", "mish") and torch.is_grad_enabled():  # PyTorch's own steps have no derivatives
        s, t = torch.sigmoid(v), torch.tanh(F.softplus(v))
        return grad * (s * (1 + v * (1 - s)) if name == "silu" else t + v * s * (1 - t.square()))
    if name == "silu":
        return aten.silu_backward(grad, v)
    if name in ("gelu", "gelu_tanh"):
        return aten.gelu_backward(grad, v, approximate="none" if name == "gelu" else "tanh")
    if name == "mish":
        return aten.mish_backward(grad, v)
    if name == "elu":
        return aten.elu_backward(grad, parameter, 1.0, 1.0, False, v)
    if name == "tanh":
        return grad * (1 - torch.tanh(v).square())
    if name == "sigmoid":
        return aten.sigmoid_backward(grad, torch.sigmoid(v))
    return aten.glu_backward(grad, v, 1)


def _norm_backward(attributes: Attributes, grad: Tensor, z: Tensor, gamma: Optional[Tensor],
                   mask: Optional[Tensor]) -> tuple[Tensor, Optional[Tensor], Optional[Tensor]]:
    """Gradients of z, gamma and beta."""
    n, channels, length = z.shape
    groups = attributes.groups
    affine = gamma is not None
    # PyTorch's own step has no derivative, so that second derivatives take the long way.
    if mask is None and not torch.is_grad_enabled():
        _, mean, rstd = torch.native_group_norm(z, gamma, None, n, channels, length, groups, attributes.eps)
        return aten.native_group_norm_backward(grad.contiguous(), z, mean, rstd, gamma, n, channels, length, groups,
                                               [True, affine, affine])
    mean, rstd = reference.statistics(z, groups, attributes.eps, mask)
    normalised = ((z.reshape(n, groups, -1) - mean) * rstd).reshape(z.shape)
    if mask is None:
        count = channels // groups * length
    else:
        normalised, grad = torch.where(mask, normalised, 0), torch.where(mask, grad, 0)
        count = mask.sum((1, 2)).clamp(min=1)[:, None, None] * (channels // groups)
    scaled = grad * per_channel(gamma) if affine else grad

    def group_mean(values: Tensor) -> Tensor:
        return values.reshape(n, groups, -1).sum(-1, keepdim=True) / count

    inner = scaled.reshape(n, groups, -1) - group_mean(scaled) - (
        normalised.reshape(n, groups, -1) * group_mean(scaled * normalised))
    grad_z = (inner * rstd).reshape(z.shape)
    if mask is not None:
        grad_z = torch.where(mask, grad_z, 0)
    if not affine:
        return grad_z, None, None
    return grad_z, (grad * normalised).sum((0, 2)), grad.sum((0, 2))


def gradients(attributes: Attributes, operands: Operands, grad: Tensor, wanted: Operands) -> Operands:
    """Gradient of every operand for which `wanted` is true, None for the others. Differentiable in its turn.

    16-bit tensors are computed in float32, but for the convolutions on GPUs.
    """
    nlc = attributes.layout == "nlc"
    x = operands.x.transpose(1, 2) if nlc else operands.x
    grad = grad.transpose(1, 2) if nlc else grad
    work = torch.float64 if x.dtype == torch.float64 else torch.float32
    conv_type = x.dtype if x.is_cuda else work
    kernel = operands.weight.shape[2]
    given = _in(work, operands)

    # Forward again, up to each stage's input.
    padded = reference.pad(attributes, x.to(conv_type), operands.lengths, kernel)
    weight = operands.weight.to(conv_type)
    bias = None if operands.bias is None else operands.bias.to(conv_type)
    z = F.conv1d(padded, weight, bias, attributes.stride, 0, attributes.dilation, attributes.conv_groups).to(work)
    mask = None
    if operands.lengths is not None:
        mask = reference.output_mask(attributes, operands.lengths, kernel, z.shape[2])
    activated = reference.pre_stage(attributes, z, given.pre_slope)
    v = reference.normalise(attributes, activated, given.gamma, given.beta, mask)
    stage_inputs = []
    for name, parameter in attributes.post_stages:
        stage_inputs.append(v)
        if name != "add" or attributes.uses_sum_with_residual:
            v = reference.post_stage(name, parameter, v, given)

    result = {}
    grad = grad.to(work)
    if mask is not None:
        grad = torch.where(mask, grad, 0)
    for (name, parameter), v in zip(reversed(attributes.post_stages), reversed(stage_inputs)):
        if name == "add":
            result["residual"] = grad.transpose(1, 2) if nlc else grad
        elif name == "film":
            result["film_scale"], result["film_shift"] = (grad * v).sum(2), grad.sum(2)
            grad = grad * given.film_scale[:, :, None]
        elif name == "prelu":
            grad, result["post_slope"] = _prelu_backward(grad, v, given.post_slope)
        else:
            grad = _pointwise_backward(name, parameter, grad, v)
    if attributes.groups:
        grad, result["gamma"], result["beta"] = _norm_backward(attributes, grad, activated, given.gamma, mask)
    if attributes.pre == "relu":
        grad = torch.where(z > 0, grad, 0)
    elif attributes.pre == "prelu":
        grad, result["pre_slope"] = _prelu_backward(grad, z, given.pre_slope)
    needs = [bool(wanted.x), bool(wanted.weight), bool(wanted.bias)]
    if any(needs):
        grad_padded, result["weight"], result["bias"] = aten.convolution_backward(
            grad.to(conv_type), padded, weight, None if bias is None else [weight.shape[0]], [attributes.stride], [0],
            [attributes.dilation], False, [0], attributes.conv_groups, needs)
        if needs[0]:
            grad_x = reference.pad_backward(attributes, grad_padded, x, operands.lengths, kernel)
            result["x"] = grad_x.transpose(1, 2) if nlc else grad_x
    if result.get("residual") is not None:
        result["residual"] = result["residual"].to(x.dtype)  # which is its own, and it may not have been kept
    return Operands(*(_as(like, result.get(name)) if need else None
                      for name, like, need in zip(Operands._fields, operands, wanted)))


def _in(dtype: torch.dtype, operands: Operands) -> Operands:
    """What is added or multiplied after the convolution, in the type of the computation."""
    return operands._replace(**{name: getattr(operands, name).to(dtype)
                                for name in ("gamma", "beta", "pre_slope", "post_slope", "film_scale", "film_shift",
                                             "residual")
                                if getattr(operands, name) is not None})


def _as(like: Optional[Tensor], grad: Optional[Tensor]) -> Optional[Tensor]:
    return grad if grad is None or like is None else grad.to(like.dtype)
