"""Finds Conv1d -> GroupNorm -> activation in a graph of torch.fx, and puts one call in its place.

Graphs may call modules (traced by torch.fx) or functions on tensors (captured by the compiler).
"""
from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from . import _transposed, functional, reference
from ._attributes import one, output_length, stages_of
from .nn import WeightId, keep_weight_of, kept_number
from .reference import Operands

IS_MODULE = "convnorm: is a module"  # among the notes of nodes that fetch one
MOST_POST = 8  # operations after the norm that one problem takes


@dataclass(frozen=True)
class Activation:
    """An operation after the norm as a problem line names it; `slope` is where a prelu's comes from."""

    stage: str
    slope: Any = None  # a node, or the name of a PReLU module


@dataclass
class Match:
    """One chain of nodes that the operator computes. Without a norm: a convolution and what follows it."""

    conv: fx.Node
    norm: Optional[fx.Node]
    last: fx.Node
    head: tuple  # stride, dilation, padding, padding_mode, conv_groups, norm groups, eps
    pre: str = "none"
    pre_slope: Any = None
    post: list[str] = field(default_factory=list)
    slope: Any = None
    film: Optional[tuple[fx.Node, fx.Node]] = None
    residual: Optional[fx.Node] = None
    padded: Optional[fx.Node] = None  # padding as a call of its own before the convolution
    transposed: bool = False  # a ConvTranspose1d, alone; its head is what it was built with
    nodes: list[fx.Node] = field(default_factory=list)  # what the one call replaces, the convolution left out

    def describe(self) -> str:
        if self.transposed:
            return "transposed conv"
        before = [] if self.pre == "none" else [self.pre]
        return " -> ".join(["conv", *before, *(["norm"] if self.norm is not None else []), *self.post])

    @property
    def name(self) -> str:
        """Of the norm, or of the convolution where there is none."""
        return name_of(self.conv if self.norm is None else self.norm)


def _bound(node: fx.Node, **defaults: Any) -> dict[str, Any]:
    """A call's arguments by name, in the order of `defaults`."""
    bound = {**defaults, **dict(zip(defaults, node.args))}
    bound.update((name, value) for name, value in node.kwargs.items() if name in defaults)
    return bound


def _input(node: fx.Node) -> fx.Node:
    return node.args[0] if node.args else node.kwargs["input"]


_CONVOLUTIONS = {F.conv1d, torch.conv1d, torch.ops.aten.conv1d.default, torch.ops.aten.conv1d.padding}
_NORMS = {F.group_norm, torch.group_norm, torch.ops.aten.group_norm.default}
_aten = torch.ops.aten
_PLAIN = {"relu": {F.relu, torch.relu, torch.relu_, F.relu_, _aten.relu.default, _aten.relu_.default},
          "silu": {F.silu, _aten.silu.default, _aten.silu_.default},
          "mish": {F.mish, _aten.mish.default, _aten.mish_.default},
          "tanh": {torch.tanh, F.tanh, _aten.tanh.default, _aten.tanh_.default},
          "sigmoid": {torch.sigmoid, F.sigmoid, _aten.sigmoid.default, _aten.sigmoid_.default}}
_LEAKY_RELUS = {F.leaky_relu, _aten.leaky_relu.default, _aten.leaky_relu_.default}
_ELUS = {F.elu, _aten.elu.default, _aten.elu_.default}
_GELUS = {F.gelu, _aten.gelu.default, _aten.gelu_.default}
_PRELUS = {F.prelu, torch.prelu, _aten.prelu.default}
_DROPOUTS = {F.dropout, _aten.dropout.default, _aten.dropout_.default, _aten.feature_dropout.default}
_PLAIN_METHODS = {"relu": "relu", "relu_": "relu", "tanh": "tanh", "sigmoid": "sigmoid"}
_PADS = {F.pad, torch._C._nn.pad, _aten.pad.default}
# Those that write into their first argument apart.
_INTO_FIRST = {operator.iadd, operator.imul, _aten.add_.Tensor, _aten.mul_.Tensor}
_ADDITIONS = {operator.add, operator.iadd, torch.add, _aten.add.Tensor, _aten.add_.Tensor}
_PRODUCTS = {operator.mul, operator.imul, torch.mul, _aten.mul.Tensor, _aten.mul_.Tensor}


