"""Finds Conv1d -> GroupNorm -> activation in a network and fuses it in place.

A module whose forward pass holds the pattern is traced by torch.fx and gets a class of its own, derived from its own
class, whose forward pass is the traced one. Parameters, submodules, hooks and state_dict stay where they are; for
arguments, modes or hooks that the trace does not cover the original forward pass runs. Where torch.fx cannot trace,
torch.export is asked.
"""
from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import threading
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Optional, Union

import torch
from torch import Tensor, fx, nn

from . import _patterns, _timing
from ._export import Exported
from ._held import LAYERS, Held, Unchanged, is_constant
from ._report import SLOWER, Choice, Entry, FusionReport, in_order
from .nn import forget, keep_no_weight_of

# Modules inside of a traced one: traced along where they are as small as a block.
_MOST_INSIDE = 12
_MOST_VARIANTS = 16
# torch.fx traces by patching classes that all threads use.
_tracing = threading.RLock()
_TYPE_QUESTIONS = {"isinstance", "is_tensor", "type", "hasattr", "issubclass", "callable"}


class _Shape:
    """A shape of known rank, whose sizes enter the graph when they are asked for."""

    def __init__(self, proxy: fx.Proxy, rank: int) -> None:
        self._proxy, self._rank = proxy, rank

    def __len__(self) -> int:
        return self._rank

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[axis] for axis in range(*index.indices(self._rank)))
        return fx.proxy.Attribute(self._proxy, "shape")[range(self._rank)[index]]

    def __iter__(self) -> Iterable:
        return (self[axis] for axis in range(self._rank))


class _Proxy(fx.Proxy):
    """A proxy that knows its tensor's rank where that is sure, so that code that asks for it can be traced."""

    @property
    def _rank(self) -> Optional[int]:
        return self.node.meta.get("rank")

    @property
    def shape(self) -> Any:
        return fx.proxy.Attribute(self, "shape") if self._rank is None else _Shape(self, self._rank)

    @property
    def ndim(self) -> Any:
        return fx.proxy.Attribute(self, "ndim") if self._rank is None else self._rank

    def dim(self) -> Any:
        return self.tracer.create_proxy("call_method", "dim", (self,), {}) if self._rank is None else self._rank


def _rank_of(node: fx.Node, modules: dict[str, nn.Module]) -> Optional[int]:
    first = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
    rank = first.meta.get("rank") if first is not None else None
    if node.op == "call_module":
        module = modules.get(node.target)
        if isinstance(module, nn.Conv1d):
            return 3
        same = (nn.GroupNorm, nn.Dropout, nn.Dropout1d, nn.Identity)
        return rank if isinstance(module, same) or _patterns.activation_of_module(module, "") is not None else None
    if node.target is _patterns.operator.getitem and rank is not None and isinstance(node.args[1], tuple):
        index = node.args[1]
        if Ellipsis not in index and not any(isinstance(each, fx.Node) for each in index):
            return rank + index.count(None) - sum(isinstance(each, int) for each in index)
    return None


class _Tracer(fx.Tracer):
    """Traces one module, small blocks inside of it along."""

    # The class of a fused module keeps the original under this name.
    def __init__(self, root: nn.Module) -> None:
        super().__init__(param_shapes_constant=False)
        self.traced_func_name = "_convnorm_forward" if isinstance(root, _Fused) else "forward"
        self.inlined: list[nn.Module] = []
        self._thread = threading.get_ident()

    def call_module(self, module: nn.Module, forward: Callable, arguments: tuple, named: dict[str, Any]) -> Any:
        if threading.get_ident() != self._thread:
            return forward(*arguments, **named)
        return super().call_module(module, forward, arguments, named)

    def getattr(self, name: str, value: Any, *cache: Any) -> Any:
        return value if threading.get_ident() != self._thread else super().getattr(name, value, *cache)

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        if isinstance(module, nn.Conv1d) and type(module).forward is not nn.Conv1d.forward and not _hooked([module]):
            leaf = _asks_for_types(type(module))
        elif type(module) is nn.Sequential or not type(module).__module__.startswith("torch.nn"):
            leaf = not _is_small_block(module)
        else:
            leaf = True
        if not leaf:
            self.inlined.append(module)
        return leaf

    def proxy(self, node: fx.Node) -> fx.Proxy:
        node.meta["rank"] = _rank_of(node, dict(self.root.named_modules()) if node.op == "call_module" else {})
        return _Proxy(node, self)


