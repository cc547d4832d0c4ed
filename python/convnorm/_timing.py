"""Times a chain in a graph as it stands and as one call, on the values that it gets in an example run."""
from __future__ import annotations

import ast
import copy
import functools
import logging
import statistics
import time
from typing import Any, Callable, Iterable, Optional

import torch
from torch import Tensor, fx, nn

from . import _patterns
from .nn import WeightId, keep_no_weight_of, kept_number

_log = logging.getLogger("convnorm")

_SECONDS = 0.3  # of one pair, about; slow ones take at least _FEWEST rounds
_FEWEST, _MOST = 7, 31
_SECONDS_OF_A_ROUND = 1e-3  # calls that are shorter are timed several at once
_GRAPH_CALLS = 20
# By how much longer eager calls on a GPU may take: two measurements of the same call differ by 0.02.
_NO_SLOWER = 0.03


class _Lookup(ast.NodeTransformer):
    """Takes modules from the dictionaries that hold them: nn.Module's own way to them costs a microsecond a step."""

    def __init__(self, paths: set[str]) -> None:
        self._paths = paths

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._found(node) or self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self._found(node) or self.generic_visit(node)

    def _found(self, node: ast.AST) -> Optional[ast.AST]:
        path = self._path(node)
        if path not in self._paths:
            return None
        found: ast.expr = ast.Name("self", ast.Load())
        for name in path.split("."):
            modules = ast.Attribute(found, "_modules", ast.Load())
            found = ast.Subscript(modules, ast.Constant(name), ast.Load())
        return found

    def _path(self, node: ast.AST) -> Optional[str]:
        """Of `self.blocks` and `getattr(self.blocks, "0")`; "" is self's."""
        if isinstance(node, ast.Name):
            return "" if node.id == "self" else None
        if isinstance(node, ast.Attribute):
            owner, name = self._path(node.value), node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            owner, name = self._path(node.args[0]), getattr(node.args[1], "value", None)
        else:
            return None
        return None if owner is None else f"{owner}.{name}" if owner else name


def function_of(graph: fx.Graph, name: str) -> Callable:
    """The function (module, *inputs) that a graph describes."""
    paths = set()
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr"):
            parts = node.target.split(".")
            is_module = node.op == "call_module" or _patterns.IS_MODULE in node.meta
            paths.update(".".join(parts[:count]) for count in range(1, len(parts) + is_module))
    code = graph.python_code("self")
    tree = ast.fix_missing_locations(_Lookup(paths).visit(ast.parse(code.src)))
    scope = dict(code.globals)
    exec(compile(tree, f"<convnorm: {name}>", "exec"), scope)
    return scope["forward"]


def values_of(module: nn.Module, graph: fx.Graph, wanted: list[fx.Node], inputs: Iterable[Any]) -> list[Any]:
    """What the nodes `wanted` hold when the graph runs on `inputs`."""
    copy, copied = fx.Graph(), {}
    copy.graph_copy(graph, copied)
    copy.output(tuple(copied[node] for node in wanted))
    return function_of(copy, "values")(module, *inputs)


def _inputs_of(graph: fx.Graph, match: _patterns.Match) -> tuple[list[fx.Node], list[fx.Node]]:
    """The nodes of a chain in their order, and those from outside that they read."""
    members = {match.conv, *match.nodes, *([match.padded] if match.padded else [])}
    inside = [node for node in graph.nodes if node in members]
    outside = dict.fromkeys(each for node in inside for each in node.all_input_nodes if each not in members)
    return inside, list(outside)


