"""Transposed convolutions that convnorm.fuse computes as convolutions."""
import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

import convnorm
from convnorm import _transposed
from convnorm.nn import keep_weight_of
from support import expect_close, x_fill
from test_fuse import calls, seed  # noqa: F401  (fixtures)
from test_timing import timed  # noqa: F401  (a fixture)

# With something left of nine inputs.
SHAPES = [(k, s, p, extra) for k, s, p, extra in itertools.product((1, 2, 3, 4, 7, 10), (2, 3, 5), (0, 1, 3), (0, 1))
          if extra < s and k + extra - 2 * p > -8 * s]
X = (x_fill(2, 6, 20),)


def network():
    return nn.Sequential(nn.Conv1d(6, 8, 3, padding=1), nn.SiLU(), nn.ConvTranspose1d(8, 5, 4, 2, 1)).eval()


@pytest.fixture
def phases(monkeypatch):
    """Calls of the operator for transposed convolutions."""
    counted = []
    operator = _transposed._dispatch
    monkeypatch.setattr(_transposed, "_dispatch", lambda *arguments: counted.append(arguments) or operator(*arguments))
    return counted


@pytest.fixture
def fused(timed, phases):  # noqa: F811
    timed([2.0])
    model = network()
    wanted = copy.deepcopy(model)
    report = convnorm.fuse(model, X)
    assert [entry.text for entry in report.fused] == ["conv -> silu", "transposed conv"]
    phases.clear()
    return model, wanted


def same(model, wanted, x=X[0]):
    with torch.no_grad():
        expect_close(model(x), wanted(x))


