"""The second way to a graph: torch.export, for forward passes that torch.fx cannot trace.

An exported graph holds for what it was exported with, so that it comes with the question whether a call is like that.
"""
from __future__ import annotations

import inspect
from typing import Any, Callable

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree

from . import _patterns, _timing
from ._held import Held
from .nn import WeightId


class Exported:
    """One forward pass in eval mode, for calls whose arguments are like those of the example."""

    def __init__(self, module: nn.Module, arguments: tuple, named: dict[str, Any]) -> None:
        """Raises whatever torch.export raises."""
        def free(leaf: Any) -> Any:
            return {axis: torch.export.Dim.AUTO for axis in range(leaf.dim())} if isinstance(leaf, Tensor) else None

        program = torch.export.export(module, arguments, named, dynamic_shapes=_shapes(module, arguments, named, free),
                                      strict=False)
        whole = program.module(check_guards=False)
        self.graph = whole.graph
        self.graph.set_codegen(fx.graph.CodeGen())
        leaves, self._spec = _pytree.tree_flatten((arguments, named))
        self._examples = [each.detach() if isinstance(each, Tensor) else each for each in leaves]
        self._result = program.call_spec.out_spec
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        self._sizes = [list(node.meta["val"].shape) if isinstance(leaf, Tensor) else None
                       for node, leaf in zip(inputs, leaves, strict=True)]
        self._ranges = {
            str(symbol): (bounds.lower, bounds.upper) for symbol, bounds in program.range_constraints.items()
        }
        self.watched = [each for each in module.modules() if each is not module]
        self.held = Held(module, self.watched)
        self._own(module, whole)
        self.kept: list[WeightId] = []

    def _own(self, module: nn.Module, whole: fx.GraphModule) -> None:
        """Constants of the graph that are none of the module's become part of its code; the guards of its own go."""
        for node in list(self.graph.nodes):
            if node.op == "call_module":
                if node.users:
                    raise NotImplementedError("its exported graph calls other graphs")
                self.graph.erase_node(node)
            elif node.op == "get_attr" and not _has(module, node.target):
                value = _find(whole, node.target)
                if not isinstance(value, Tensor):
                    raise NotImplementedError("its exported graph calls other graphs")
                with self.graph.inserting_before(node):
                    node.replace_all_uses_with(self.graph.call_function(_constant(value)))
                self.graph.erase_node(node)

    def matches(self) -> list[_patterns.Match]:
        matcher = _patterns.Matcher(self.graph)
        found = matcher.matches()
        self.reasons = {_patterns.name_of(node): why for node, why in matcher.reasons.items()}
        return found

    def fuse(self, matches: list[_patterns.Match]) -> None:
        def weight_id() -> int:
            self.kept.append(WeightId())
            return self.kept[-1].number

        self.found = [(match.name, match.describe()) for match in matches]
        _patterns.replace_all(self.graph, matches, weight_id=weight_id)
        self.graph.lint()
        self._run = _timing.function_of(self.graph, "exported")

    def fits(self, arguments: tuple, named: dict[str, Any]) -> bool:
        leaves, spec = _pytree.tree_flatten((arguments, named))
        if spec != self._spec or torch._C._is_any_autocast_enabled():
            return False
        symbols: dict[str, int] = {}
        return all(self._is_like(*each, symbols) for each in zip(leaves, self._examples, self._sizes))

    def _is_like(self, leaf: Any, example: Any, sizes: Any, symbols: dict[str, int]) -> bool:
        if not isinstance(example, Tensor):
            return type(leaf) is type(example) and leaf == example
        if not isinstance(leaf, Tensor) or leaf.dim() != example.dim() or (
                leaf.dtype, leaf.device) != (example.dtype, example.device):
            return False
        for size, wanted, known in zip(leaf.shape, sizes, example.shape):
            name = str(wanted)
            if isinstance(wanted, int) or name not in self._ranges:  # a number, or computed from others
                if size != known:
                    return False
            elif not self._ranges[name][0] <= size <= self._ranges[name][1] or symbols.setdefault(name, size) != size:
                return False
        return True

    def run(self, module: nn.Module, arguments: tuple, named: dict[str, Any]) -> Any:
        y = self._run(module, *_pytree.tree_leaves((arguments, named)))
        return _pytree.tree_unflatten(list(y), self._result)


def _shapes(module: nn.Module, arguments: tuple, named: dict[str, Any], free: Callable) -> Any:
    bound = inspect.signature(module.forward).bind(*arguments, **named)
    return {name: _pytree.tree_map(free, value) for name, value in bound.arguments.items()}


def _find(module: nn.Module, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _has(module: nn.Module, path: str) -> bool:
    try:
        return isinstance(_find(module, path), Tensor)
    except AttributeError:
        return False


def _constant(value: Tensor) -> Callable[[], Tensor]:
    def constant() -> Tensor:
        return value

    return constant
