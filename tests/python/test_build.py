"""How the package is built where something is missing or differs. Configures, and compiles nothing."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest
import torch

from convnorm import _library
from test_packaging import copied, python

ROOT = pathlib.Path(__file__).parents[2]
# As a Debian without CUDA has it: `nvcc` lies in none of these.
WITHOUT = "/usr/bin:/bin"

pytestmark = pytest.mark.skipif(shutil.which("cmake", path=WITHOUT) is None, reason="there is no cmake")


def configure(folder, *options, source=ROOT, path=WITHOUT):
    generator = "Ninja" if shutil.which("ninja", path=path) else "Unix Makefiles"
    return subprocess.run(
        ["cmake", "-S", source, "-B", folder, "-G", generator, "-DCONVNORM_TORCH=ON", "-DCONVNORM_BUILD_TESTS=OFF",
         "-DCONVNORM_BUILD_CLI=OFF", "-DCONVNORM_BUILD_EXAMPLES=OFF", f"-DCONVNORM_PYTHON_EXECUTABLE={sys.executable}",
         *options],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": path})


def test_b105_without_nvcc(tmp_path):
    done = configure(tmp_path, "-DCONVNORM_NVCC=OFF")  # what the search leaves
    assert done.returncode == 0, done.stderr
    assert "building for CPUs only, nvcc was not found" in done.stdout
    asked = configure(tmp_path / "on", "-DCONVNORM_NVCC=OFF", "-DCONVNORM_CUDA=ON")
    assert asked.returncode != 0 and "CONVNORM_CUDA=ON, but nvcc was not found" in " ".join(asked.stderr.split())


def test_b114_without_ninja(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in WITHOUT.split(":"):
        for each in pathlib.Path(folder).iterdir():
            if "ninja" not in each.name and not (tools / each.name).exists():
                (tools / each.name).symlink_to(each)
    assert shutil.which("ninja", path=str(tools)) is None
    done = configure(tmp_path / "build", "-DCONVNORM_CUDA=OFF", path=str(tools))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "build" / "Makefile").exists()


@pytest.mark.parametrize("system", ["Windows", "Darwin"])
def test_b114_other_systems_in_the_first_line(tmp_path, system):
    done = configure(tmp_path, f"-DCMAKE_SYSTEM_NAME={system}")
    assert done.returncode != 0 and not done.stdout.startswith("-- The")
    assert "convnorm builds on Linux alone" in done.stderr


def test_b113_the_source_archive_is_whole(tmp_path):
    pytest.importorskip("build")
    pytest.importorskip("scikit_build_core")
    subprocess.run([sys.executable, "-m", "build", "--quiet", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT],
                   check=True, capture_output=True, timeout=300)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(tmp_path)
    (unpacked,) = (each for each in tmp_path.iterdir() if each.is_dir())
    for folder in ("src", "include", "cmake", "python", "tests", "examples"):
        for each in (ROOT / folder).rglob("*"):
            if each.suffix in (".cpp", ".cu", ".cuh", ".hpp", ".h", ".def", ".py", ".cmake", ".map", ".in",
                               ".txt") and ("__pycache__" not in each.parts):
                assert (unpacked / each.relative_to(ROOT)).exists(), each
    done = configure(tmp_path / "build", "-DCONVNORM_CUDA=OFF", source=unpacked)
    assert done.returncode == 0, done.stderr


def test_b111_another_major_version_of_cuda(tmp_path, monkeypatch):
    (copied(tmp_path) / "convnorm" / "_build.py").write_text("cuda_version = '13.0'\n")
    (tmp_path / "convnorm" / "libconvnorm_torch_cuda.so").write_bytes(b"not loaded")
    done = python("import torch\ntorch.version.cuda = '12.8'\nimport convnorm\nfrom convnorm import _library\n"
                  "print(_library.cuda_absence)", path=[tmp_path])
    assert done.stdout.startswith(
        "convnorm was built with CUDA 13.0 and this PyTorch with CUDA 12.8; build it with nvcc 12, "
        "or set CONVNORM_CUDA_MISMATCH=allow"), done.stderr
    assert not _library._other_major("13.0", "13.2")
    monkeypatch.setenv("CONVNORM_CUDA_MISMATCH", "allow")
    assert not _library._other_major("13.0", "12.8")


@pytest.mark.skipif(shutil.which("nvcc", path="/usr/local/cuda/bin") is None or torch.version.cuda is None,
                    reason="there is no nvcc, or PyTorch has no CUDA")
def test_b111_another_minor_version_builds_with_a_warning(tmp_path):
    done = configure(tmp_path, path=f"{WITHOUT}:/usr/local/cuda/bin")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    built = (tmp_path / "src/bindings/torch/_build.py").read_text()
    differs = torch.version.cuda not in built
    assert ("another minor version is no fault" in said) == differs
