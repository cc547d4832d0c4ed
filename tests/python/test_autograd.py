"""Gradients: against PyTorch's autograd on the composition in float64, by finite differences, and by known cases."""
import itertools

import pytest
import torch

from convnorm import _backward, functional, reference
from convnorm._attributes import parse
from convnorm.reference import Operands
from support import (S1_LINE, b_fill, beta_fill, call, expect_close, gamma_fill, identity, in_double, s1, w_fill,
                     x_fill)
from test_operator import LINES


def leaves(operands):
    return Operands(*(each if each is None or not each.is_floating_point() else each.detach().clone().requires_grad_()
                      for each in operands))


def gradients_of(y, operands, grad):
    wanted = [each for each in operands if each is not None and each.requires_grad]
    return torch.autograd.grad(y, wanted, grad)


@pytest.mark.parametrize("line, operands", LINES, ids=[line for line, _ in LINES])
def test_equals_autograd_of_the_composition(line, operands):
    ours, exact = leaves(operands), leaves(in_double(operands))
    y = call(line, ours)
    grad = torch.randn_like(y)
    wanted = gradients_of(reference.conv1d_group_norm(parse(line), exact), exact, grad.double())
    for actual, expected in zip(gradients_of(y, ours, grad), wanted):
        assert actual.dtype == torch.float32
        scale = expected.abs().max().clamp(min=1).item()
        expect_close(actual / scale, expected / scale, 2e-5)


class _Checked(torch.autograd.Function):
    """The composition with our gradients, for finite differences in float64."""

    @staticmethod
    def forward(ctx, line, *tensors):
        ctx.attributes = parse(line)
        ctx.save_for_backward(*tensors)
        return reference.conv1d_group_norm(ctx.attributes, Operands(*tensors))

    @staticmethod
    def backward(ctx, grad):
        wanted = Operands(*ctx.needs_input_grad[1:])
        return (None, *_backward.gradients(ctx.attributes, Operands(*ctx.saved_tensors), grad, wanted))


SMALL = [
    ("s=2,p=1,g=4", Operands(x_fill(2, 6, 9), w_fill(8, 6, 3), b_fill(8), gamma_fill(8), beta_fill(8))),
    ("p=1,g=2,pre=prelu,post=mish+film+add", Operands(
        x_fill(2, 2, 5), w_fill(4, 2, 3), b_fill(4), gamma_fill(4), beta_fill(4), pre_slope=torch.tensor([0.3]),
        film_scale=x_fill(2, 4), film_shift=w_fill(2, 4), residual=x_fill(2, 4, 5))),
    ("p=1:0,pad=reflect,g=1,post=glu+silu", Operands(x_fill(2, 2, 5), w_fill(4, 2, 2))),
    ("p=1,g=2,post=gelu", Operands(x_fill(2, 2, 5), w_fill(4, 2, 3), None, gamma_fill(4), beta_fill(4),
                                   lengths=torch.tensor([5, 3]))),
]


@pytest.mark.parametrize("line, operands", SMALL, ids=[line for line, _ in SMALL])
def test_finite_differences(line, operands):
    given = leaves(in_double(operands))
    given = given._replace(x=(given.x +
                              0.013 * torch.arange(given.x.numel()).view(given.x.shape)).detach().requires_grad_())
    assert torch.autograd.gradcheck(lambda *tensors: _Checked.apply(line, *tensors), tuple(given))


@pytest.mark.parametrize("post", ["silu", "mish", "gelu+film", "glu"])
def test_second_derivatives(post):
    film = {"film_scale": x_fill(1, 4), "film_shift": w_fill(1, 4)} if "film" in post else {}
    given = leaves(in_double(Operands(x_fill(1, 2, 4), w_fill(4, 2, 2), None, gamma_fill(4), beta_fill(4), **film)))
    assert torch.autograd.gradgradcheck(lambda *tensors: _Checked.apply(f"p=1:0,g=2,post={post}", *tensors),
                                        tuple(given),
                                        fast_mode=True)


def test_b075_stride_2():
    given = leaves(in_double(Operands(x_fill(2, 6, 21), w_fill(8, 6, 3), b_fill(8), gamma_fill(8), beta_fill(8))))
    assert torch.autograd.gradcheck(lambda *tensors: _Checked.apply("s=2,p=1,g=4", *tensors), tuple(given))


def test_b076_statistics_depend_on_the_input():
    x = x_fill(2, 4, 4).requires_grad_()
    y = call("cg=4,g=2", Operands(x, identity(4)))
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert dx.abs().max() < 1e-6
    gamma, beta = gamma_fill(4).requires_grad_(), beta_fill(4).requires_grad_()
    y = call("cg=4,g=2", Operands(x, identity(4), None, gamma, beta))
    dx, dgamma, dbeta = torch.autograd.grad(y, (x, gamma, beta), w_fill(2, 4, 4))
    expect_close(dx[0, 0], torch.tensor([-0.186535, 0.346480, 0.201762, 0.209459]))
    expect_close(dgamma, torch.tensor([-0.337033, 0.047206, 1.252527, -0.014154]))
    expect_close(dbeta, torch.tensor([0.96875, -1.125, 1.546875, -1.5]))
    assert dx.reshape(2, 2, -1).sum(-1).abs().max() < 1e-5