@pytest.mark.parametrize("bias", [True, False])
def test_is_the_transposed_convolution(bias, phases):
    taken = 0
    for k, s, p, extra in SHAPES:
        module = nn.ConvTranspose1d(3, 2, k, s, p, extra, bias=bias).eval()
        if not _transposed.is_taken(module):
            continue
        taken += 1
        keep_weight_of(module)
        with torch.no_grad():
            expect_close(_transposed.run(x_fill(2, 3, 9), module), module(x_fill(2, 3, 9)))
    assert taken > 20 and len(phases) == taken


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(dtype):
    module = nn.ConvTranspose1d(8, 5, 4, 2, 1).to(dtype).eval()
    keep_weight_of(module)
    with torch.no_grad():
        y = _transposed.run(x_fill(2, 8, 9).to(dtype), module)
    assert y.dtype == dtype and y.is_contiguous()
    expect_close(y.double(), module.double()(x_fill(2, 8, 9).to(dtype).double()), 4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("module", [nn.ConvTranspose1d(4, 4, 4, 2, 1, groups=2), nn.ConvTranspose1d(4, 4, 3, 2, 1),
                                    nn.ConvTranspose1d(4, 4, 3, 1, 1), nn.ConvTranspose1d(4, 4, 4, 2, 1, dilation=2),
                                    nn.ConvTranspose1d(4, 4, 1, 3, 2, 1), nn.Conv1d(4, 4, 4, 2, 1), None])
def test_others_stay(module):
    assert not _transposed.is_taken(module)


CHANGES = {
    "weight in place": lambda m: m[2].weight.add_(1),
    "bias in place": lambda m: m[2].bias.mul_(2),
    "to and back": lambda m: m.half().float(),
    "a state": lambda m: m.load_state_dict({name: 2 * each for name, each in m.state_dict().items()}),
    "another weight": lambda m: setattr(m[2], "weight", nn.Parameter(m[2].weight + 1)),
    "another bias": lambda m: setattr(m[2], "bias", nn.Parameter(m[2].bias + 1)),
    "other data": lambda m: setattr(m[2].weight, "data", m[2].weight.data * 3),
    "turned in place": lambda m: setattr(m[2].weight, "data", m[2].weight.data[:5, :, :].transpose(0, 1).contiguous()
                                         .repeat(2, 1, 1)[:8]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_weight_that_counts_is_the_module_s(change, fused, phases):
    model, wanted = fused
    same(model, wanted)
    with torch.no_grad():
        CHANGES[change](model), CHANGES[change](wanted)
    phases.clear()
    same(model, wanted)
    assert len(phases) == 1


def test_other_strides_and_sizes_of_the_same_memory(fused, phases):
    model, wanted = nn.ConvTranspose1d(4, 4, 4, 2, 1).eval(), nn.ConvTranspose1d(4, 4, 4, 2, 1).eval()
    wanted.load_state_dict(model.state_dict())
    keep_weight_of(model)
    x = x_fill(2, 4, 9)

    def both(change=lambda m: None):
        change(model), change(wanted)
        phases.clear()
        with torch.no_grad():
            expect_close(_transposed.run(x, model), wanted(x))

    both()
    for change in (lambda m: setattr(m.weight, "data", m.weight.data.transpose(0, 1)),
                   lambda m: setattr(m.weight, "data", m.weight.data[:, :, :2]),  # the same strides; two taps of pad
                   lambda m: setattr(m, "padding", (0,))):
        both(change)
        assert len(phases) == 1
    both(lambda m: setattr(m.weight, "data", m.weight.data[:, :, :1]))  # no convolution can stand in for it
    assert not phases


def test_what_is_not_counted_is_seen_after_repack_and_steps(fused):
    model, wanted = fused
    same(model, wanted)
    model[2].weight.data.mul_(3), wanted[2].weight.data.mul_(3)
    convnorm.repack(model)
    same(model, wanted)
    for each in (model, wanted):
        for parameter in each.parameters():
            parameter.grad = torch.ones_like(parameter)
        torch.optim.SGD(each.parameters(), lr=0.1, fused=True).step()
    same(model, wanted)
    model[2].weight.data.mul_(3), wanted[2].weight.data.mul_(3)
    model.train().eval()
    same(model, wanted)


@pytest.mark.parametrize("change", [
    lambda layer: parametrize.register_parametrization(layer, "weight", nn.Tanh()),
    lambda layer: nn.utils.parametrizations.weight_norm(layer),
    lambda layer: nn.utils.parametrizations.spectral_norm(layer),
    lambda layer: torch.nn.utils.weight_norm(layer),
    lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    lambda layer: prune.l1_unstructured(layer, "bias", 0.5),
    lambda layer: setattr(layer, "forward", lambda x: x + 1),
    lambda layer: layer.register_forward_hook(lambda *_: torch.zeros(1)),
    lambda layer: layer.register_forward_pre_hook(lambda _, x: (x[0] * 2,)),
    lambda layer: setattr(layer, "stride", (3,)),
    lambda layer: setattr(layer, "padding", (0,)),
    lambda layer: setattr(layer, "output_padding", (1,)),
    lambda layer: setattr(layer, "__class__", type("Doubled", (nn.ConvTranspose1d,), {
        "forward": lambda self, x: 2 * nn.ConvTranspose1d.forward(self, x)})),
])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_layer_that_became_another_is_called_as_it_is(change, fused, phases):
    model, wanted = fused
    same(model, wanted)
    for each in (model, wanted):
        torch.manual_seed(1)
        change(each[2])
    phases.clear()
    same(model, wanted)
    assert not phases


def test_another_layer_in_its_place(fused, phases):
    model, wanted = fused
    model[2] = nn.ConvTranspose1d(8, 5, 4, 2, 1).eval()
    wanted[2] = copy.deepcopy(model[2])
    same(model, wanted)
    with torch.no_grad():  # other parameters than the layer's, as in functional calls and replicas
        named = {name: 2 * each for name, each in model.named_parameters()}
        expect_close(torch.func.functional_call(model, named, X), torch.func.functional_call(wanted, named, X))


def test_gradients_training_and_transforms_are_the_module_s_own(fused, phases):
    model, wanted = fused
    for mode in (False, True):
        ours, theirs = (torch.autograd.grad(each.train(mode)(*X).square().sum(), list(each.parameters()))
                        for each in (model, wanted))
        for one, other in zip(ours, theirs):
            expect_close(one / other.abs().max(), other / other.abs().max(), 5e-5)
    with torch.no_grad():
        model.train()(*X)
        model.eval(), wanted.eval()
        expect_close(torch.vmap(model)(X[0][None]), wanted(*X)[None])
        expect_close(torch.func.jvp(model, X, X)[1], torch.func.jvp(wanted, X, X)[1])
        assert not phases
        expect_close(torch.jit.trace(model, X)(X[0] * 2), wanted(X[0] * 2))
        expect_close(torch.compile(model, backend="eager")(*X), wanted(*X))
    x = x_fill(2, 8, 9)
    with pytest.raises(NotImplementedError, match="has no gradients"):
        torch.ops.convnorm.phases(x, model[2].weight, "p=1:1,g=0", 2, 1, 3)


def test_copies_unfuse_and_parts(fused, phases):
    model, wanted = fused
    with torch.no_grad():
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            other[2].weight.add_(1)
            wanted_other = copy.deepcopy(wanted)
            wanted_other[2].weight.add_(1)
            same(other, wanted_other)
            same(model, wanted)
        convnorm.unfuse(model[2]), convnorm.unfuse(model[0])  # they keep nothing then, and are packed at each call
        phases.clear()
        same(model, wanted)
        assert [arguments[-1] for arguments in phases] == [0]
        convnorm.unfuse(model)
        phases.clear()
        same(model, wanted)
        assert not phases


def test_other_types_and_inputs(fused, phases):
    model, wanted = fused
    same(model, wanted, X[0][0])  # without a batch
    same(model, wanted, X[0].transpose(1, 2).contiguous().transpose(1, 2))
    same(copy.deepcopy(model).double(), copy.deepcopy(wanted).double(), X[0].double())
    same(copy.deepcopy(model).to(torch.complex64), copy.deepcopy(wanted).to(torch.complex64), X[0].to(torch.complex64))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expect_close(model(*X).float(), wanted(*X).float(), 2e-2)
    with torch.inference_mode():
        expect_close(model(*X), wanted(*X))
    layer = model[2]
    with torch.no_grad():
        assert _transposed.run(torch.empty(0, 8, 9), layer).shape == layer(torch.empty(0, 8, 9)).shape
        phases.clear()
        for x in (torch.empty(2, 7, 9), torch.empty(2, 8, 9, 1), torch.empty(2, 8, 9, dtype=torch.float64)):
            with pytest.raises(RuntimeError):
                _transposed.run(x, layer)
        assert _transposed.run(torch.empty(2, 8, 9, device="meta"), copy.deepcopy(layer).to("meta")).is_meta
        assert not phases


def test_inference_tensors():
    with torch.inference_mode():
        layer = nn.ConvTranspose1d(8, 5, 4, 2, 1).eval()
        keep_weight_of(layer)
        for _ in range(2):
            expect_close(_transposed.run(x_fill(2, 8, 9), layer), layer(x_fill(2, 8, 9)))
            layer.weight.mul_(2)


def test_a_network_of_nothing_else(timed, phases):  # noqa: F811
    timed([2.0])
    model = nn.Sequential(nn.ConvTranspose1d(6, 5, 4, 2, 1), nn.ConvTranspose1d(5, 4, 4, 2, 1)).eval()
    wanted = copy.deepcopy(model)
    assert len(convnorm.fuse(model, X).fused) == 2
    phases.clear()
    same(model, wanted)
    assert len(phases) == 2
