"""The operator as a function."""
from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _attributes, reference
from ._attributes import Padding, Post, parse, post_of
from ._operator import conv1d_group_norm as _operator

# By short names, because every call asks these, and a way through three modules costs as much as the answer.
_dispatch = getattr(_operator, "_op", _operator)  # the Python wrapper alone takes a tenth of a call
_grad_is_on, _inference_is_on, _is_compiling = (torch.is_grad_enabled, torch.is_inference_mode_enabled,
                                                torch.compiler.is_compiling)
_autocast_is_on, _transform, _trace = (torch._C._is_any_autocast_enabled, torch._C._functorch.peek_interpreter_stack,
                                       torch._C._get_tracing_state)

__all__ = ["conv1d_group_norm", "decomposition_table"]


@torch.compiler.assume_constant_result
def line_of(*attributes: object) -> str:
    """The line of these attributes; compilers see the text alone."""
    return _attributes.line_of(*attributes)


@torch.compiler.assume_constant_result
def _default_precision() -> str:
    """Where PyTorch would take TF32: three 16-bit products, some 70 times more accurate; elsewhere as IEEE fp32."""
    # What torch.backends.cudnn.conv.fp32_precision asks, in a tenth of its time.
    return "high" if torch._C._get_fp32_precision_getter("cuda", "conv") == "tf32" else "highest"


def precision_for(x: Tensor, precision: Optional[str]) -> str:
    """The precision asked for, or PyTorch's own switches; a line without one where it makes no difference."""
    if precision is not None:
        return precision
    try:
        return _default_precision() if x.is_cuda and x.dtype is torch.float32 else "high"
    except AttributeError:
        raise TypeError(f"convnorm: x is a {type(x).__name__}, but it must be a tensor") from None


def autocast_dtype(x: Tensor) -> Optional[torch.dtype]:
    """The type in which autocast wants x, weight and residual; None if they stay as they are."""
    kind = x.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return None
    wanted = torch.get_autocast_dtype(kind)
    return None if x.dtype in (wanted, torch.float64) else wanted


def _under_functional_gradient() -> bool:
    """Inside torch.func's grad, vjp or jvp, which cannot look into operators like ours."""
    stack = torch._C._functorch.get_interpreter_stack()
    return stack is not None and any(
        level.key() in (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp)
        for level in stack)


def _carry_tangents(operands: reference.Operands) -> bool:
    """Whether forward-mode gradients are asked for, which PyTorch's own operators compute."""
    return forward_ad._current_level >= 0 and any(
        each is not None and forward_ad.unpack_dual(each).tangent is not None for each in operands)


def is_watched(*tensors: Optional[Tensor]) -> bool:
    """Whether more than the numbers of a call is asked for: gradients, other types, a transform, a graph."""
    return (_is_compiling() or _autocast_is_on() or _transform() is not None or forward_ad._current_level >= 0
            or _trace() is not None or torch._C._len_torch_dispatch_stack() > 0
            or _grad_is_on() and any(each is not None and each.requires_grad for each in tensors))


def apply(line: str, weight_id: int, x: Tensor, weight: Tensor, bias: Optional[Tensor], gamma: Optional[Tensor],
          beta: Optional[Tensor], *others: Optional[Tensor]) -> Tensor:
    """The operator, where gradients are off past what records them; `others` as in `reference.Operands`."""
    if (_grad_is_on() or _is_compiling() or x.dtype is torch.float64 or _autocast_is_on() or _transform() is not None
            or forward_ad._current_level >= 0 or _trace() is not None):
        return _apply_watched(line, reference.Operands(x, weight, bias, gamma, beta, *others), weight_id)
    if _inference_is_on():  # where nothing records
        return _dispatch(x, weight, bias, gamma, beta, line, weight_id, *others)
    with torch._C._AutoDispatchBelowAutograd():
        return _dispatch(x, weight, bias, gamma, beta, line, weight_id, *others)


