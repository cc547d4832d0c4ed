"""Whole networks, fused in place and by the compiler, forward and backward, against the same network unfused."""
import copy
import pathlib
import subprocess
import sys

import pytest
import torch

import convnorm
import convnorm.backend
import networks
from support import expect_close
from test_fuse import calls  # noqa: F401  (a fixture)

ROOT = pathlib.Path(__file__).parents[2]


def policy():
    torch.manual_seed(2)
    return networks.ConditionalUnet().eval(), (torch.randn(3, 16, 7), torch.tensor([1.0, 50, 99]), torch.randn(3, 10))


def value_function():
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(2)
    model = networks.value_function(diffusers.UNet1DModel, 6, (16, 32), 64).eval()
    return model, (torch.randn(2, 6, 16), 3, False)


NETWORKS = {"policy": policy, "UNet1DModel": value_function}


def results(model, inputs):
    x = inputs[0].clone().requires_grad_()
    y = model(x, *inputs[1:])
    y = y[0] if isinstance(y, tuple) else y
    used = [each for each in model.parameters() if each.requires_grad]
    return y, torch.autograd.grad(y.square().sum(), [x, *used], allow_unused=True)


def expect_equal(actual, wanted):
    expect_close(actual[0], wanted[0], 1e-4)
    for ours, theirs in zip(actual[1], wanted[1]):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            scale = theirs.abs().max().clamp(min=1e-3)
            expect_close(ours / scale, theirs / scale, 2e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_fused_in_place(name, calls):
    model, inputs = NETWORKS[name]()
    wanted = results(model, inputs)
    report = convnorm.fuse(model, inputs, timing=False)
    norms = sum(isinstance(each, torch.nn.GroupNorm) for each in model.modules())
    assert len(report.fused) == norms, str(report)
    calls.clear()
    expect_equal(results(model, inputs), wanted)
    assert len(calls) == norms
    expect_equal(results(copy.deepcopy(model), inputs), wanted)
    convnorm.unfuse(model)
    assert all(torch.equal(*pair) for pair in zip(results(model, inputs)[1][:1], wanted[1][:1]))


def test_the_policy_fuses_film_and_residual(calls):
    model, inputs = policy()
    convnorm.fuse(model)
    model(*inputs)
    stages = [line.split("post=")[1] for line in calls]
    blocks = sum(type(each).__name__ == "ConditionalResidualBlock" for each in model.modules())
    assert stages.count("mish+film") == stages.count("mish+add") == blocks


@pytest.mark.parametrize("name", NETWORKS)
def test_fused_by_the_compiler(name, calls):
    torch._dynamo.reset()
    model, inputs = NETWORKS[name]()
    wanted = results(model, inputs)
    compiled = torch.compile(model, backend=convnorm.backend.convnorm, options={"then": "aot_eager", "timing": False})
    expect_equal(results(compiled, inputs), wanted)
    assert calls


def test_the_pitch_of_a_recording(tmp_path):
    pytest.importorskip("torchfcpe")
    recording = pathlib.Path("/usr/share/sounds/alsa/Front_Center.wav")
    if not recording.exists():
        pytest.skip("there is no recording")
    done = subprocess.run([sys.executable, ROOT / "examples/pitch.py", recording, "--output", tmp_path / "pitch"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "network " in done.stdout and "times as fast" in done.stdout
    assert "largest difference" in done.stdout and (tmp_path / "pitch.csv").read_text().startswith("seconds,hertz")
    difference = float(done.stdout.split("largest difference")[1].split()[0])
    assert difference < 0.1  # Hz
