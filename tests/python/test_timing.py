"""convnorm.fuse with example inputs: chains that would be slower stay, convolutions that are faster fused go along."""
import copy
import pickle

import pytest
import torch
from torch import nn

import convnorm
from convnorm import _fuse, _timing
from support import expect_close, x_fill
from test_fuse import X, Film, block, calls, seed  # noqa: F401  (fixtures)


def network():
    return nn.Sequential(*block(), nn.Conv1d(8, 8, 5, padding=2, groups=8), nn.SiLU(), *block(8, 8),
                         nn.Conv1d(8, 6, 1)).eval()


@pytest.fixture
def timed(monkeypatch):
    """Says how fast chains are, in the place of a clock; holds what was asked."""
    asked = []

    def clock(answers):
        def answer(plain, fused, *_how):
            expect_close(fused(), plain())
            asked.append(plain)
            return answers[min(len(asked), len(answers)) - 1]
        monkeypatch.setattr(_timing, "times_as_fast", answer)
        return asked
    return clock


def test_what_would_be_slower_is_left_alone_and_said(timed, calls):
    model = network()
    wanted = model(*X)
    asked = timed([2.0, 1.5, 0.5, 0.9])
    report = convnorm.fuse(model, X)
    assert len(asked) == 4
    assert [(entry.name, entry.gain) for entry in report.fused] == [("1", 2.0), ("3", 1.5)]
    assert [(entry.name, entry.gain) for entry in report.left_alone] == [("6", 0.5), ("8", 0.9)]
    assert "6  left   fused it would be slower, 0.50 times as fast" in str(report)
    calls.clear()
    expect_close(model(*X), wanted)
    assert len(calls) == 2 and any("g=0,post=silu" in line for line in calls)


def test_the_choice_holds_in_other_modes_and_copies(timed, calls):
    model = network()
    timed([0.5, 1.5, 2.0, 1.5])
    convnorm.fuse(model, X)
    assert not model.training
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.train()):
        calls.clear()
        other(*X)
        assert len(calls) == 3
    convnorm.unfuse(model)
    calls.clear()
    model(*X)
    assert not calls


def test_gradients_through_a_convolution_alone(timed):
    model = network()
    x = x_fill(2, 6, 20).requires_grad_()
    wanted = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    timed([1.5])
    convnorm.fuse(model, X)
    for actual, expected in zip(torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()]), wanted):
        scale = expected.abs().max().clamp(min=1)
        expect_close(actual / scale, expected / scale, 5e-5)


def test_equal_chains_are_timed_once(timed):
    model = nn.Sequential(*block(6, 6, 2), *block(6, 6, 2)).eval()
    asked = timed([1.5])
    assert len(convnorm.fuse(model, X).fused) == 2 and len(asked) == 1


def test_film_and_residual_are_timed_as_they_are_called(timed):
    model = Film().eval()
    asked = timed([1.5])
    report = convnorm.fuse(model, (*X, torch.randn(2, 5)))
    assert [entry.text for entry in report.fused] == ["conv -> norm -> mish -> film", "conv -> norm -> mish -> add",
                                                      "conv"]
    assert len(asked) == 3


def test_without_examples_nothing_is_timed(timed):
    asked = timed([0.5])
    assert len(convnorm.fuse(network()).fused) == 2 and not asked
    assert len(convnorm.fuse(network(), X, timing=False).fused) == 2 and not asked
    for timing in (True, "graph"):
        with pytest.raises(ValueError, match="needs example_inputs"):
            convnorm.fuse(network(), timing=timing)
    with pytest.raises(ValueError, match="timing='graphs' must be"):
        convnorm.fuse(network(), X, timing="graphs")


@pytest.mark.parametrize("gain, slower", [(0.9, True), (1.0, False)])
def test_eager_calls_of_the_model_are_compared_with_those_before(gain, slower, calls, monkeypatch):
    model = network()
    assert not _fuse._is_slower_in_eager_calls(model, X, _timing.Pairs())  # nothing is fused
    convnorm.fuse(model, X, timing=False)
    kind = type(model)

    def gain_of_calls(_, key, plain, fused):
        for call, count in ((plain, 0), (fused, 2), (plain, 0)):
            calls.clear()
            call()
            assert len(calls) == count
        return gain

    monkeypatch.setattr(_timing.Pairs, "gain_of_calls", gain_of_calls)
    assert _fuse._is_slower_in_eager_calls(model, X, _timing.Pairs()) == slower and type(model) is kind


def test_what_two_measurements_differ_by_counts_as_none():
    assert [_timing._counted(each) for each in (0.5, 0.96, 0.98, 1.0, 1.5)] == [0.5, 0.96, 1.0, 1.0, 1.5]