def _apply_watched(line: str, operands: reference.Operands, weight_id: int) -> Tensor:
    """`apply` under autocast, gradients, transforms and compilers, and of float64, which the operator lacks."""
    compiling = torch.compiler.is_compiling()
    if torch.compiler.is_exporting() or not compiling and torch._C._get_tracing_state() is not None:
        weight_id = 0  # the program is for other processes, where the number would be another weight's
    wanted = autocast_dtype(operands.x)
    if wanted is not None:
        residual = operands.residual
        # float32 weights stay: they are rounded when they are packed, which a module does once.
        operands = operands._replace(x=operands.x.to(wanted),
                                     residual=None if residual is None else residual.to(wanted))
    x = operands.x
    if x.dtype == torch.float64:
        for name, tensor in zip(operands._fields, operands):
            if tensor is not None and name != "lengths" and tensor.dtype != torch.float64:
                raise TypeError(
                    f"convnorm: {name} has dtype {str(tensor.dtype)[6:]}, but x has float64; give both one dtype")
        return reference.conv1d_group_norm(parse(line), operands)
    if not compiling and (_under_functional_gradient() or _carry_tangents(operands)):
        weight = operands.weight.to(x.dtype)
        return reference.conv1d_group_norm(parse(line), operands._replace(weight=weight))
    return _operator(*operands[:5], line, weight_id, *operands[5:])


def decomposition_table() -> dict:
    """For `ExportedProgram.run_decompositions`: PyTorch's own operators in place of ours."""

    def composed(x, weight, bias, gamma, beta, attributes, weight_id=0, *others):
        operands = reference.Operands(x, weight.to(x.dtype), bias, gamma, beta, *others)
        return reference.conv1d_group_norm(parse(attributes), operands)

    return {**torch.export.default_decompositions(), _operator: composed}


def conv1d_group_norm(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    *,
    num_groups: int,
    gamma: Optional[Tensor] = None,
    beta: Optional[Tensor] = None,
    eps: float = 1e-5,
    stride: int = 1,
    padding: Padding = 0,
    dilation: int = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    pre: Optional[str] = None,
    pre_slope: Optional[Tensor] = None,
    activation: Post = None,
    slope: Optional[Tensor] = None,
    film: Optional[tuple[Tensor, Tensor]] = None,
    residual: Optional[Tensor] = None,
    lengths: Optional[Tensor] = None,
    layout: str = "ncl",
    precision: Optional[str] = None,
) -> Tensor:
    """`y = post(GroupNorm(pre(conv1d(x, weight) + bias)))` in one pass. Source: docs/problem-line.md.

    Args:
        x: (N, C_in, L) in float32, float16 or bfloat16; float64 is composed of PyTorch's operators. Any strides: what
            is not contiguous is copied.
        weight: (C_out, C_in/groups, K), in x's dtype or float32.
        bias: (C_out). It, gamma, beta, slopes and film may be float32 beside a 16-bit x.
        num_groups: groups of the norm, a divisor of C_out; 0 leaves the norm out.
        gamma, beta: (C_out), both or none.
        eps: added to the biased variance, above 0.
        stride, dilation, groups: of the convolution.
        padding: zeros on both sides in elements; (left, right); "same"; "causal".
        padding_mode: "zeros", "reflect" or "replicate".
        pre: between convolution and norm: "relu", or "prelu" with pre_slope (1) or (C_out).
        activation: after the norm, in order, as "silu" or "mish+film+add" or a sequence of such names: relu,
            leaky_relu(0.01), prelu, silu, gelu, gelu_tanh, mish, elu(1), tanh, sigmoid, film, add, glu.
        slope: of a prelu among them: (1) or (channels there).
        film: scale and shift, (N, channels there) each; after the activation where "film" is not named.
        residual: added, shaped as the result; last where "add" is not named.
        lengths: (N), int64, in [0, L]: each sample gives what it would give alone, and 0 past its end. What lies
            outside of [0, L] is an error on CPUs and clamped on GPUs, where looking would wait for them.
        layout: "ncl", or "nlc" for x, residual and result (N, L, C).
        precision: of float32 on GPUs: "highest", "high" or "medium"; None follows torch.backends.cudnn's switches.

    Returns:
        (N, C_y, L_out), contiguous, in x's dtype or autocast's. L_out = floor((L + pads - dilation*(K-1) - 1)/stride)
        + 1; C_y is C_out, halved by a glu.

    Raises:
        RuntimeError: a rule of the operator is broken; one sentence names the value and the way out, with the keys of
            the problem line and what they are called here.
        TypeError: float64 is mixed with other dtypes.
    """
    if num_groups != 0 and gamma is not None and beta is None:
        beta = torch.zeros_like(gamma)
    scale, shift = film if film is not None else (None, None)
    if activation is None and film is None and residual is None:
        post = ()
    else:
        post = post_of(activation, film is not None, residual is not None)
    line = line_of(num_groups, stride, dilation, padding if isinstance(padding, (int, str)) else tuple(padding),
                   padding_mode, groups, eps, pre or "none", post, layout, precision_for(x, precision))
    return apply(line, 0, x, weight, bias, gamma, beta, lengths, pre_slope, slope, scale, shift, residual)
