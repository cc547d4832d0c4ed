"""The operator as a module."""
from __future__ import annotations

import itertools
import math
import weakref
from typing import Any, Iterable, Optional

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import functional
from ._attributes import Padding, Post, line_of, one, post_of

__all__ = ["Conv1dGroupNorm"]

def _release(number: int) -> None:
    # Objects also go while something is traced, and a traced call would release nothing.
    with torch.utils._python_dispatch._disable_current_modes():
        torch.ops.convnorm.release_weight(number)


def forget(parameters: Iterable[Tensor]) -> None:
    """Lets what was packed of those of them that are weights be packed again, into the same memory."""
    weights = [each for each in parameters
               if type(each) in (Tensor, nn.Parameter) and each.dim() == 3 and each.device.type in ("cpu", "cuda")]
    if weights:
        with torch.no_grad():
            torch.ops.convnorm.forget_packed(weights)


def _forget_stepped(optimizer: torch.optim.Optimizer, _arguments: Any, _named: Any) -> None:
    # Steps of fused kernels, PyTorch's own among them, write without counting a change.
    if WeightId.living:
        forget(each for group in optimizer.param_groups for each in group["params"])


class WeightId:
    """A number under which a packed weight is kept. No other gets it; what is kept goes when this object does."""

    _numbers = itertools.count(1)  # 0 stands for none
    living: weakref.WeakSet = weakref.WeakSet()

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self.living.add(self)
        weakref.finalize(self, _release, self.number).atexit = False

    def forget(self) -> None:
        """Lets the weight be packed again, into the same memory, which captured graphs may read."""
        torch.ops.convnorm.forget_weight(self.number)

    def __deepcopy__(self, memo: dict) -> "WeightId":
        return WeightId()

    def __reduce__(self) -> tuple:
        return WeightId, ()


def keep_weight_of(conv: nn.Module) -> None:
    """Lets the packed weight of one of PyTorch's layers be kept."""
    if "_convnorm_kept" not in conv.__dict__:
        conv._convnorm_kept = WeightId()


def keep_no_weight_of(conv: nn.Module) -> None:
    conv.__dict__.pop("_convnorm_kept", None)


def kept_number(conv: nn.Module) -> int:
    """0 where nothing is kept, also once a part of a fused network was given back its own classes."""
    kept = conv.__dict__.get("_convnorm_kept")
    return 0 if kept is None else kept.number


def _beside(tensor: Tensor, x: Tensor) -> bool:
    return tensor.get_device() == x.get_device() and tensor.is_cpu == x.is_cpu


_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def plain_parameters(x: Tensor, layer: nn.Module) -> Optional[tuple[Tensor, Optional[Tensor]]]:
    """Weight and bias of one of PyTorch's layers where a call asks for numbers alone, in types the operator has."""
    own = layer._parameters
    weight, bias = own.get("weight"), own.get("bias")
    if layer.training or type(x) is not Tensor or type(weight) is not nn.Parameter or "bias" not in own:
        return None
    if x.dtype not in _TYPES or x.dtype is not weight.dtype or not (x.is_cuda or x.is_cpu) or not _beside(weight, x):
        return None
    if bias is not None and (type(bias) is not nn.Parameter or bias.dtype is not x.dtype or not _beside(bias, x)):
        return None
    return None if functional.is_watched(x, weight, bias) else (weight, bias)


register_optimizer_step_post_hook(_forget_stepped)

_PADDING_MODES = ("zeros", "reflect", "replicate")
_PRECISIONS = ("highest", "high", "medium")