class Pairs:
    """Chains of one network. Equal ones are timed once."""

    def __init__(self, compiled: Optional[Callable[[fx.GraphModule, list[Any]], Callable]] = None,
                 graphs_alone: bool = False) -> None:
        """`compiled` makes of a graph and its inputs what is timed; without it the graph's code is. `graphs_alone`:
        eager calls on GPUs do not count.
        """
        self._known: dict[tuple, Optional[float]] = {}
        self._compiled = compiled
        self.graphs_alone = graphs_alone

    def gains(self, module: nn.Module, graph: fx.Graph, matches: list[_patterns.Match], modules: dict[str, nn.Module],
              inputs: list[Any]) -> list[Optional[float]]:
        """For each match how many times as fast the one call is; None where that could not be found out."""
        with torch.no_grad():
            return self.gains_on(lambda wanted: values_of(module, graph, wanted, inputs), module, matches, modules)

    def gains_on(self, values: Callable[[list[fx.Node]], list[Any]], module: nn.Module,
                 matches: list[_patterns.Match], modules: dict[str, nn.Module]) -> list[Optional[float]]:
        """The same with what `values` gives for nodes of a graph; gradients are off."""
        parts = [_inputs_of(match.conv.graph, match) for match in matches]
        wanted = list(dict.fromkeys(node for _, outside in parts for node in outside))
        found = dict(zip(wanted, values(wanted)))
        return [self._gain(module, match, inside, {node: found[node] for node in outside}, modules)
                for match, (inside, outside) in zip(matches, parts)]

    def gain_of_calls(self, key: tuple, plain: Callable, fused: Callable) -> float:
        """How many times as fast eager calls on a GPU are; those of equal `key` are timed once."""
        if key not in self._known:
            with torch.no_grad():
                plain()
                fused()
                self._known[key] = _counted(_ratio(plain, fused, True))
        return self._known[key]

    def _gain(self, module: nn.Module, match: _patterns.Match, inside: list[fx.Node], values: dict[fx.Node, Any],
              modules: dict[str, nn.Module]) -> Optional[float]:
        plain, copied = fx.Graph(), {node: None for node in values}
        for node in values:
            copied[node] = plain.placeholder(node.name)
        for node in inside:
            copied[node] = plain.node_copy(node, lambda each: copied[each])
        plain.output((copied[match.last],))
        given = list(values.values())
        keeps = _patterns.weight_is_given(match)
        key = (match.describe(), match.head, keeps, *(
            (each.shape, each.dtype, each.device, each.stride()) if isinstance(each, Tensor) else id(each)
            for each in given), *(tuple(each.shape) for each in _parameters(match, modules)))
        if key not in self._known:
            conv = modules.get(match.conv.target) if match.conv.op == "call_module" else None
            kept_before = conv is not None and kept_number(conv) != 0
            as_it_stands = self._call(module, plain, given, "as it stands")
            found = _patterns.Matcher(plain, modules, convolutions=True).matches()
            if len(found) != 1 or found[0].describe() != match.describe():
                return None
            kept = WeightId()
            _patterns.replace_all(plain, found, modules, (lambda: kept.number) if keeps else None)
            as_one_call = self._call(module, plain, given, "as one call")
            on_gpu = any_on_gpu(given)
            self._known[key] = times_as_fast(as_it_stands, as_one_call, on_gpu, self.graphs_alone)
            _log.debug("timed %s: %s, %.2f times as fast", match.name, match.describe(), self._known[key])
            if conv is not None and not kept_before:  # the packed weight of a chain that may be left alone
                keep_no_weight_of(conv)
        return self._known[key]

    def _call(self, module: nn.Module, graph: fx.Graph, given: list[Any], name: str) -> Callable[[], Any]:
        if self._compiled is None:
            run = functools.partial(function_of(graph, name), module)
        else:
            run = self._compiled(fx.GraphModule(module, copy.deepcopy(graph)), given)
        return lambda: run(*given)[0]


def _parameters(match: _patterns.Match, modules: dict[str, nn.Module]) -> Iterable[Tensor]:
    called = [
        modules[node.target] for node in (match.conv, match.norm) if node is not None and node.op == "call_module"
    ]
    return (each for module in called for each in module.parameters())


def any_on_gpu(values: Iterable[Any]) -> bool:
    """Whether a tensor among them is on a GPU."""
    return any(isinstance(each, Tensor) and each.is_cuda for each in values)


def times_as_fast(plain: Callable, fused: Callable, on_gpu: bool, graphs_alone: bool = False) -> float:
    """How many times as fast `fused` is; on GPUs the lesser of eager calls, up to _NO_SLOWER, and of graphs."""
    plain()
    fused()
    eager = float("inf") if on_gpu and graphs_alone else _ratio(plain, fused, on_gpu)
    if not on_gpu or _counted(eager) < 1:
        return eager
    try:
        return min(_counted(eager), _ratio(_replay(plain), _replay(fused), True))
    except RuntimeError:  # what cannot be captured is called eagerly
        torch.cuda.synchronize()
        return _ratio(plain, fused, True) if graphs_alone else eager


def _counted(eager: float) -> float:
    """An eager ratio in which no more than _NO_SLOWER counts as equal."""
    return 1.0 if 1 - _NO_SLOWER <= eager < 1 else eager


def _ratio(plain: Callable, fused: Callable, on_gpu: bool) -> float:
    def seconds(call: Callable, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            call()
        if on_gpu:
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / times

    once = seconds(plain, 1) + seconds(fused, 1)
    times = max(1, min(50, int(2 * _SECONDS_OF_A_ROUND / max(once, 1e-9))))
    rounds = max(_FEWEST, min(_MOST, int(_SECONDS / max(once * times, 1e-9))))
    both = []
    for number in range(rounds):  # in turns and in either order, so that what slows the machine slows both
        if number % 2 == 0:
            both.append((seconds(plain, times), seconds(fused, times)))
        else:
            both.append((seconds(fused, times), seconds(plain, times))[::-1])
    return statistics.median(before / after for before, after in both)


def _replay(call: Callable) -> Callable:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_GRAPH_CALLS):
            call()
    return graph.replay
