"""Loads the objects of the package into PyTorch. Every module that needs the operators imports this one first."""
from __future__ import annotations

import ctypes
import os
import pathlib
import re

from . import _build, library_path

OLDEST_TORCH = (2, 10)

try:
    import torch
except ImportError as error:
    raise ImportError(
        "convnorm's operators need PyTorch, which this Python does not have; pip install torch") from error

_folder = pathlib.Path(__file__).parent

if tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2]) < OLDEST_TORCH:
    raise ImportError(f"convnorm needs PyTorch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer, and this is "
                      f"{torch.__version__}; pip install --upgrade torch")


def _load(name: str) -> None:
    path = _folder / name
    if not path.exists():
        raise ImportError(f"{path} is missing: this installation of convnorm is not whole; install it again")
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(f"{path} could not be loaded beside PyTorch {torch.__version__}: {error}") from error


def _other_major(built_with: str, torch_has: str) -> bool:
    """Whether CUDA's major versions differ, which promises nothing; CONVNORM_CUDA_MISMATCH=allow lets them."""
    return built_with.split(".")[0] != torch_has.split(".")[0] and os.environ.get("CONVNORM_CUDA_MISMATCH") != "allow"


#: Why GPU tensors cannot be computed; None where they can.
cuda_absence: str | None = None

# By its path, before the others ask for it by its name: another one may lie in LD_LIBRARY_PATH.
ctypes.CDLL(library_path)
_load("libconvnorm_torch.so")
if torch.version.cuda is None:
    cuda_absence = f"PyTorch {torch.__version__} has no CUDA"
elif not (_folder / "libconvnorm_torch_cuda.so").exists():
    cuda_absence = "convnorm was built without CUDA; install it where nvcc is found"
elif _other_major(_build.cuda_version, torch.version.cuda):
    cuda_absence = (
        f"convnorm was built with CUDA {_build.cuda_version} and this PyTorch with CUDA {torch.version.cuda}; "
        f"build it with nvcc {torch.version.cuda.split('.')[0]}, or set CONVNORM_CUDA_MISMATCH=allow")
else:
    try:
        _load("libconvnorm_torch_cuda.so")
    except ImportError as error:
        cuda_absence = str(error)


if cuda_absence is not None:
    def _refuse(*_args: object, **_kwargs: object) -> torch.Tensor:
        raise RuntimeError(f"convnorm: x is on a GPU, but {cuda_absence}")

    torch.library.impl("convnorm::conv1d_group_norm", "CUDA")(_refuse)
    torch.library.impl("convnorm::path", "CUDA")(_refuse)