def test_the_clock_tells_slow_from_fast():
    x = torch.randn(64, 64)
    assert _timing.times_as_fast(lambda: torch.linalg.matrix_power(x, 40), lambda: x + x, False) > 1
    assert _timing.times_as_fast(lambda: x + x, lambda: torch.linalg.matrix_power(x, 40), False) < 1


class ByType(nn.Module):
    """A forward pass that torch.fx cannot trace."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = block()
        self.register_buffer("offset", torch.ones(8, 1))
        self.plain = torch.full((8, 1), 2.0)  # neither parameter nor buffer

    def forward(self, *inputs, scale=1.0):
        (x,) = inputs
        if not isinstance(x, torch.Tensor):
            raise TypeError(type(x))
        y = self.act(self.norm(self.conv(x)))
        return {"y": y * scale + self.offset * self.plain, "z": (y,)}


def test_exported_where_tracing_fails(calls):
    model = ByType().eval()
    plain = copy.deepcopy(model)
    names = list(model.state_dict())
    report = convnorm.fuse(model, X, timing=False)
    assert report.model is model and [entry.name for entry in report.fused] == ["norm"], str(report)
    for shape in ((2, 6, 20), (3, 6, 31), (4, 6, 7)):
        calls.clear()
        x = x_fill(*shape)
        actual, wanted = model(x), plain(x)
        assert len(calls) == 1
        expect_close(actual["y"], wanted["y"])
        expect_close(actual["z"][0], wanted["z"][0])
    # What it was not exported for runs as it always did.
    calls.clear()
    for arguments, named in (((x_fill(2, 6, 20),), {"scale": 2.0}), ((x_fill(1, 6, 20),), {})):
        expect_close(model(*arguments, **named)["y"], plain(*arguments, **named)["y"])
    expect_close(model.double()(x_fill(2, 6, 20).double())["y"], plain.double()(x_fill(2, 6, 20).double())["y"])
    model.float().train()(*X)
    assert not calls
    model.eval()
    with torch.no_grad():
        model.conv.weight.mul_(-1)
        changed = model(*X)["y"]
    assert len(calls) == 1
    assert list(model.state_dict()) == names
    # A copy is the original again.
    expect_close(copy.deepcopy(model)(*X)["y"], changed)
    expect_close(convnorm.unfuse(model)(*X)["y"], changed)


def test_what_can_be_exported_neither(calls):
    class Branches(ByType):
        def forward(self, x, *others):
            return self.norm(self.conv(x)) if x.sum() > 0 else x

    model = Branches().eval()
    report = convnorm.fuse(model, X, timing=False)
    assert not report.fused and "nor exported" in report.left_alone[0].text
    assert type(model) is Branches


def test_what_an_export_would_put_back_is_left(calls):
    class Counts(ByType):
        calls = 0

        def forward(self, *inputs):
            self.calls += 1
            return super().forward(*inputs)

    model = Counts().eval()
    report = convnorm.fuse(model, X, timing=False)
    assert not report.fused and "nor exported: its forward pass changes its attribute 'calls'" in str(report)
    before = model.calls
    model(*X)
    assert model.calls == before + 1


def test_convolutions_without_a_batch_run_as_they_always_did(timed, calls):
    model = nn.Sequential(nn.Conv1d(8, 8, 3, groups=8), nn.SiLU()).eval()
    x = x_fill(2, 8, 20)
    wanted = model(x[0])
    timed([2.0])
    assert convnorm.fuse(model, x).fused
    expect_close(model(x)[0], wanted)
    assert torch.equal(model(x[0]), wanted)


def test_complex_numbers_take_the_own_forward_pass(timed, calls):
    model = nn.Sequential(nn.Conv1d(6, 8, 3), nn.Conv1d(8, 8, 1)).eval()
    timed([2.0])
    assert len(convnorm.fuse(model, X).fused) == 2
    calls.clear()
    x = X[0].to(torch.complex64)
    with torch.no_grad():
        model.to(torch.complex64)
        assert torch.equal(model(x), model[1](model[0](x))) and not calls


def test_a_lone_layer_without_a_batch_does_not_run_twice_what_is_before_it(timed):
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Conv1d(6, 8, 3)).eval()
    timed([2.0])
    convnorm.fuse(model, X)
    model.train()
    model(torch.randn(6, 6))
    assert model[0].num_batches_tracked == 1


def test_what_is_left_alone_keeps_no_packed_weight(timed):
    model = network()
    timed([0.5])
    convnorm.fuse(model, X)
    assert not any("_convnorm_kept" in vars(module) for module in model.modules())