def activation_of_module(module: nn.Module, name: str) -> Optional[Activation]:
    kind = type(module)
    if kind in (nn.ReLU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid):
        return Activation(kind.__name__.lower())
    if kind is nn.LeakyReLU:
        return Activation(f"leaky_relu({module.negative_slope})")
    if kind is nn.ELU:
        return Activation(f"elu({module.alpha})") if module.alpha > 0 else None
    if kind is nn.GELU:
        return Activation("gelu" if module.approximate == "none" else "gelu_tanh")
    if kind is nn.GLU:
        return Activation("glu") if module.dim in (1, -2) else None
    return Activation("prelu", name) if kind is nn.PReLU else None


def _activation_of_call(node: fx.Node) -> Optional[Activation]:
    if node.op == "call_method":
        return Activation(_PLAIN_METHODS[node.target]) if node.target in _PLAIN_METHODS else None
    for stage, functions in _PLAIN.items():
        if node.target in functions:
            return Activation(stage)
    if node.target in _LEAKY_RELUS:
        return Activation(f"leaky_relu({_bound(node, input=None, negative_slope=0.01)['negative_slope']})")
    if node.target in _ELUS:
        bound = _bound(node, input=None, alpha=1.0, scale=1.0, input_scale=1.0)
        return Activation(f"elu({bound['alpha']})") if bound["scale"] == bound["input_scale"] == 1 else None
    if node.target in _GELUS:
        return Activation("gelu" if node.kwargs.get("approximate", "none") == "none" else "gelu_tanh")
    if node.target in (F.glu, _aten.glu.default):
        return Activation("glu") if _bound(node, input=None, dim=-1)["dim"] in (1, -2) else None
    if node.target in _PRELUS:
        return Activation("prelu", node.args[1])
    return None


def example_of(node: fx.Node) -> Any:
    """What a node held when its graph was captured or exported; None where that was not noted."""
    return node.meta.get("example_value", node.meta.get("val"))


def name_of(node: fx.Node) -> str:
    """The name of the module that a node calls, or in an exported or captured graph comes from; else its own."""
    if node.op == "call_module":
        return node.target
    stack = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())
    path, kind = stack[-1]
    if not str(getattr(kind, "__name__", kind)).endswith(("GroupNorm", "Conv1d")):
        return node.name
    return path.removeprefix(f"{stack[0][0]}.") or node.name


