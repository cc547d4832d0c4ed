"""Conv1d -> GroupNorm -> activation as one operator, for PyTorch.

    import convnorm
    report = convnorm.fuse(model)                       # find the pattern in a network and fuse it
    torch.compile(model, backend="convnorm")            # or in the graph that the compiler sees
    convnorm.nn.Conv1dGroupNorm(64, 128, num_groups=8, activation="mish")
    convnorm.functional.conv1d_group_norm(x, weight, num_groups=8, gamma=gamma, beta=beta)

Without PyTorch only `convnorm.version` and `convnorm.library_path` are to be had.
"""
from __future__ import annotations

import ctypes
import importlib.util
import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import backend, functional, nn
    from ._fuse import FusionReport, fuse, repack, unfuse

__all__ = ["FusionReport", "functional", "fuse", "library_path", "nn", "repack", "unfuse", "version"]

#: The C library, for ctypes and for other languages.
library_path: str = str(next(iter(pathlib.Path(__file__).parent.glob("libconvnorm.so*")), ""))

_WITH_TORCH = {
    "functional": ("functional", None),
    "nn": ("nn", None),
    "backend": ("backend", None),
    "fuse": ("_fuse", "fuse"),
    "unfuse": ("_fuse", "unfuse"),
    "repack": ("_fuse", "repack"),
    "FusionReport": ("_fuse", "FusionReport"),
}


def _version() -> str:
    library = ctypes.CDLL(library_path)
    library.convnorm_version.restype = ctypes.c_char_p
    return library.convnorm_version().decode()


def __getattr__(name: str) -> object:
    if name in ("version", "__version__"):
        return _version()
    if name in _WITH_TORCH:
        importlib.import_module("._library", __name__)  # says what is missing
        module, attribute = _WITH_TORCH[name]
        found = importlib.import_module(f".{module}", __name__)
        return found if attribute is None else getattr(found, attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


if importlib.util.find_spec("torch") is not None:
    importlib.import_module("._library", __name__)  # first, because it says what is wrong with what
    importlib.import_module("._operator", __name__)  # torch.ops.convnorm