class Conv1dGroupNorm(nn.Module):
    """Conv1d, GroupNorm and what follows them as one operator.

    The first arguments are those of a drop-in: parameters `weight`, `bias`, `gamma` and `beta`, initialised bit for bit
    as `nn.Conv1d` and then `nn.GroupNorm` under the same seed. A state_dict of `nn.Sequential(conv, norm)` can be
    loaded. Defaults differ from those of `nn.Conv1d`: `kernel_size` is 3, `padding` 1 whatever the kernel (there 0;
    "same" keeps the length), and `bias` False (there True).

    In eval mode the packed weight is kept, per shape of x, and packed again when `weight` changes: by an optimizer's
    step, load_state_dict, `.to()`, an in-place edit. What is written through `weight.data` PyTorch does not count: call
    `repack()`. A CUDA graph captured in eval mode reads the packed weight: after a change call the module
    once outside of the graph. In train mode the weight is packed at every call, and inside captured graphs.

    Args:
        in_channels, out_channels, num_groups, kernel_size, stride, padding, dilation, eps, affine: as in `nn.Conv1d`
            and `nn.GroupNorm`; `padding` also (left, right), "same" or "causal".
        groups: of the convolution.
        bias: whether the convolution has one; False unless asked for.
        padding_mode: "zeros", "reflect" or "replicate".
        activation: after the norm, as in `convnorm.functional.conv1d_group_norm`.
        precision: of float32 on GPUs; None follows PyTorch's switches.

    Shapes: x (N, C_in, L) -> (N, C_y, L_out); film (N, channels) twice; residual as the result; lengths (N), in
    elements of L. Source: docs/problem-line.md.

    Raises:
        ValueError: an argument of the constructor breaks a rule; the sentence names it.
        RuntimeError, TypeError: a call does, as in `convnorm.functional.conv1d_group_norm`.
    """

    def __init__(self, in_channels: int, out_channels: int, num_groups: int, kernel_size: int = 3, stride: int = 1,
                 padding: Padding = 1, dilation: int = 1, eps: float = 1e-5, affine: bool = True, *, groups: int = 1,
                 bias: bool = False, padding_mode: str = "zeros", activation: Post = None,
                 precision: Optional[str] = None, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if num_groups <= 0 or out_channels % num_groups:
            raise ValueError(f"num_groups={num_groups} must be a positive divisor of out_channels={out_channels}")
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError(f"groups={groups} must be a positive divisor of in_channels={in_channels} and "
                             f"out_channels={out_channels}")
        kernel_size, stride, dilation, padding = map(one, (kernel_size, stride, dilation, padding))
        for name, value in (("kernel_size", kernel_size), ("stride", stride), ("dilation", dilation)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value} must be a whole number of at least 1")
        sides = (padding,) if isinstance(padding, int) else () if padding in ("same", "causal") else tuple(padding)
        if len(sides) > 2 or any(not isinstance(side, int) or side < 0 for side in sides):
            raise ValueError(f"padding={padding!r} must be a number that is not negative, (left, right), 'same' or "
                             "'causal'")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(f"padding_mode={padding_mode!r} is not among {', '.join(_PADDING_MODES)}")
        if not eps > 0:
            raise ValueError(f"eps={eps} must be above 0")
        if precision not in (None, *_PRECISIONS):
            raise ValueError(f"precision={precision!r} is not among {', '.join(_PRECISIONS)}")
        self.in_channels, self.out_channels, self.num_groups = in_channels, out_channels, num_groups
        self.kernel_size, self.stride, self.dilation, self.groups = kernel_size, stride, dilation, groups
        self.padding = padding if isinstance(padding, (int, str)) else sides
        self.padding_mode, self.eps, self.affine, self.precision = padding_mode, eps, affine, precision
        self.activation = activation if activation is None or isinstance(activation, str) else tuple(activation)
        kind = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty((out_channels, in_channels // groups, kernel_size), **kind))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels, **kind)) if bias else None)
        self.register_parameter("gamma", nn.Parameter(torch.empty(out_channels, **kind)) if affine else None)
        self.register_parameter("beta", nn.Parameter(torch.empty(out_channels, **kind)) if affine else None)
        # Text, because compilers may take a module's numbers for symbols. By precision, film and residual.
        self._lines = {
            (precision, film, residual): line_of(
                num_groups, stride, dilation, self.padding, padding_mode, groups, eps, "none",
                post_of(self.activation, film, residual), "ncl", precision)
            for precision in _PRECISIONS for film in (False, True) for residual in (False, True)}
        self._kept = WeightId()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As `nn.Conv1d` and `nn.GroupNorm` do, drawing the same random numbers in the same order."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.weight.shape[1] * self.weight.shape[2]
            nn.init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))
        if self.affine:
            nn.init.ones_(self.gamma)
            nn.init.zeros_(self.beta)

    @classmethod
    def from_modules(cls, conv: nn.Conv1d, norm: nn.GroupNorm, activation: Post = None) -> "Conv1dGroupNorm":
        """A module that shares the parameters of `conv` and `norm`."""
        for given, kind in ((conv, nn.Conv1d), (norm, nn.GroupNorm)):
            if not isinstance(given, kind) or nn.parameter.is_lazy(given.weight):
                raise TypeError(f"{given} must be an initialised nn.{kind.__name__}")
        if norm.num_channels != conv.out_channels:
            raise ValueError(f"norm has {norm.num_channels} channels, but conv gives {conv.out_channels}")
        padding = conv.padding if isinstance(conv.padding, str) else conv.padding[0]
        fused = cls(conv.in_channels, conv.out_channels, norm.num_groups, conv.kernel_size[0], conv.stride[0],
                    {"valid": 0}.get(padding, padding), conv.dilation[0], norm.eps, norm.affine, groups=conv.groups,
                    bias=conv.bias is not None, padding_mode=conv.padding_mode, activation=activation, device="meta")
        fused.weight, fused.bias, fused.gamma, fused.beta = conv.weight, conv.bias, norm.weight, norm.bias
        return fused.train(conv.training)

    def forward(self, x: Tensor, *, film: Optional[tuple[Tensor, Tensor]] = None, residual: Optional[Tensor] = None,
                slope: Optional[Tensor] = None, lengths: Optional[Tensor] = None) -> Tensor:
        line = self._lines[functional.precision_for(x, self.precision), film is not None, residual is not None]
        kept = 0 if self.training else self._kept.number
        own = self._parameters  # by their names nn.Module finds them last, which takes a third of the call
        if "weight" in own and "bias" in own and "gamma" in own and "beta" in own:
            weight, bias, gamma, beta = own["weight"], own["bias"], own["gamma"], own["beta"]
        else:  # reparametrized; what is computed for each call is not kept
            weight, bias, gamma, beta = self.weight, self.bias, self.gamma, self.beta
            kept = kept if isinstance(weight, nn.Parameter) else 0
        if film is None and residual is None and slope is None and lengths is None:
            return functional.apply(line, kept, x, weight, bias, gamma, beta)
        scale, shift = film if film is not None else (None, None)
        return functional.apply(line, kept, x, weight, bias, gamma, beta, lengths, None, slope, scale, shift, residual)

    def repack(self) -> None:
        """Forgets the packed weight: after changes that PyTorch does not count, those through `weight.data`."""
        self._kept.forget()

    def train(self, mode: bool = True) -> "Conv1dGroupNorm":
        if mode:
            self.repack()
        return super().train(mode)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        # nn.Sequential(conv, norm) calls them 0.weight, 0.bias, 1.weight, 1.bias.
        if f"{prefix}0.weight" in state_dict and f"{prefix}weight" not in state_dict:
            for theirs, ours in (("0.weight", "weight"), ("0.bias", "bias"), ("1.weight", "gamma"), ("1.bias", "beta")):
                if prefix + theirs in state_dict:
                    state_dict[prefix + ours] = state_dict.pop(prefix + theirs)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, num_groups={self.num_groups}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding!r}, dilation={self.dilation}, eps={self.eps}, "
            f"affine={self.affine}")
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is not None:
            text += ", bias=True"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode!r}"
        return text if self.activation is None else f"{text}, activation={self.activation!r}"