class Matcher:
    """Matches of one graph. `modules` are those that it calls; without one, of a graph that calls none. With
    `convolutions` also those without a norm, and modules that are transposed ones.
    """

    def __init__(self,
                 graph: fx.Graph,
                 modules: Optional[dict[str, nn.Module]] = None,
                 convolutions: bool = False) -> None:
        self.graph = graph
        self.convolutions = convolutions
        self.modules = modules or {}
        self.reasons: dict[fx.Node, str] = {}  # by norm: why it was left alone
        self._taken: set[fx.Node] = set()  # by a match: the sum of two chains belongs to one of them
        self._order = {node: place for place, node in enumerate(graph.nodes)}

    def matches(self) -> list[Match]:
        found = []
        for node in self.graph.nodes:
            if self._is_norm(node):
                self._keep(self._match(node), found)
        for node in self.graph.nodes:
            if self.convolutions and self._is_conv(node) and node not in self._taken:
                self._keep(self._match_convolution(node), found)
            elif self.convolutions and self._is_transposed(node):
                self._keep(Match(node, None, node, (repr(self._module(node)),), transposed=True), found)
        return sorted(found, key=lambda match: self._order[match.conv])

    def _keep(self, match: Optional[Match], found: list[Match]) -> None:
        if match is not None:
            found.append(match)
            self._taken.update((match.conv, *match.nodes))

    # What a node is ---------------------------------------------------------------------------------------------------

    def _module(self, node: fx.Node) -> Optional[nn.Module]:
        return self.modules.get(node.target) if node.op == "call_module" else None

    def _is_norm(self, node: fx.Node) -> bool:
        return type(self._module(node)) is nn.GroupNorm or (node.op == "call_function" and node.target in _NORMS)

    def _is_conv(self, node: Any) -> bool:
        if not isinstance(node, fx.Node):
            return False
        module = self._module(node)
        return (isinstance(module, nn.Conv1d) and type(module).forward is nn.Conv1d.forward) or (
            node.op == "call_function" and node.target in _CONVOLUTIONS)

    def _is_transposed(self, node: fx.Node) -> bool:
        return _transposed.is_taken(self._module(node)) and len(node.args) == 1 and not node.kwargs

    def _is_nothing(self, node: fx.Node) -> bool:
        """Whether it hands its input on: Identity, and Dropout in eval mode."""
        module = self._module(node)
        if isinstance(module, (nn.Dropout, nn.Dropout1d)):
            return not module.training or module.p == 0
        if node.op == "call_function" and node.target in _DROPOUTS:
            bound = _bound(node, input=None, p=0.5, training=True, train=True)
            return not (bound["training"] and bound["train"])
        return type(module) is nn.Identity

    def _activation(self, node: fx.Node) -> Optional[Activation]:
        module = self._module(node)
        if module is not None:
            return activation_of_module(module, node.target)
        return _activation_of_call(node) if node.op in ("call_function", "call_method") else None

    @staticmethod
    def _added_axis(node: fx.Node) -> Optional[int]:
        """Where an axis of one is put into (N, C, L)."""
        if node.op == "call_function" and node.target is operator.getitem and isinstance(node.args[1], tuple):
            index = node.args[1]
            if index.count(None) == 1 and all(
                    each is None or each == slice(None) for each in index) and len(index) <= 4:
                return index.index(None)
        if node.target in ("unsqueeze", torch.unsqueeze, _aten.unsqueeze.default):
            axis = _bound(node, input=None, dim=None)["dim"]
            return axis + 4 if isinstance(axis, int) and axis < 0 else axis
        return None

    @staticmethod
    def _removed_axis(node: fx.Node) -> Optional[int]:
        if node.op == "call_function" and node.target is operator.getitem and isinstance(node.args[1], tuple):
            index = node.args[1]
            if len(index) <= 4 and all((isinstance(each, int) and each == 0) or each == slice(None) for each in index):
                places = [place for place, each in enumerate(index) if isinstance(each, int)]
                return places[0] if len(places) == 1 else None
        if node.target in ("squeeze", torch.squeeze, _aten.squeeze.dim):
            axis = _bound(node, input=None, dim=None)["dim"]
            return axis + 4 if isinstance(axis, int) and axis < 0 else axis
        return None

    # The chain --------------------------------------------------------------------------------------------------------

    def _match(self, norm: fx.Node) -> Optional[Match]:
        node, axis, pre, between = norm.args[0], None, None, []
        while isinstance(node, fx.Node) and not self._is_conv(node):
            if len(node.users) != 1:
                return self._leave(norm, "what it normalises is used elsewhere too")
            activation = self._activation(node)
            if self._added_axis(node) in (2, 3) and axis is None:
                axis = self._added_axis(node)
            elif activation is not None and activation.stage in ("relu", "prelu") and pre is None:
                pre = activation
            elif not self._is_nothing(node):
                return self._leave(norm, "its input is no Conv1d's")
            between.append(node)
            node = node.args[0]
        if not self._is_conv(node):
            return self._leave(norm, "its input is no Conv1d's")
        if len(node.users) != 1:
            return self._leave(norm, "the convolution's result is used elsewhere too")
        match = self._begin(node, norm, pre, between)
        if match is None:
            return None
        if axis is not None:
            after = self._only_user(norm)
            if after is None or self._removed_axis(after) != axis:
                return self._leave(norm, "its result keeps four axes")
            match.last = after
            match.nodes.append(after)
        while self._extend(match):
            pass
        if self._writes_between(match):
            return self._leave(norm, "something is written in place between the convolution and what follows it")
        return match

    def _match_convolution(self, conv: fx.Node) -> Optional[Match]:
        match = self._begin(conv, None, None, [])
        if match is None:
            return None
        while self._extend(match):
            pass
        return None if self._writes_between(match) else match

    def _leave(self, norm: Optional[fx.Node], reason: str) -> None:
        if norm is not None:
            self.reasons[norm] = reason

    @staticmethod
    def _only_user(node: fx.Node) -> Optional[fx.Node]:
        return next(iter(node.users)) if len(node.users) == 1 else None

    def _begin(self, conv: fx.Node, norm: Optional[fx.Node], pre: Optional[Activation],
               between: list[fx.Node]) -> Optional[Match]:
        module = self._module(conv)
        if module is not None:
            called = {
                "stride": module.stride,
                "padding": module.padding,
                "dilation": module.dilation,
                "groups": module.groups
            }
            mode = module.padding_mode
        else:
            called = _bound(conv, input=None, weight=None, bias=None, stride=1, padding=0, dilation=1, groups=1)
            mode = "zeros"
        layer = self._module(norm) if norm is not None else None
        if norm is None:
            groups, eps = 0, 1e-5
        elif layer is not None:
            groups, eps = layer.num_groups, layer.eps
        else:
            bound = _bound(norm, input=None, num_groups=None, weight=None, bias=None, eps=1e-5)
            groups, eps = bound["num_groups"], bound["eps"]
            if (bound["weight"] is None) != (bound["bias"] is None):
                return self._leave(norm, "it has one of gamma and beta")
        stride, padding, dilation = (one(called[name]) for name in ("stride", "padding", "dilation"))
        padding = 0 if padding == "valid" else padding
        if mode not in ("zeros", "reflect", "replicate"):
            return self._leave(norm, f"padding_mode={mode!r} is not among zeros, reflect, replicate")
        if not all(isinstance(value, int)
                   for value in (stride, dilation, called["groups"], groups)) or not isinstance(eps, float):
            return self._leave(norm, "its numbers are not known before it runs")
        x = example_of(_input(conv))
        if isinstance(x, Tensor) and x.dim() != 3:
            return self._leave(norm, "its convolution's input is not (N, C, L)")
        padded = None
        if padding == 0 and (found := self._padding_before(conv)) is not None:
            padded, padding, mode = found
        return Match(conv, norm, norm or conv, (stride, dilation, padding, mode, called["groups"], groups, eps),
                     pre.stage if pre else "none", pre.slope if pre else None, padded=padded,
                     nodes=[*between, *([norm] if norm is not None else [])])

    def _padding_before(self, conv: fx.Node) -> Optional[tuple[fx.Node, tuple[int, int], str]]:
        node = _input(conv)
        if not isinstance(node, fx.Node) or node.op != "call_function" or node.target not in _PADS or len(
                node.users) != 1:
            return None
        bound = _bound(node, input=None, pad=None, mode="constant", value=None)
        sides, mode = bound["pad"], bound["mode"]
        plain = bound["value"] in (None, 0) and mode in ("constant", "reflect", "replicate")
        if not plain or len(sides) != 2 or not all(isinstance(side, int) and side >= 0 for side in sides):
            return None
        return node, tuple(sides), {"constant": "zeros"}.get(mode, mode)

    def _extend(self, match: Match) -> bool:
        """Takes the operation after the last one into the chain, if it can be."""
        after = self._only_user(match.last)
        if after is None or after in self._taken or len(match.post) == MOST_POST:
            return False
        if self._is_nothing(after):
            match.last = after
        elif (activation := self._activation(after)) is not None and after.args and after.args[0] is match.last:
            if activation.stage in ("prelu", "glu") and activation.stage in match.post or (
                    activation.stage == "glu" and "add" in match.post):
                return False
            match.post.append(activation.stage)
            match.slope = match.slope or activation.slope
            match.last = after
        elif self._is_call(after, _PRODUCTS) and match.film is None:
            shifted = self._only_user(after)
            scale, shift = self._other(after, match.last), None
            if shifted is not None and shifted not in self._taken and self._is_call(shifted, _ADDITIONS):
                shift = self._other(shifted, after)
            if scale is None or shift is None:
                return False
            match.film = scale, shift
            match.post.append("film")
            match.nodes.append(after)
            after = match.last = shifted
        elif self._is_call(after, _ADDITIONS) and match.residual is None:
            other = self._other(after, match.last)
            if other is None:
                return False
            match.residual = other
            match.post.append("add")
            match.last = after
        else:
            return False
        match.nodes.append(after)
        return True

    @staticmethod
    def _is_call(node: fx.Node, functions: set) -> bool:
        return node.op == "call_function" and node.target in functions and node.kwargs.get("alpha", 1) == 1

    @staticmethod
    def _other(node: fx.Node, one: fx.Node) -> Optional[fx.Node]:
        if node.target in _INTO_FIRST and node.args[0] is not one:
            return None  # that writes into the other one
        others = [each for each in node.args if each is not one]
        return others[0] if len(node.args) == 2 and len(others) == 1 and isinstance(others[0], fx.Node) else None

    def _writes_between(self, match: Match) -> bool:
        """Whether anything from the convolution to the chain's end writes into a tensor that the chain did not make."""
        for node in list(self.graph.nodes)[self._order[match.padded or match.conv]:self._order[match.last]]:
            in_place = (node.op == "call_method" and node.target.endswith("_") and not node.target.endswith("__")) or (
                node.op == "call_function" and
                (node.target in (operator.iadd, operator.imul, operator.isub, operator.setitem) or
                 getattr(getattr(node.target, "_schema", None), "is_mutable", False)))
            if in_place and node not in match.nodes:
                return True
        return False