def _hooked(modules: Iterable[nn.Module]) -> bool:
    """Whether one of them has a hook that is called with it, weight norm's apart, or a forward pass of its own."""
    for module in modules:
        state = module.__dict__
        if "forward" in state or "_conv_forward" in state:  # put in the place of its class's
            return True
        if state["_forward_hooks"] or state["_backward_hooks"] or state["_backward_pre_hooks"] or (
                state["_forward_pre_hooks"] and not all(map(_patterns.is_weight_norm,
                                                            state["_forward_pre_hooks"].values()))):
            return True
    return False


def _is_small_block(module: nn.Module) -> bool:
    inside = list(module.modules())
    return len(inside) <= _MOST_INSIDE and not _hooked(inside) and any(
        isinstance(each, LAYERS) for each in inside) and not any(
        _asks_for_types(type(each)) for each in inside)


def _asks_for_types(kind: type) -> bool:
    """Whether a forward pass looks at the types of its arguments, about which a trace would lie."""
    if kind.__module__.startswith("torch.nn"):
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind.forward)))
    except (OSError, TypeError, SyntaxError):
        return True
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(getattr(call, "id", getattr(call, "attr", None)) in _TYPE_QUESTIONS for call in calls)


@dataclass
class _Variant:
    """The forward pass for one mode and one choice of arguments that are no tensors."""

    run: Callable
    matches: list[_patterns.Match]
    watched: list[nn.Module]  # modules that are not called as such any more
    reasons: dict[str, str]
    held: Held

    def fits(self) -> bool:
        """Whether the module is still as it was traced."""
        return len(self.matches) > 0 and not _hooked(self.watched) and self.held.still()


@dataclass
class _Call:
    """A call of one module in the example run."""

    arguments: tuple
    named: dict[str, Any]


def _variant(module: nn.Module, constants: dict[str, Any], choice: Choice,
             trial: Optional[tuple[_timing.Pairs, dict[str, Any]]] = None) -> _Variant:
    """Traces and rewrites. Raises whatever tracing raises. `trial`: pairs and arguments by name, to fill the choice."""
    with _tracing, Unchanged(module):
        tracer = _Tracer(module)
        graph = tracer.trace(module, constants)
    for node in list(graph.nodes):  # the checks of constants: the choice of the variant is one
        if node.op == "call_function" and node.target in (torch._assert, fx._symbolic_trace._assert_is_none):
            graph.erase_node(node)
    for node in reversed(list(graph.nodes)):  # questions whose answers are not used
        if not node.users and node.target in (getattr, _patterns.operator.getitem, "size", "dim"):
            graph.erase_node(node)
    modules = dict(module.named_modules(remove_duplicate=False))
    matcher = _patterns.Matcher(graph, modules, convolutions=trial is not None or bool(choice.faster))
    matches = matcher.matches()
    if trial is not None:
        pairs, values = trial
        inputs = [values[node.target] for node in graph.nodes if node.op == "placeholder"]
        choice.note(matches, pairs.gains(module, graph, matches, modules, inputs))
    matches = [match for match in matches if choice.takes(match)]
    watched = list(tracer.inlined)
    for match in matches:
        watched += [modules[node.target] for node in (match.conv, *match.nodes) if node.op == "call_module"]
    if _hooked(watched):
        matches = []
    _patterns.replace_all(graph, matches, modules)
    graph.lint()
    reasons = {_patterns.name_of(node): why for node, why in matcher.reasons.items()}
    run = _timing.function_of(graph, type(module).__name__)
    return _Variant(run, matches, watched, reasons, Held(module, watched))


