"""torch.compile(model, backend="convnorm"): fuses the pattern in the captured graph and hands the rest to Inductor.

Functional calls and dynamic shapes are covered. Where gradients are off the packed weights are kept, and packed again
when PyTorch counts a change.
"""
from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from torch import fx

from . import _patterns
from .nn import WeightId

__all__ = ["convnorm"]


def convnorm(graph_module: fx.GraphModule, example_inputs: list[Any], *, options: Optional[dict[str, Any]] = None,
             mode: Optional[str] = None) -> Callable:
    """A backend of torch.compile.

    Args:
        graph_module, example_inputs: from the compiler.
        options: {"then": name of the backend that compiles the rest}; "inductor" where it is not given. The others are
            Inductor's.
        mode: Inductor's, as in torch.compile.
    """
    others = dict(options or {})
    then = others.pop("then", "inductor")
    kept: list[WeightId] = []

    def weight_id() -> int:
        kept.append(WeightId())
        return kept[-1].number

    matches = _patterns.Matcher(graph_module.graph).matches()
    if matches:
        _patterns.replace_all(graph_module.graph, matches, weight_id=None if torch.is_grad_enabled() else weight_id)
        graph_module.graph.lint()
        graph_module.recompile()
    if then == "inductor":
        from torch._inductor.compile_fx import compile_fx

        patches = {**(torch._inductor.list_mode_options(mode) if mode else {}), **others}
        compiled = compile_fx(graph_module, example_inputs, config_patches=patches or None)
    else:
        compiled = torch._dynamo.lookup_backend(then)(graph_module, example_inputs)

    def run(*arguments: Any) -> Any:
        return compiled(*arguments)

    run.kept = kept  # as long as what was compiled
    return run