# What stands in the graph -------------------------------------------------------------------------------------------


def _line(head: tuple, pre: str, post: tuple[str, ...], precision: str) -> str:
    stride, dilation, padding, mode, conv_groups, groups, eps = head
    return functional.line_of(groups, stride, dilation, padding, mode, conv_groups, eps, pre, post, "ncl", precision)


@torch.compiler.assume_constant_result
def _stages(post: tuple[str, ...]) -> tuple:
    return stages_of(post)


def _fits_film(tensor: Any, x: Tensor, channels: int, dtype: torch.dtype) -> bool:
    return isinstance(tensor, Tensor) and tensor.dim() == 3 and tensor.dtype == dtype and (
        tensor.shape[0] == x.shape[0] and tensor.shape[1] == channels and tensor.shape[2] == 1)


class NotBatched(Exception):
    """A chain got an input of other than three axes or of complex numbers: Conv1d takes them, the operator does not."""


def run_tensors(head: tuple, pre: str, post: tuple[str, ...], x: Tensor, weight: Tensor, bias: Optional[Tensor],
                gamma: Optional[Tensor], beta: Optional[Tensor], pre_slope: Optional[Tensor] = None,
                slope: Optional[Tensor] = None, scale: Optional[Tensor] = None, shift: Optional[Tensor] = None,
                residual: Optional[Tensor] = None, weight_id: int = 0) -> Tensor:
    """A chain on tensors. From the first operation on that does not have the operator's shapes it is PyTorch's."""
    if x.dim() != 3 or x.is_complex():
        raise NotBatched(f"x has the shape {tuple(x.shape)} and {x.dtype}, but a fused chain takes real (N, C_in, L)")
    cut = len(post)
    if scale is not None or residual is not None:
        cut = _fitting(head, post, x, weight, scale, shift, residual)
    fused = post[:cut]
    y = functional.apply(_line(head, pre, fused, functional.precision_for(x, None)), weight_id, x, weight, bias, gamma,
                         beta, None, pre_slope, slope if "prelu" in fused else None,
                         scale.flatten(1) if "film" in fused else None, shift.flatten(1) if "film" in fused else None,
                         residual if "add" in fused else None)
    if cut == len(post):
        return y
    for name, parameter in _stages(post[cut:]):
        if name == "film":
            y = y * scale + shift
        elif name == "add":
            y = y + residual
        else:
            y = reference.post_stage(name, parameter, y, Operands(x, weight, post_slope=slope))
    return y


