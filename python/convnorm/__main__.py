"""python -m convnorm info: versions, instruction sets, and whether GPUs can be used."""
from __future__ import annotations

import sys

import convnorm


def info() -> str:
    lines = [f"convnorm {convnorm.version} for Python {sys.version.split()[0]}"]
    try:
        from . import _library
    except ImportError as error:
        return "\n".join([*lines, f"PyTorch operators: none, {error}"])
    import torch

    cuda = f"none, {_library.cuda_absence}" if _library.cuda_absence else "loaded"
    return "\n".join([*lines, f"PyTorch operators: loaded into PyTorch {torch.__version__}", f"CUDA operators: {cuda}",
                      torch.ops.convnorm.info()])


if __name__ == "__main__":
    if sys.argv[1:] != ["info"]:
        sys.exit("usage: python -m convnorm info")
    print(info())
