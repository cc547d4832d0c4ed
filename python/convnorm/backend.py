"""torch.compile(model, backend="convnorm"): fuses the pattern in the captured graph and hands the rest to Inductor.

Functional calls and dynamic shapes are covered. Where gradients are off the packed weights are kept, and packed again
when PyTorch counts a change; and each chain is timed, as it stands and fused, both compiled by what compiles the rest:
one that would be slower is left alone. Where gradients are recorded all chains are fused, which saves memory. The
report of each graph goes to the logger "convnorm" at level INFO.
"""
from __future__ import annotations

import logging
from typing import Any, Callable, Optional

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes

from . import _patterns, _timing
from ._report import SLOWER, Choice, Entry, FusionReport, in_order
from .nn import WeightId

__all__ = ["convnorm"]

_log = logging.getLogger("convnorm")


def convnorm(graph_module: fx.GraphModule, example_inputs: list[Any], *, options: Optional[dict[str, Any]] = None,
             mode: Optional[str] = None) -> Callable:
    """A backend of torch.compile.

    Args:
        graph_module, example_inputs: from the compiler.
        options: "then": name of the backend that compiles the rest, "inductor" where it is not given; "timing": False
            fuses all chains untimed. The others are Inductor's.
        mode: Inductor's, as in torch.compile.
    """
    others = dict(options or {})
    then, timing = others.pop("then", "inductor"), others.pop("timing", True)
    if then == "inductor":
        others = {**(torch._inductor.list_mode_options(mode) if mode else {}), **others}
    kept: list[WeightId] = []

    def weight_id() -> int:
        kept.append(WeightId())
        return kept[-1].number

    recorded = torch.is_grad_enabled()
    timing = timing and not recorded
    matcher = _patterns.Matcher(graph_module.graph, convolutions=timing)
    matches, choice = matcher.matches(), Choice()
    if timing and matches:
        alone = {**others, "triton.cudagraphs": False}  # _timing captures its own
        _time(graph_module, matches, choice, lambda *graph: _compile(*graph, then, alone))
    taken = [match for match in matches if choice.takes(match)]
    _log.info("%s", _report(graph_module, matcher, matches, taken, choice))
    if taken:
        _patterns.replace_all(graph_module.graph, taken, weight_id=None if recorded else weight_id)
        graph_module.graph.lint()
        graph_module.recompile()
    compiled = _compile(graph_module, example_inputs, then, others)

    def run(*arguments: Any) -> Any:
        return compiled(*arguments)

    run.kept = kept  # as long as what was compiled
    return run


def _compile(graph_module: fx.GraphModule, inputs: list[Any], then: str, options: dict[str, Any]) -> Callable:
    if then != "inductor":
        return torch._dynamo.lookup_backend(then)(graph_module, inputs)
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph_module, inputs, config_patches=options or None)


def _time(graph_module: fx.GraphModule, matches: list[_patterns.Match], choice: Choice, compiled: Callable) -> None:
    """On drawn values of the captured shapes, outside of what the compiler has under way."""
    with torch._guards.tracing(None), _disable_current_modes():
        pairs = _timing.Pairs(compiled)
        try:
            choice.note(matches, pairs.gains_on(_drawn, graph_module, matches, {}))
        except Exception as error:  # whatever fails is a trial, not the model
            _log.warning("chains are fused untimed: %s", error)


def _drawn(nodes: list[fx.Node]) -> list[Any]:
    def number(value: Any) -> Any:
        if isinstance(value, (int, float)):
            return value
        if value.node.hint is None:
            raise ValueError(f"the number {value} depends on data")
        return value.node.hint

    def draw(node: fx.Node) -> Any:
        known = _patterns.example_of(node)
        if isinstance(known, (torch.SymInt, torch.SymFloat)):
            return number(known)
        if not isinstance(known, Tensor) or not known.is_floating_point():
            raise ValueError(f"{node.name} is a {type(known).__name__}")
        shape, strides = tuple(map(number, known.shape)), tuple(map(number, known.stride()))
        extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if 0 not in shape else 0
        memory = torch.empty(extent, dtype=known.dtype, device=known.device)
        return memory.normal_(generator=torch.Generator(known.device).manual_seed(0)).as_strided(shape, strides)

    return [draw(node) for node in nodes]


def _report(graph_module: fx.GraphModule, matcher: _patterns.Matcher, matches: list[_patterns.Match],
            taken: list[_patterns.Match], choice: Choice) -> FusionReport:
    entries = [Entry(match.name, True, match.describe(), choice.faster.get(match.name)) for match in taken]
    entries += [Entry(match.name, False, SLOWER, choice.slower[match.name]) for match in matches
                if match.name in choice.slower]
    entries += [Entry(_patterns.name_of(node), False, why) for node, why in matcher.reasons.items()]
    return FusionReport(graph_module, in_order(entries))