class _Fused:
    """What the classes of fused modules have beside their own."""

    _convnorm_class: type  # the original
    _convnorm_forward: Callable
    _convnorm_choice: Choice
    _convnorm_exported: Optional[Exported]  # in place of what follows
    _convnorm_names: tuple[str, ...]
    _convnorm_defaults: dict[str, Any]
    _convnorm_variants: dict[tuple, Optional[_Variant]]

    def forward(self, *arguments: Any, **named: Any) -> Any:
        kind = type(self)
        if kind._convnorm_exported is not None:
            exported = kind._convnorm_exported
            if not self.training and not torch.compiler.is_compiling() and exported.fits(
                    arguments, named) and not _hooked(exported.watched) and exported.held.still():
                return exported.run(self, arguments, named)
            return kind._convnorm_forward(self, *arguments, **named)
        if not named and len(arguments) == len(kind._convnorm_names) and all(
                isinstance(each, Tensor) for each in arguments):
            variant = kind._convnorm_variants.get((self.training,))
            if variant is not None and variant.fits():
                try:
                    return variant.run(self, *arguments)
                except _patterns.NotBatched:
                    return kind._convnorm_forward(self, *arguments)
        values = dict(zip(kind._convnorm_names, arguments))
        values.update(named)
        if len(values) == len(arguments) + len(named) and values.keys() <= set(kind._convnorm_names):
            full = {**kind._convnorm_defaults, **values}
            variant = _find(self, full)
            if variant is not None and variant.fits():
                try:
                    return variant.run(self, *(full[name] for name in kind._convnorm_names))
                except _patterns.NotBatched:
                    pass
        return kind._convnorm_forward(self, *arguments, **named)

    def train(self, mode: bool = True) -> nn.Module:
        if mode:
            repack(self)
        return super().train(mode)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        kind = type(self)
        if kind._convnorm_exported is not None:  # its graph is not traced again: the copy is the original
            return _restore, (kind._convnorm_class, self.__dict__)
        return _rebuild, (kind._convnorm_class, self.__dict__, kind._convnorm_choice)


def _find(module: nn.Module, values: dict[str, Any]) -> Optional[_Variant]:
    """The variant for these arguments; None where there cannot be one."""
    kind = type(module)
    if values.keys() != set(kind._convnorm_names):
        return None  # an argument is missing: the original forward pass says which
    constants = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
    if not all(is_constant(value) for value in constants.values()):
        return None
    key = (module.training, *sorted(constants.items(), key=lambda item: item[0]))
    known = kind._convnorm_variants
    if key in known:
        return known[key]
    if torch.compiler.is_compiling() or len(known) >= _MOST_VARIANTS:
        return None
    with _tracing:
        if key not in known:  # by another thread
            try:
                known[key] = _variant(module, constants, kind._convnorm_choice)
            except Exception:  # tracing runs the module's own code on proxies, which may fail in any way
                known[key] = None
    return known[key]


def _restore(kind: type, state: dict[str, Any]) -> nn.Module:
    module = kind.__new__(kind)
    module.__setstate__(state)
    return module


def _rebuild(kind: type, state: dict[str, Any], choice: Choice) -> nn.Module:
    module = _restore(kind, state)
    if _arguments(kind) is not None:
        _take_over(module, *_arguments(kind), choice)
    return module