def test_b078_gradients_of_any_strides():
    given = leaves(s1())
    y = call(S1_LINE, given)
    wanted = gradients_of(call(S1_LINE, given), given, torch.ones(2, 8, 20))
    y.sum().backward()
    for leaf, expected in zip((each for each in given if each is not None), wanted):
        expect_close(leaf.grad, expected)
    for grad in (x_fill(2, 20, 8).transpose(1, 2), x_fill(2, 8, 40)[..., ::2]):
        strided = gradients_of(call(S1_LINE, given), given, grad)
        dense = gradients_of(call(S1_LINE, given), given, grad.contiguous())
        for actual, expected in zip(strided, dense):
            expect_close(actual, expected)


@pytest.mark.parametrize("affine, bias", [(True, True), (False, True), (True, False), (False, False)])
def test_b080_gradients_exactly_for_those_asked(affine, bias):
    base = s1()._replace(**({} if affine else {"gamma": None, "beta": None}), **({} if bias else {"bias": None}))
    names = [name for name, each in zip(Operands._fields, base) if each is not None]
    for wanted in itertools.product((False, True), repeat=len(names)):
        given = base._replace(**{
            name: getattr(base, name).clone().requires_grad_(need) for name, need in zip(names, wanted)
        })
        y = call(S1_LINE, given)
        assert y.requires_grad == any(wanted)
        if any(wanted):
            y.square().sum().backward()
        assert all((getattr(given, name).grad is not None) == need for name, need in zip(names, wanted))
    with torch.inference_mode():
        assert not call(S1_LINE, base).requires_grad


def test_b058_half_inputs_and_float32_parameters():
    for dtype in (torch.float16, torch.bfloat16):
        given = leaves(s1(dtype))
        y = call(S1_LINE, given)
        y.float().square().sum().backward()
        assert given.x.grad.dtype == given.weight.grad.dtype == y.dtype == dtype
        assert given.gamma.grad.dtype == given.beta.grad.dtype == torch.float32
        weight = w_fill(8, 6, 3).requires_grad_()
        with torch.autocast("cpu", dtype):
            functional.conv1d_group_norm(s1().x, weight, num_groups=4).sum().backward()
        assert weight.grad.dtype == torch.float32


@pytest.mark.parametrize("layout", ["ncl", "nlc"])
def test_b081_scale_gradient_in_bfloat16(layout):
    x = x_fill(16, 64, 1024, dtype=torch.bfloat16)
    grad = w_fill(16, 64, 1024, dtype=torch.bfloat16)
    gamma, beta = torch.ones(64).requires_grad_(), torch.zeros(64).requires_grad_()
    y = call("cg=64,g=16", Operands(x.double().float(), identity(64), None, gamma, beta))
    (wanted,) = torch.autograd.grad(
        reference.conv1d_group_norm(
            parse("cg=64,g=16"),
            Operands(x.double(),
                     identity(64).double(), None, (g := gamma.double().detach().requires_grad_()),
                     beta.double().detach())), g, grad.double())
    if layout == "nlc":
        x, grad = x.transpose(1, 2).contiguous(), grad.transpose(1, 2).contiguous()
    y = call(f"cg=64,g=16,layout={layout}" if layout == "nlc" else "cg=64,g=16",
             Operands(x, identity(64).bfloat16(), None, gamma, beta))
    (dgamma,) = torch.autograd.grad(y, gamma, grad)
    assert (dgamma - wanted).abs().max() <= 1e-3 * wanted.abs().max()


def test_b050_gradients_of_permuted_samples():
    x = x_fill(1, 64, 48).permute(1, 2, 0).requires_grad_()
    y = call("cg=48,g=3", Operands(x, identity(48)))
    grad = torch.randn(64, 48).as_strided((64, 48, 1), (48, 1, 48))
    (dx,) = torch.autograd.grad(y, x, grad)
    dense = x.detach().contiguous().requires_grad_()
    (wanted,) = torch.autograd.grad(call("cg=48,g=3", Operands(dense, identity(48))), dense, grad.contiguous())
    assert torch.equal(dx, wanted)


def test_only_inputs_are_kept():
    given = leaves(s1())
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, lambda each: each):
        call(S1_LINE + ",post=silu", given)
    pointers = {each.data_ptr() for each in given if each is not None}
    assert {each.data_ptr() for each in kept} <= pointers


def test_b083_backward_three_times_gives_the_same_bits():
    given = leaves(s1())
    y = call(S1_LINE, given)
    runs = [
        torch.autograd.grad(y.sum(), [each for each in given if each is not None], retain_graph=True) for _ in range(3)
    ]
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0]))