def _fitting(head: tuple, post: tuple[str, ...], x: Tensor, weight: Tensor, scale: Any, shift: Any,
             residual: Any) -> int:
    """How many of the operations after the norm have the operator's shapes and types."""
    stride, dilation, padding = head[:3]
    dtype = functional.autocast_dtype(x) or x.dtype
    cut = len(post)
    if "film" in post:
        place = post.index("film")
        channels = weight.shape[0] // 2 if "glu" in post[:place] else weight.shape[0]
        if not (_fits_film(scale, x, channels, dtype) and _fits_film(shift, x, channels, dtype)):
            cut = place
    if "add" in post:
        channels = weight.shape[0] // 2 if "glu" in post else weight.shape[0]
        length = output_length(x.shape[2], weight.shape[2], stride, dilation, padding)
        if not isinstance(residual, Tensor) or (  # but a number
                residual.shape != (x.shape[0], channels, length) or residual.dtype != dtype):
            cut = min(cut, post.index("add"))
    return cut


def _parameter(module: nn.Module, name: str) -> Optional[Tensor]:
    own = module._parameters  # where nn.Module looks last
    return own[name] if name in own else getattr(module, name)


def _current_weight(conv: nn.Conv1d) -> Tensor:
    """The weight that the convolution would use now: torch.nn.utils.weight_norm computes it before every call."""
    for hook in conv._forward_pre_hooks.values():
        if is_weight_norm(hook):
            return hook.compute_weight(conv)
    return _parameter(conv, "weight")


