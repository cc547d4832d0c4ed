"""How the package is found, loaded and refused, each in a process of its own."""
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

import convnorm

PACKAGE = pathlib.Path(convnorm.__file__).parent


def python(*arguments, path=()):
    prelude = "".join(f"import sys; sys.path.insert(0, {str(each)!r})\n" for each in path)
    *options, code = arguments
    return subprocess.run([sys.executable, *options, "-c", prelude + code],
                          capture_output=True,
                          text=True,
                          timeout=120,
                          cwd="/")


def copied(folder, without=()):
    shutil.copytree(PACKAGE, folder / "convnorm", ignore=shutil.ignore_patterns("__pycache__", *without))
    return folder


@pytest.mark.parametrize("order", ["import convnorm, torch", "import torch, convnorm"])
def test_b110_import_order(order):
    done = python(f"{order}\nprint(torch.ops.convnorm.conv1d_group_norm.default, convnorm.version)")
    assert done.returncode == 0 and convnorm.version in done.stdout, done.stderr


def test_b110_the_library_alone(tmp_path):
    done = python("-S", "import ctypes, convnorm\nlibrary = ctypes.CDLL(convnorm.library_path)\n"
                  "library.convnorm_status_string.restype = ctypes.c_char_p\nprint(library.convnorm_status_string(0))",
                  path=[copied(tmp_path)])
    assert "no error" in done.stdout, done.stderr


def test_without_pytorch(tmp_path):
    path = [copied(tmp_path)]
    done = python("-S", "import convnorm\nprint(convnorm.version, dir(convnorm))", path=path)
    assert done.returncode == 0 and done.stdout.startswith(convnorm.version), done.stderr
    done = python("-S", "import convnorm\nconvnorm.fuse", path=path)
    assert "pip install torch" in done.stderr.strip().splitlines()[-1]


def test_b106_pytorch_too_old(tmp_path):
    copied(tmp_path)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '2.9.1+cpu'\n")
    done = python("-S", "import convnorm", path=[tmp_path])
    last = done.stderr.strip().splitlines()[-1]
    assert "needs PyTorch 2.10 or newer" in last and "2.9.1" in last


def test_objects_that_are_missing(tmp_path):
    done = python("import convnorm", path=[copied(tmp_path, without=["libconvnorm_torch.so"])])
    assert "is missing" in done.stderr.strip().splitlines()[-1]


def test_b073_gpu_tensors_without_the_cuda_object(tmp_path):
    path = [copied(tmp_path, without=["libconvnorm_torch_cuda.so"])]
    done = python(
        "import torch, convnorm\nfrom convnorm import _library\nprint(_library.cuda_absence)\n_library._refuse()",
        path=path)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: convnorm: x is on a GPU, but") and (
        torch.version.cuda is None or "built without CUDA" in last)


def test_another_library_of_the_same_name_is_not_taken(tmp_path):
    (tmp_path / pathlib.Path(convnorm.library_path).name).write_bytes(b"not a library")
    done = subprocess.run([sys.executable, "-c", "import convnorm, torch; print(torch.ops.convnorm.info())"], cwd="/",
                          env={"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0 and convnorm.version in done.stdout, done.stderr


def test_info():
    done = subprocess.run([sys.executable, "-m", "convnorm", "info"],
                          capture_output=True,
                          text=True,
                          timeout=120,
                          cwd="/")
    assert done.returncode == 0 and torch.__version__ in done.stdout and "targets available" in done.stdout
    assert subprocess.run([sys.executable, "-m", "convnorm"], capture_output=True, timeout=120, cwd="/").returncode != 0