def _arguments(kind: type) -> Optional[tuple[tuple[str, ...], dict[str, Any]]]:
    """Names and defaults of a forward pass; None where it takes any number of them."""
    parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    if any(each.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters):
        return None
    return tuple(each.name for each in parameters), {
        each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


def _take_over(module: nn.Module, names: tuple[str, ...], defaults: dict[str, Any], choice: Choice,
               exported: Optional[Exported] = None) -> None:
    kind = type(module)
    module.__class__ = type(
        kind.__name__, (_Fused, kind), {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            "_convnorm_class": kind,
            "_convnorm_forward": kind.forward,
            "_convnorm_names": names,
            "_convnorm_defaults": defaults,
            "_convnorm_choice": choice,
            "_convnorm_exported": exported,
            "_convnorm_variants": {}
        })


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _try(module: nn.Module, call: Optional[_Call],
         pairs: Optional[_timing.Pairs]) -> tuple[Optional[_Variant], Choice, str]:
    """Fuses one module if its forward pass holds the pattern; else leaves it and says why."""
    choice = Choice()
    if _asks_for_types(type(module)):
        return None, choice, "its forward pass looks at the types of its arguments, or its source is not to be had"
    arguments = _arguments(type(module))
    if arguments is None:
        return None, choice, "its forward pass takes any number of arguments"
    names, defaults = arguments
    if not all(is_constant(value) for value in defaults.values()):
        return None, choice, "its defaults are neither numbers nor text"
    constants, trial = defaults, None
    if call is not None:
        values = {**defaults, **dict(zip(names, call.arguments)), **call.named}
        given = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
        if values.keys() == set(names) and all(is_constant(value) for value in given.values()):
            constants, trial = given, pairs and (pairs, values)
    try:
        variant = _variant(module, constants, choice, trial)
    except Exception as error:  # as in _find
        return None, choice, f"it could not be traced: {_first_line(error)}"
    if variant.matches:
        _take_over(module, names, defaults, choice)
        key = (module.training, *sorted(constants.items(), key=lambda item: item[0]))
        type(module)._convnorm_variants[key] = variant
        if trial is not None:
            _put_back_if_slower(module, variant, choice, pairs, [values[name] for name in names])
    return variant, choice, ""


def _put_back_if_slower(module: nn.Module, variant: _Variant, choice: Choice, pairs: _timing.Pairs,
                        arguments: list[Any]) -> None:
    """On GPUs eager calls often take what the host takes, of which a fused class asks more than its chains alone."""
    kind = type(module)
    if pairs.graphs_alone or not _timing.any_on_gpu(arguments):
        return
    key = (kind._convnorm_class, *(match.describe() for match in variant.matches),
           *(tuple(each.shape) if isinstance(each, Tensor) else each for each in arguments))
    gain = pairs.gain_of_calls(key, lambda: kind._convnorm_forward(module, *arguments),
                               lambda: module.forward(*arguments))
    if gain < 1:
        module.__class__ = kind._convnorm_class
        choice.note(variant.matches, [gain] * len(variant.matches))
        variant.matches = []


def _try_export(module: nn.Module, call: _Call,
                pairs: Optional[_timing.Pairs]) -> tuple[Optional[Exported], Choice, str]:
    """As `_try`, by the second way, for the example's arguments and those like them."""
    choice = Choice()
    try:
        with Unchanged(module), torch.no_grad():  # exporting puts back what is written, and says nothing
            module.forward(*call.arguments, **call.named)
        exported = Exported(module, call.arguments, call.named)
        matches = exported.matches()
        if pairs is not None:
            inputs = torch.utils._pytree.tree_leaves((call.arguments, call.named))
            choice.note(matches, pairs.gains(module, exported.graph, matches, {}, inputs))
        matches = [match for match in matches if choice.takes(match)]
        exported.fuse(matches)
    except Exception as error:  # exporting runs the module's own code too
        return None, choice, f"nor exported: {_first_line(error)}"
    if matches:
        _take_over(module, (), {}, choice, exported)
    return exported, choice, ""


def _chains(kind: type[_Fused]) -> list[tuple[str, str]]:
    """Names and texts of what a fused class computes with the operator."""
    if kind._convnorm_exported is not None:
        return kind._convnorm_exported.found
    return [(match.name, match.describe()) for variant in kind._convnorm_variants.values() if variant is not None
            for match in variant.matches]


def _norms_inside(module: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    return ((name, each) for name, each in module.named_modules() if isinstance(each, nn.GroupNorm))


class _Report:
    """Entries by name; the first word on a norm stays."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def fused(self, prefix: str, name: str, chain: str, choice: Choice) -> None:
        self.entries[prefix + name] = Entry(prefix + name, True, chain, choice.faster.get(name))

    def left(self, prefix: str, name: str, why: str, gain: Optional[float] = None) -> None:
        self.entries.setdefault(prefix + name, Entry(prefix + name, False, why, gain))

    def slower(self, prefix: str, choice: Choice) -> None:
        for name, gain in choice.slower.items():
            self.left(prefix, name, SLOWER, gain)


def _fuse_modules(model: nn.Module, calls: dict[nn.Module, _Call], pairs: Optional[_timing.Pairs]) -> _Report:
    """Fuses what there is in `model`. `pairs`: where chains are timed; `calls`: of an example run."""
    report = _Report()
    done: set[nn.Module] = set()
    for path, module in list(model.named_modules()):
        prefix = f"{path}." if path else ""
        if isinstance(module, _Fused):
            for name, chain in _chains(type(module)):
                report.fused(prefix, name, chain, type(module)._convnorm_choice)
            continue
        if module in done or type(module).__module__.startswith("torch.nn") and (
                type(module) is not nn.Sequential):
            continue
        inside = list(_norms_inside(module))
        if not inside and (pairs is None or not any(isinstance(each, LAYERS) for each in module.modules())):
            continue
        call = calls.get(module)
        variant, choice, why = _try(module, call, pairs)
        if variant is not None:
            for match in variant.matches:
                report.fused(prefix, match.name, match.describe(), choice)
            report.slower(prefix, choice)
            for name, reason in variant.reasons.items():
                report.left(prefix, name, reason)
            if variant.matches:
                done.update(variant.watched)
            continue
        own = [name for name, _ in inside if "." not in name]
        if own and call is not None and not _hooked(each for each in module.modules() if each is not module):
            exported, choice, also = _try_export(module, call, pairs)
            why = f"{why}; {also}" if also else why
            if exported is not None:
                for name, chain in exported.found:
                    report.fused(prefix, name, chain, choice)
                report.slower(prefix, choice)
                for name, reason in exported.reasons.items():
                    report.left(prefix, name, reason)
                if exported.found:
                    done.update(exported.watched)
                    continue
        for name in own:
            report.left(prefix, name, why)
    for name, _ in _norms_inside(model):
        report.left("", name, "no forward pass that could be traced calls it after a Conv1d")
    return report


def _is_slower_in_eager_calls(model: nn.Module, inputs: tuple, pairs: _timing.Pairs) -> bool:
    """Whether the fused model's eager calls take longer than those of its own classes."""
    fused = [(module, type(module)) for module in model.modules() if isinstance(module, _Fused)]
    if not fused:
        return False

    def as_it_was() -> Any:
        for module, kind in fused:
            module.__class__ = kind._convnorm_class
        return model(*inputs)

    def as_it_is() -> Any:
        for module, kind in fused:
            module.__class__ = kind
        return model(*inputs)

    try:
        return pairs.gain_of_calls(("the model",), as_it_was, as_it_is) < 1
    finally:
        for module, kind in fused:
            module.__class__ = kind


def fuse(model: nn.Module, example_inputs: Union[None, Tensor, tuple] = None, *,
         timing: Union[None, bool, str] = None) -> FusionReport:
    """Finds Conv1d -> GroupNorm -> activation -> FiLM, residual in `model` and fuses it where it stands.

    Args:
        model: any network. Its modules, parameters and the names in its state_dict stay.
        example_inputs: arguments of one call, or its only one. With them results are compared in eval mode, and a
            network whose results changed gets back its original modules; and modules that torch.fx cannot trace are
            exported for inputs like these.
        timing: whether each chain is timed on the example, in eval mode, as it stands and fused, on GPUs in graphs;
            those that would be slower are left alone, and convolutions without a norm are fused where that is faster.
            If eager calls of the model on a GPU were slower then, chains and modules must be as fast in eager calls
            too. None: as True where there are example inputs. "graph": as True, but eager calls on GPUs do not count.

    Returns:
        The report; its `model` is the same object, or the fused model where that had to be another one.

    Raises:
        TypeError: model is no module.
        ValueError: timing without example inputs, or by another name.
        RuntimeError: the model fails on example inputs that lie on another device.
        Whatever else the model raises on the example inputs.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, but it must be a torch.nn.Module")
    if isinstance(timing, str) and timing != "graph":
        raise ValueError(f"timing={timing!r} must be True, False, None or 'graph'")
    if timing and example_inputs is None:
        raise ValueError(f"timing={timing!r} needs example_inputs")
    if isinstance(example_inputs, Tensor):
        example_inputs = (example_inputs,)
    before, calls, modes = None, {}, {module: module.training for module in model.modules()}

    def restore_modes() -> None:
        for module, mode in modes.items():
            module.training = mode

    if example_inputs is not None:
        model.eval()
        try:
            before = _run_in_eval_mode(model, example_inputs, calls)
        except Exception as error:
            restore_modes()
            _check_devices(model, example_inputs, error)
            raise
    timed = timing or timing is None and example_inputs is not None
    if timed and _timing.any_on_gpu(torch.utils._pytree.tree_leaves(example_inputs)):
        pairs = _timing.Pairs(graphs_alone=True)
        report = _fuse_modules(model, calls, pairs)
        if timing != "graph" and _is_slower_in_eager_calls(model, example_inputs, pairs):
            unfuse(model)
            report = _fuse_modules(model, calls, _timing.Pairs())
    else:
        report = _fuse_modules(model, calls, _timing.Pairs() if timed else None)
    entries = report.entries
    if before is not None and not _close(before, _run_in_eval_mode(model, example_inputs)):
        unfuse(model)
        entries = {name: Entry(name, False, "results changed, so that all was put back") for name in entries}
    restore_modes()
    return FusionReport(model, in_order(entries.values()))


def unfuse(model: nn.Module) -> nn.Module:
    """Gives every module that `fuse` changed its original class back. Returns `model`."""
    for module in model.modules():
        if isinstance(module, _Fused):
            module.__class__ = type(module)._convnorm_class
        keep_no_weight_of(module)
    return model


def repack(model: nn.Module) -> None:
    """Forgets what is packed of the weights of `model`, whoever packed it: its modules, `fuse` or the compiler backend.

    For changes that PyTorch does not count, those through `weight.data`.
    """
    forget(model.parameters())


def _check_devices(model: nn.Module, inputs: tuple, error: Exception) -> None:
    """Says of an example that failed that it is elsewhere than the model; what models move themselves does not fail."""
    devices = {each.device for each in itertools.chain(model.parameters(), model.buffers())}
    for each in torch.utils._pytree.tree_leaves(inputs):
        if isinstance(each, Tensor) and devices and each.device not in devices:
            raise RuntimeError(f"convnorm: example_inputs hold a tensor on {each.device}, but the model is on "
                               f"{', '.join(sorted(map(str, devices)))}; move them to one device") from error


def _run_in_eval_mode(model: nn.Module, inputs: tuple, calls: Optional[dict[nn.Module, _Call]] = None) -> Any:
    """Results of a call of the model, which is in eval mode; `calls` gets the first call of each module in it."""
    def note(module: nn.Module, arguments: tuple, named: dict[str, Any]) -> None:
        calls.setdefault(module, _Call(arguments, named))

    handles = [] if calls is None else [
        module.register_forward_pre_hook(note, with_kwargs=True) for module in model.modules()
        if type(module) is nn.Sequential or not type(module).__module__.startswith("torch.nn")]
    try:
        with torch.no_grad():
            return model(*inputs)
    finally:
        for handle in handles:
            handle.remove()


def _close(before: Any, after: Any) -> bool:
    ours, theirs = torch.utils._pytree.tree_leaves(after), torch.utils._pytree.tree_leaves(before)
    if len(ours) != len(theirs):
        return False

    def near(one: Any, other: Any) -> bool:
        if not isinstance(one, Tensor):
            return one is other or one == other
        tolerance = 1e-3 if one.dtype in (torch.float32, torch.float64) else 3e-2
        scale = other.abs().max().item() if other.numel() else 0.0
        return one.shape == other.shape and torch.allclose(one, other, tolerance, tolerance * scale, equal_nan=True)

    return all(near(*pair) for pair in zip(ours, theirs))
