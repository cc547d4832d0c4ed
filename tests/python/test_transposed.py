"""Transposed convolutions that convnorm.fuse computes as convolutions."""
import copy
import itertools
import pickle

import pytest
import torch
from torch import nn

import convnorm
from convnorm import _transposed
from support import expect_close, x_fill
from test_fuse import calls, seed  # noqa: F401  (fixtures)
from test_timing import timed  # noqa: F401  (a fixture)

# With something left of nine inputs.
SHAPES = [(k, s, p, extra) for k, s, p, extra in itertools.product((1, 2, 3, 4, 7, 10), (2, 3, 5), (0, 1, 3), (0, 1))
          if k + extra - 2 * p > -8 * s]


def network():
    return nn.Sequential(nn.Conv1d(6, 8, 3, padding=1), nn.SiLU(), nn.ConvTranspose1d(8, 5, 4, 2, 1)).eval()


@pytest.fixture
def fused(timed):  # noqa: F811
    timed([2.0])
    model = network()
    wanted = copy.deepcopy(model)
    report = convnorm.fuse(model, X)
    assert [entry.text for entry in report.fused] == ["conv -> silu", "transposed conv"]
    return model, wanted


X = (x_fill(2, 6, 20),)


@pytest.mark.parametrize("bias", [True, False])
def test_is_the_transposed_convolution(bias):
    taken = 0
    for k, s, p, extra in SHAPES:
        module = nn.ConvTranspose1d(3, 2, k, s, p, extra, bias=bias).eval()
        shape = _transposed.shape_of(module)
        wanted = module(x_fill(2, 3, 9))
        if shape is None:
            continue
        taken += 1
        module._convnorm_arranged = _transposed.Arranged(shape)
        with torch.no_grad():
            expect_close(_transposed.run(x_fill(2, 3, 9), module), wanted)
        assert module._convnorm_arranged.weight is not None
    assert taken > 20


@pytest.mark.parametrize("module", [nn.ConvTranspose1d(4, 4, 4, 2, 1, groups=2), nn.ConvTranspose1d(4, 4, 3, 2, 1),
                                    nn.ConvTranspose1d(4, 4, 3, 1, 1), nn.ConvTranspose1d(4, 4, 4, 2, 1, dilation=2),
                                    nn.ConvTranspose1d(4, 4, 1, 3, 2, 1), nn.Conv1d(4, 4, 4, 2, 1)])
def test_others_stay(module):
    assert _transposed.shape_of(module) is None


def test_the_weight_that_counts_is_the_module_s(fused, calls):  # noqa: F811
    model, wanted = fused
    with torch.no_grad():
        for change in (lambda m: m[2].weight.add_(1), lambda m: m[2].bias.mul_(2), lambda m: m.half().float(),
                       lambda m: m.load_state_dict({name: 2 * each for name, each in m.state_dict().items()}),
                       lambda m: setattr(m[2], "weight", nn.Parameter(m[2].weight + 1))):
            change(model), change(wanted)
            calls.clear()
            expect_close(model(*X), wanted(*X))
            assert len(calls) == 2
        # What is written without being counted is seen after repack(), and after an optimizer's step.
        model[2].weight.data.mul_(3), wanted[2].weight.data.mul_(3)
        convnorm.repack(model)
        expect_close(model(*X), wanted(*X))
    for each in (model, wanted):
        for parameter in each.parameters():
            parameter.grad = torch.ones_like(parameter)
        torch.optim.SGD(each.parameters(), lr=0.1, fused=True).step()
    with torch.no_grad():
        expect_close(model(*X), wanted(*X))


def test_gradients_and_training_are_the_module_s_own(fused, calls):  # noqa: F811
    model, wanted = fused
    calls.clear()
    for mode in (False, True):
        ours, theirs = (torch.autograd.grad(each.train(mode)(*X).square().sum(), list(each.parameters()))
                        for each in (model, wanted))
        for one, other in zip(ours, theirs):
            expect_close(one / other.abs().max(), other / other.abs().max(), 5e-5)
    assert all("g=0,post=silu" in line for line in calls)


def test_copies_and_unfuse(fused, calls):  # noqa: F811
    model, wanted = fused
    with torch.no_grad():
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            other[2].weight.add_(1)
            wanted_other = copy.deepcopy(wanted)
            wanted_other[2].weight.add_(1)
            expect_close(other(*X), wanted_other(*X))
            expect_close(model(*X), wanted(*X))
        convnorm.unfuse(model)
        calls.clear()
        expect_close(model(*X), wanted(*X))
        assert not calls


def test_other_types_and_inputs_without_a_batch(fused):
    model, wanted = fused
    with torch.no_grad():
        expect_close(model(X[0][0]), wanted(X[0][0]))
        expect_close(copy.deepcopy(model).double()(X[0].double()), copy.deepcopy(wanted).double()(X[0].double()))
        with torch.autocast("cpu", torch.bfloat16):
            expect_close(model(*X).float(), wanted(*X).float(), 2e-2)
    with torch.inference_mode():
        expect_close(model(*X), wanted(*X))
