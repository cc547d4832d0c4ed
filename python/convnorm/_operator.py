"""What PyTorch must know of torch.ops.convnorm.conv1d_group_norm beside its kernels: shapes, gradients, vmap."""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _backward, _library  # noqa: F401  (_library registers the operator)
from ._attributes import parse
from .reference import Operands

NAME = "convnorm::conv1d_group_norm"
conv1d_group_norm = torch.ops.convnorm.conv1d_group_norm.default

# The operator's arguments: x, weight, bias, gamma, beta, attributes, weight_id, lengths, ..., residual.
_ATTRIBUTES, _LENGTHS = 5, 7


def _operands(arguments: tuple) -> Operands:
    return Operands(*arguments[:_ATTRIBUTES], *arguments[_LENGTHS:])


@torch.library.register_fake(NAME)
def _fake(x: Tensor, weight: Tensor, bias: Optional[Tensor], gamma: Optional[Tensor], beta: Optional[Tensor],
          attributes: str, *_others: Any, **_named: Any) -> Tensor:
    asked = parse(attributes)
    torch._check(x.dim() == 3, lambda: f"convnorm: x has the shape {tuple(x.shape)}, but x must have three axes")
    torch._check(weight.dim() == 3,
                 lambda: f"convnorm: weight has the shape {tuple(weight.shape)}, but weight must have three axes")
    channels, length = (x.shape[2], x.shape[1]) if asked.layout == "nlc" else (x.shape[1], x.shape[2])
    torch._check(channels == weight.shape[1] * asked.conv_groups,
                 lambda: f"convnorm: x has {channels} channels, but weight {tuple(weight.shape)} with groups="
                         f"{asked.conv_groups} takes {weight.shape[1] * asked.conv_groups}")
    c_y = asked.channels_at("", weight.shape[0])
    l_out = asked.output_length(length, weight.shape[2])
    return x.new_empty((x.shape[0], l_out, c_y) if asked.layout == "nlc" else (x.shape[0], c_y, l_out))


class _Recorded(torch.autograd.Function):
    """The operator with its gradients. Keeps its inputs alone."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, *arguments: Any) -> Tensor:
        ctx.attributes = attributes = parse(arguments[_ATTRIBUTES])
        # Arguments at the end that are left at their defaults are not handed over.
        kept = (*arguments[:_ATTRIBUTES], *arguments[_LENGTHS:])
        if len(kept) == len(Operands._fields) and not attributes.uses_sum_with_residual:
            kept = kept[:-1]
        ctx.save_for_backward(*kept)
        return _below_autograd(keyset, arguments)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        needs = ctx.needs_input_grad[1:]
        needs += (False,) * (len(Operands._fields) + 2 - len(needs))
        found = _backward.gradients(ctx.attributes, Operands(*ctx.saved_tensors), grad, _operands(needs))
        given = (None, *found[:_ATTRIBUTES], None, None, *found[_ATTRIBUTES:])
        return given[:len(ctx.needs_input_grad)]


def _below_autograd(keyset: Any, arguments: tuple) -> Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        return conv1d_group_norm.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)


def _autograd(keyset: Any, *arguments: Any) -> Tensor:
    if forward_ad._current_level >= 0 and any(
            isinstance(each, Tensor) and forward_ad.unpack_dual(each).tangent is not None for each in arguments):
        raise NotImplementedError("convnorm: the operator has no forward-mode gradients; call "
                                  "convnorm.functional.conv1d_group_norm, which composes them of PyTorch's operators")
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
        return _Recorded.apply(keyset, *arguments)
    return _below_autograd(keyset, arguments)


# What torch.library.register_autograd would register, without its way through the schema at every call.
_kernels = torch.library.Library("convnorm", "IMPL")  # which registers as long as it lives
_kernels.impl("conv1d_group_norm", _autograd, "Autograd", with_keyset=True)


def _phases(keyset: Any, *arguments: Any) -> Tensor:
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
        raise NotImplementedError("convnorm: torch.ops.convnorm.phases has no gradients; call nn.ConvTranspose1d")
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.convnorm.phases.default.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)


_kernels.impl("phases", _phases, "Autograd", with_keyset=True)


@torch.library.register_vmap(NAME)
def _vmap(info: Any, in_dims: tuple, *arguments: Any) -> tuple[Tensor, int]:
    size = info.batch_size
    along_n = {"x", "lengths", "film_scale", "film_shift", "residual"}
    operands, dims = _operands(arguments), _operands(in_dims)
    attributes = arguments[_ATTRIBUTES]

    def call(each: Operands) -> Tensor:
        return conv1d_group_norm(*each[:_ATTRIBUTES], attributes, 0, *each[_ATTRIBUTES:])

    if all(dim is None or name in along_n for name, dim in zip(Operands._fields, dims)):
        # What is vectorised over is one more batch axis: (B, N, ...) -> (B*N, ...).
        def flat(name: str, tensor: Optional[Tensor], dim: Optional[int]) -> Optional[Tensor]:
            if tensor is None or name not in along_n:
                return tensor
            return (tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)).flatten(0, 1)

        y = call(Operands(*(flat(*each) for each in zip(Operands._fields, operands, dims))))
        return y.unflatten(0, (size, y.shape[0] // size if size else 0)), 0
    # Different weights are different problems.
    def nth(index: int) -> Operands:
        return Operands(*(tensor if dim is None else tensor.select(dim, index) for tensor, dim in zip(operands, dims)))

    return torch.stack([call(nth(index)) for index in range(size)]), 0
