"""What a trace takes for constant: the modules of a network, their settings, and that calls leave them as they are."""
from __future__ import annotations

from typing import Any, Iterable

from torch import nn


#: Layers that fusing looks for.
LAYERS = (nn.Conv1d, nn.ConvTranspose1d, nn.GroupNorm)


def is_constant(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _is_setting(value: Any) -> bool:
    return is_constant(value) or isinstance(value, tuple) and all(is_constant(each) for each in value)


class Held:
    """The modules below `root` that a traced forward pass does not call as such, or whose numbers it has taken over."""

    def __init__(self, root: nn.Module, modules: Iterable[nn.Module]) -> None:
        paths = {module: path for path, module in root.named_modules()}
        self._settings = []
        self._kinds = []
        children = {}
        for module in {root: None, **dict.fromkeys(modules)}:
            names = [name for name, value in vars(module).items() if _is_setting(value)]
            self._settings.append((module, names, [vars(module)[name] for name in names]))
            if isinstance(module, LAYERS):  # others get classes by being fused
                self._kinds.append((module, type(module)))
            parent = root
            for name in filter(None, paths.get(module, "").split(".")):
                child = parent._modules[name]
                children[parent, name] = child
                parent = child
        self._children = [(*place, child) for place, child in children.items()]

    def still(self) -> bool:
        """Whether all is as it was: inner modes, settings, classes, and which module stands where."""
        try:
            for parent, name, child in self._children:
                if parent._modules[name] is not child:
                    return False
            for module, names, values in self._settings:
                state = module.__dict__
                if [state[name] for name in names] != values:
                    return False
            for module, kind in self._kinds:
                if type(module) is not kind:
                    return False
        except KeyError:  # one is gone
            return False
        return True


class Unchanged:
    """Restores what the code inside of `with` writes into the attributes of a network's modules, and refuses it.

    A traced forward pass is run once, and not at each call.
    """

    def __init__(self, root: nn.Module) -> None:
        self._before = [(module, dict(vars(module)), {
            name: value.copy() for name, value in vars(module).items()
            if not name.startswith("_") and isinstance(value, (list, dict, set))
        }) for module in root.modules()]

    def __enter__(self) -> "Unchanged":
        return self

    def __exit__(self, kind: Any, *_error: Any) -> None:
        changed = None
        for module, attributes, containers in self._before:
            state = vars(module)
            for name in [name for name in state if name not in attributes or state[name] is not attributes[name]]:
                changed = name
                del state[name]
            state.update((name, value) for name, value in attributes.items() if name not in state)
            for name, content in containers.items():
                now = state[name]
                if len(now) != len(content):
                    changed = name
                    now.clear()
                    (now.extend if isinstance(now, list) else now.update)(content)
        if changed is not None and kind is None:
            constant = changed.startswith("_tensor_constant")
            raise NotImplementedError("its forward pass makes a tensor out of nothing" if constant else
                                      f"its forward pass changes its attribute {changed!r}")
