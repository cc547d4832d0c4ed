"""torch.compile(..., backend="convnorm")."""
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from convnorm import _timing, repack
from convnorm.backend import convnorm
from support import expect_close, w_fill, x_fill
from test_fuse import NETWORKS, X, Film, block, calls  # noqa: F401  (a fixture)
from test_timing import network, timed  # noqa: F401  (a fixture)

EAGER = {"then": "aot_eager", "timing": False}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(5)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", NETWORKS)
def test_same_results_and_gradients(name, calls):
    build, inputs, count = NETWORKS[name]
    model = build().eval()
    x = inputs[0].clone().requires_grad_()
    wanted = model(x, *inputs[1:])
    gradients = torch.autograd.grad(wanted.square().sum(), [x, *model.parameters()])
    compiled = torch.compile(model, backend=convnorm, options=EAGER, fullgraph=True)
    y = compiled(x, *inputs[1:])
    assert len(calls) >= count  # while it was compiled
    expect_close(y, wanted)
    for actual, expected in zip(torch.autograd.grad(y.square().sum(), [x, *model.parameters()]), gradients):
        expect_close(actual / expected.abs().max().clamp(min=1), expected / expected.abs().max().clamp(min=1), 5e-5)


def test_functional_calls_and_dynamic_shapes(calls):
    weight = w_fill(8, 6, 3)

    def run(x, s):
        y = F.leaky_relu(F.group_norm(F.conv1d(F.pad(x, (2, 0)), weight), 2), 0.2)
        return (y * s + s).tanh()

    compiled = torch.compile(run, backend=convnorm, options=EAGER, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for n, length in ((2, 20), (3, 31), (5, 6)):
            x, s = x_fill(n, 6, length), torch.randn(n, 8, 1)
            expect_close(compiled(x, s), run(x, s))
    assert "p=2:0" in calls[0] and "leaky_relu(0.2)+film+tanh" in calls[0]


def test_weights_that_change_and_other_models():
    models = [nn.Sequential(*block()).eval() for _ in range(2)]
    with torch.no_grad():
        for _ in range(2):
            for model in models:
                compiled = torch.compile(model, backend=convnorm, options=EAGER)
                expect_close(compiled(x_fill(2, 6, 20)), model(x_fill(2, 6, 20)))
                model[0].weight.mul_(-1)
                expect_close(compiled(x_fill(2, 6, 20)), model(x_fill(2, 6, 20)))


def test_data_that_changes_uncounted_is_seen_after_repack():
    model = nn.Sequential(nn.Conv1d(6, 8, 3, padding=1), nn.GroupNorm(4, 8)).eval()
    compiled = torch.compile(model, backend="convnorm", options=EAGER)
    x = x_fill(2, 6, 20)
    with torch.no_grad():
        compiled(x)
        model[0].weight.data.mul_(-1)
        repack(model)
        expect_close(compiled(x), model(x))


def test_by_name_with_inductor():
    model = Film().eval()
    inputs = (x_fill(2, 6, 20), torch.randn(2, 5))
    with torch.no_grad():
        expect_close(torch.compile(model, backend="convnorm")(*inputs), model(*inputs))


def test_what_would_be_slower_is_left_alone_and_logged(timed, calls, caplog):
    model = network()
    asked = timed([2.0, 1.5, 0.5, 0.9])
    compiled = torch.compile(model, backend=convnorm, options={"then": "aot_eager"})
    x = x_fill(2, 6, 20)
    torch._dynamo.mark_dynamic(x, 2)
    with caplog.at_level(logging.INFO, "convnorm"), torch.no_grad():
        expect_close(compiled(x), model(x))
        assert len(asked) == 4
        assert caplog.messages == ["1  fused  conv -> norm -> mish, 2.00 times as fast\n"
                                   "3  fused  conv -> silu, 1.50 times as fast\n"
                                   "6  left   fused it would be slower, 0.50 times as fast\n"
                                   "8  left   fused it would be slower, 0.90 times as fast"]
        # One graph serves all lengths; it was timed at those that it was captured with.
        expect_close(compiled(x_fill(2, 6, 31)), model(x_fill(2, 6, 31)))
        assert len(asked) == 4 and asked[-2]().shape == (2, 8, 20)


def test_where_gradients_are_recorded_nothing_is_timed(timed, caplog):
    asked = timed([0.5])
    with caplog.at_level(logging.INFO, "convnorm"):
        torch.compile(network(), backend=convnorm, options={"then": "aot_eager"})(*X).sum().backward()
    assert not asked and caplog.messages[0].count("fused") == 2


def test_timing_leaves_the_random_state_and_other_compilers_alone():
    model = network()
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    with torch.no_grad():
        y = torch.compile(model, backend="convnorm")(*X)
    assert torch.equal(torch.rand(3), wanted)
    expect_close(y, model(*X))


def test_calls_without_a_batch_are_left_alone(timed, calls):
    model = nn.Sequential(nn.Conv1d(8, 8, 3, groups=8), nn.SiLU()).eval()
    asked = timed([2.0])
    with torch.no_grad():
        expect_close(torch.compile(model, backend=convnorm, options={"then": "aot_eager"})(x_fill(8, 20)),
                     model(x_fill(8, 20)))
    assert not asked and not calls


class WithNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = block()

    def forward(self, x, scale, shift):
        return self.act(self.norm(self.conv(x))) * scale + shift


def test_numbers_in_the_place_of_tensors(timed):
    model = WithNumbers().eval()
    timed([2.0])
    compiled = torch.compile(model, backend=convnorm, options={"then": "aot_eager"})
    with torch.no_grad():
        for scale, shift in ((2, 3), (4, 5.5), (torch.randn(2, 8, 1), 6.5), (0.5, torch.randn(2, 8, 20))):
            expect_close(compiled(*X, scale, shift), model(*X, scale, shift))


def test_inputs_of_any_strides_are_drawn(timed):
    model = nn.Sequential(*block()).eval()
    asked = timed([2.0])
    for x in (x_fill(1, 6, 20).expand(2, 6, 20), x_fill(2, 20, 6).transpose(1, 2), x_fill(2, 6, 40)[:, :, ::2]):
        torch._dynamo.reset()
        asked.clear()
        with torch.no_grad():
            expect_close(torch.compile(model, backend=convnorm, options={"then": "aot_eager"})(x), model(x))
        assert len(asked) == 1


def test_what_fails_while_it_is_timed_is_said(monkeypatch, caplog, calls):
    def fails(*_arguments):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(_timing, "times_as_fast", fails)
    model = nn.Sequential(*block()).eval()
    with torch.no_grad(), caplog.at_level(logging.WARNING, "convnorm"):
        expect_close(torch.compile(model, backend=convnorm, options={"then": "aot_eager"})(*X), model(*X))
    assert caplog.messages == ["chains are fused untimed: out of memory"] and calls