def weight_is_given(match: Match) -> bool:
    """Whether the weight is a parameter of the graph, not computed in it."""
    node = _bound(match.conv, input=None, weight=None)["weight"]
    return isinstance(node, fx.Node) and node.op in ("placeholder", "get_attr")


def is_weight_norm(hook: Callable) -> bool:
    return type(hook).__name__ == "WeightNorm"


def run_modules(head: tuple, pre: str, post: tuple[str, ...], x: Tensor, conv: nn.Conv1d, norm: Optional[nn.GroupNorm],
                *others: Any) -> Tensor:
    """A chain whose parameters are those of modules."""
    weight = _current_weight(conv)
    kept = 0 if conv.training or not isinstance(weight, nn.Parameter) else kept_number(conv)
    gamma, beta = (None, None) if norm is None else (_parameter(norm, "weight"), _parameter(norm, "bias"))
    try:
        return run_tensors(head, pre, post, x, weight, _parameter(conv, "bias"), gamma, beta, *others, weight_id=kept)
    except NotBatched:
        # A layer alone, whose padding is its own, need not be left to the whole module.
        if norm is None and pre == "none" and not post and head[2] in (conv.padding, conv.padding[0]):
            return conv(x)
        raise


def replace_all(graph: fx.Graph, matches: list[Match], modules: Optional[dict[str, nn.Module]] = None,
                weight_id: Optional[Callable[[], int]] = None) -> None:
    """Puts one call in the place of each match. `weight_id` gives numbers to weights that are given to the graph."""
    now: dict[fx.Node, fx.Node] = {}  # what stands where an earlier match ended
    for match in matches:
        match.pre_slope, match.slope, match.residual = (now.get(each, each) for each in (
            match.pre_slope, match.slope, match.residual))
        match.film = match.film and (now.get(match.film[0], match.film[0]), now.get(match.film[1], match.film[1]))
        now[match.last] = _replace(graph, match, modules or {},
                                   weight_id() if weight_id and weight_is_given(match) else 0)


def _replace(graph: fx.Graph, match: Match, modules: dict[str, nn.Module], weight_id: int) -> fx.Node:
    x = _input(match.padded or match.conv)

    def slope(source: Any) -> Any:
        return graph.get_attr(f"{source}.weight") if isinstance(source, str) else source

    with graph.inserting_before(match.last):
        scale, shift = match.film or (None, None)
        others = (slope(match.pre_slope), slope(match.slope), scale, shift, match.residual)
        start = (match.head, match.pre, tuple(match.post), x)
        if match.conv.op == "call_module" and (match.norm is None or match.norm.op == "call_module"):
            keep_weight_of(modules[match.conv.target])
            conv = _module_of(graph, match.conv)
            norm = None if match.norm is None else _module_of(graph, match.norm)
            call = (graph.call_function(_transposed.run, (x, conv)) if match.transposed else
                    graph.call_function(run_modules, (*start, conv, norm, *others)))
        else:
            tensors = _parameters(graph, match, modules)
            call = graph.call_function(run_tensors, (*start, *tensors, *others), {"weight_id": weight_id})
    call.meta.update(match.last.meta)
    match.last.replace_all_uses_with(call)
    for node in [*reversed(match.nodes), match.conv, *([match.padded] if match.padded else [])]:
        graph.erase_node(node)
    return call


def _module_of(graph: fx.Graph, call: fx.Node) -> fx.Node:
    module = graph.get_attr(call.target)
    module.meta[IS_MODULE] = True
    return module


def _parameters(graph: fx.Graph, match: Match, modules: dict[str, nn.Module]) -> tuple:
    """Nodes of weight, bias, gamma and beta, whichever way the two are called."""
    found = []
    for node, names in ((match.conv, ("weight", "bias")), (match.norm, ("weight", "bias"))):
        if node is None:
            found += [None, None]
        elif node.op == "call_module":
            module = modules[node.target]
            found += [
                None if getattr(module, name) is None else graph.get_attr(f"{node.target}.{name}") for name in names
            ]
        elif node is match.conv:
            bound = _bound(node, input=None, weight=None, bias=None)
            found += [bound["weight"], bound["bias"]]
        else:
            bound = _bound(node, input=None, num_groups=None, weight=None, bias=None)
            found += [bound["weight"], bound["bias"]]
    return tuple(found)
