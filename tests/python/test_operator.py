"""torch.ops.convnorm.conv1d_group_norm against the composition of PyTorch's operators in float64."""
import pytest
import torch

import convnorm
from convnorm.functional import conv1d_group_norm
from convnorm.reference import Operands
from support import (S1_LINE, b_fill, beta_fill, call, expect_close, expected, gamma_fill, identity, in_double, s1,
                     w_fill, x_fill)

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def problem(n=2, c=6, l=21, o=12, k=3, conv_groups=1, **others):
    torch.manual_seed(7)
    return Operands(torch.randn(n, c, l), torch.randn(o, c // conv_groups, k), b_fill(o), gamma_fill(o), beta_fill(o),
                    **others)


LINES = [
    ("p=1,g=4", problem()),
    ("s=2,d=2,p=3:1,g=6,post=silu", problem()),
    ("p=same,d=3,g=1,post=mish", problem(k=4)),
    ("p=causal,g=12,eps=0.001,post=gelu", problem()),
    ("p=2,pad=reflect,g=3,post=gelu_tanh", problem()),
    ("p=2:1,pad=replicate,g=2,post=elu(0.5)", problem()),
    ("cg=6,p=1,g=4,post=leaky_relu(0.2)", problem(conv_groups=6)),
    ("cg=2,g=0,post=tanh", problem(conv_groups=2)._replace(gamma=None, beta=None)),
    ("p=1,g=4,pre=relu,post=sigmoid", problem()),
    ("p=1,g=1,pre=prelu", problem(pre_slope=torch.tensor([0.25]))),
    ("p=1,g=1,pre=prelu,post=prelu", problem(pre_slope=torch.linspace(-0.5, 0.5, 12), post_slope=torch.tensor([0.1]))),
    ("p=1,g=4,post=mish+film", problem(film_scale=torch.randn(2, 12), film_shift=torch.randn(2, 12))),
    ("p=1,g=4,post=add+relu", problem(residual=torch.randn(2, 12, 21))),
    ("p=1,g=4,post=silu+add", problem(residual=torch.randn(2, 12, 21))),
    ("p=1,g=4,post=glu+film+add", problem(film_scale=torch.randn(2, 6), film_shift=torch.randn(2, 6),
                                          residual=torch.randn(2, 6, 21))),
    ("p=1,g=4,post=silu", problem(lengths=torch.tensor([21, 13]))),
    ("s=2,p=2,pad=reflect,g=4", problem(lengths=torch.tensor([5, 20]))),
    ("p=2,pad=replicate,g=4", problem(lengths=torch.tensor([21, 8]))),
]


@pytest.mark.parametrize("line, operands", LINES, ids=[line for line, _ in LINES])
def test_equals_the_composition(line, operands):
    expect_close(call(line, operands), expected(line, operands), 5e-5)


def test_channels_last_layout():
    given = problem(residual=torch.randn(2, 12, 21))
    wanted = call("p=1,g=4,post=silu+add", given)
    last = given._replace(x=given.x.transpose(1, 2), residual=given.residual.transpose(1, 2))
    y = call("p=1,g=4,post=silu+add,layout=nlc", last)
    assert y.shape == (2, 21, 12) and y.is_contiguous()
    expect_close(y.transpose(1, 2), wanted)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("parameters", [torch.float32, None])
def test_dtypes(dtype, parameters):
    given = s1(dtype)
    if parameters is None:
        given = Operands(*(each if each is None else each.to(dtype) for each in given))
    y = call(S1_LINE + ",post=silu", given)
    assert y.dtype == dtype
    expect_close(y, expected(S1_LINE + ",post=silu", given), TOLERANCE[dtype])


def test_s1_numbers():
    y = call(S1_LINE, s1()).double()
    for actual, wanted in ((y[0, 0, 0], -1.535587), (y[-1, -1, -1], 0.255947), (y.sum(), 67.68076),
                           (y.square().sum(), 469.16781)):
        assert abs(actual.item() - wanted) < 2e-4 * max(1, abs(wanted)) / 10


def test_functional_fills_in_what_is_not_named():
    given = problem(film_scale=torch.randn(2, 12), film_shift=torch.randn(2, 12), residual=torch.randn(2, 12, 21))
    y = convnorm.functional.conv1d_group_norm(given.x,
                                              given.weight,
                                              given.bias,
                                              num_groups=4,
                                              gamma=given.gamma,
                                              beta=given.beta,
                                              padding=1,
                                              activation="mish",
                                              film=(given.film_scale, given.film_shift),
                                              residual=given.residual)
    assert torch.equal(y, call("p=1,g=4,post=mish+film+add", given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("batch", [1, 3])
def test_film_may_be_parts_of_one_tensor(batch, dtype):
    given = problem()
    given = given._replace(x=given.x[:1].expand(batch, -1, -1).contiguous().to(dtype))
    both = torch.randn(batch, 2, 12)
    rows = torch.randn(batch, 40)
    for scale, shift in ((both[:, 0], both[:, 1]), (both[:, 1], both[:, 0]), (both[:, 0], both[:, 0]),
                         (rows[:, 2:14], rows[:, 20:32]), (rows[:, 2:14], rows[:, 5:17]), (rows[:, :24:2], rows[:, 1:24:2]),
                         (both[:, 0], both[:, 1].contiguous()), (both[:, 0], both.to(dtype)[:, 1])):
        y = call("p=1,g=4,post=film", given._replace(film_scale=scale, film_shift=shift))
        wanted = call("p=1,g=4,post=film",
                      given._replace(film_scale=scale.clone(memory_format=torch.contiguous_format),
                                     film_shift=shift.clone(memory_format=torch.contiguous_format)))
        assert torch.equal(y, wanted)


def test_functional_takes_what_conv1d_takes_and_names_what_it_does_not():
    x, weight = x_fill(2, 6, 20), w_fill(8, 6, 3)
    assert torch.equal(conv1d_group_norm(x, weight, num_groups=4, stride=(2,), padding=(1,), dilation=(1,)),
                       conv1d_group_norm(x, weight, num_groups=4, stride=2, padding=1))
    with pytest.raises(ValueError, match=r"padding=\(1, 2, 3\) must be a number, \(left, right\)"):
        conv1d_group_norm(x, weight, num_groups=4, padding=(1, 2, 3))
    with pytest.raises(RuntimeError, match='g="4.0" is not an integer'):
        conv1d_group_norm(x, weight, num_groups=4.0, padding=1)


def test_inputs_stay_as_they_are():
    given = s1()
    before = [None if each is None else each.clone() for each in given]
    call(S1_LINE, given)
    for each, copy in zip(given, before):
        assert each is None or torch.equal(each, copy)


def test_repeats_bit_for_bit_and_on_any_number_of_threads():
    given = problem(n=3, c=16, l=333, o=32)
    y = call("p=1,g=4,post=silu", given)
    assert torch.equal(y, call("p=1,g=4,post=silu", given))
    torch.set_num_threads(1)
    try:
        assert torch.equal(y, call("p=1,g=4,post=silu", given))
    finally:
        torch.set_num_threads(2)


def test_many_threads_share_the_plans():
    from concurrent.futures import ThreadPoolExecutor

    cases = [("p=1,g=4", problem(l=length)) for length in (4, 21, 63, 400)]
    wanted = [call(*case) for case in cases]

    def work(start):
        return all(torch.equal(call(*cases[i % 4]), wanted[i % 4]) for i in range(start, start + 100))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_b019_nan_passes_through_relu():
    given = s1()
    given.x[0, 0, 5] = float("nan")
    y = call(S1_LINE + ",post=relu", given)
    assert y[0].isnan().all()
    assert torch.equal(y[1], call(S1_LINE + ",post=relu", s1())[1])


def test_b037_no_samples():
    given = s1()._replace(x=torch.empty(0, 6, 20))
    leaves = Operands(*(None if each is None else each.clone().requires_grad_() for each in given))
    y = call(S1_LINE, leaves)
    assert y.shape == (0, 8, 20)
    y.sum().backward()
    assert all(each is None or not each.grad.any() for each in leaves)


def test_b038_one_element_per_group():
    given = Operands(x_fill(2, 3, 4), w_fill(6, 3, 4).requires_grad_(), None, gamma_fill(6), beta_fill(6))
    y = call("g=6", given)
    assert torch.equal(y, beta_fill(6).expand(2, 6)[..., None])
    y.sum().backward()
    assert not given.weight.grad.any()


def test_b045_lengths():
    x = torch.zeros(1, 2, 20)
    x[:, :, :10] = x_fill(1, 2, 10)
    given = Operands(x, w_fill(4, 2, 3))
    padded = call("p=1,g=4", given)
    expect_close(padded[0, 0, :4], torch.tensor([-1.09055, 1.95040, -0.14349, -1.34552]))
    y = call("p=1,g=4", given._replace(lengths=torch.tensor([10])))
    expect_close(y[0, 0, :4], torch.tensor([-0.81784, 1.34553, -0.14409, -0.99923]))
    assert not y[..., 10:].any()
    assert torch.equal(y[..., :10], call("p=1,g=4", given._replace(x=x_fill(1, 2, 10))))


REFUSALS = {
    "B028": ("g=0", {}, None),  # no norm: allowed as the operator's own meaning of 0
    "B029": ("p=1,g=-1", {}, "-1"),
    "B030": ("p=1,g=3", {}, "3"),
    "B031 stride": ("s=0,g=4", {}, "0"),
    "B031 dilation": ("d=-1,g=4", {}, "-1"),
    "B031 padding": ("p=-1,g=4", {}, "-1"),
    "B032": ("cg=0,g=4", {}, "0"),
    "B032 divisor": ("cg=4,g=4", {}, "4"),
    "B035": ("g=4", {"x": torch.zeros(1, 6, 2)}, "2"),
    "rank": ("g=4", {"x": torch.zeros(6, 20)}, "three axes"),
    "weight": ("g=4", {"weight": torch.zeros(8, 5, 3)}, "weight"),
    "gamma": ("g=4", {"gamma": torch.zeros(7)}, "gamma"),
    "beta missing": ("g=4", {"beta": None}, "beta"),
    "residual": ("p=1,g=4,post=add", {"residual": torch.zeros(2, 8, 19)}, "residual"),
    "film unused": ("p=1,g=4", {"film_scale": torch.zeros(2, 8), "film_shift": torch.zeros(2, 8)}, "film"),
    "B057": ("g=4", {"weight": torch.zeros(8, 6, 3).double()}, "float64"),
    "integers": ("g=4", {"x": torch.zeros(2, 6, 20).long()}, "x has dtype"),
    "lengths": ("p=1,g=4", {"lengths": torch.tensor([1, 99])}, "99"),
    "unknown": ("p=1,g=4,post=swish", {}, "swish"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_name_what_is_wrong(case):
    line, changes, named = REFUSALS[case]
    given = s1()._replace(**changes)
    if named is None:
        assert torch.isfinite(call(line, given._replace(gamma=None, beta=None))).all()
        return
    with pytest.raises((RuntimeError, ValueError)) as refusal:
        call(line, given)
    assert named in str(refusal.value) and "\n" not in str(refusal.value)


def test_b057_mixed_float64_names_both():
    with pytest.raises(TypeError, match="weight has dtype float32, but x has float64"):
        convnorm.functional.conv1d_group_norm(torch.zeros(1, 6, 9).double(), torch.zeros(8, 6, 3), num_groups=4)


def test_b047_expanded_weight():
    x = torch.tensor([[[1.0, 2, 3, 4]]])
    y = call("g=1", Operands(x, torch.ones(1, 1, 1).expand(1, 1, 2)))
    expect_close(y[0, 0], torch.tensor([-1.22474, 0, 1.22474]))


def test_b048_sliced_weight():
    wide = w_fill(8, 6, 6)
    wanted = call(S1_LINE, s1()._replace(weight=wide[:, :, ::2].contiguous()))
    assert torch.equal(call(S1_LINE, s1()._replace(weight=wide[:, :, ::2])), wanted)
    offset = torch.empty(6 + 8 * 6 * 3)[6:].view(8, 6, 3).copy_(w_fill(8, 6, 3))
    assert torch.equal(call(S1_LINE, s1()._replace(weight=offset)), call(S1_LINE, s1()))


def test_b051_channels_last_view():
    last = x_fill(2, 6, 20).transpose(1, 2).contiguous().transpose(1, 2)
    y = call(S1_LINE, s1()._replace(x=last))
    assert y.is_contiguous() and torch.equal(y, call(S1_LINE, s1()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_b052_slices(dtype):
    weight = w_fill(8, 64, 3, dtype=dtype)
    for x in (x_fill(2, 64, 133, dtype=dtype)[:, :, 7:107],
              x_fill(2, 100, 67, dtype=dtype)[:, :, 1:65].transpose(1, 2)):
        given = Operands(x, weight)
        assert torch.equal(call("p=1,g=4", given), call("p=1,g=4", given._replace(x=x.contiguous())))


@pytest.mark.parametrize("length, wanted", list(zip((63, 64, 65, 127, 128, 129, 256, 257), (
    848.90164, 864.53921, 823.84621, 1651.82074, 1641.79396, 1701.22509, 3347.58943, 3377.77293))))
def test_b053_tails(length, wanted):
    y = call("p=3:0,g=2", Operands(x_fill(1, 4, length), w_fill(8, 4, 4), b_fill(8), gamma_fill(8), beta_fill(8)))
    assert abs(y.double().square().sum().item() - wanted) < 1e-5 * wanted


def test_b055_strides_of_axes_of_one():
    x = x_fill(1, 1, 16).transpose(1, 2)
    given = Operands(x, w_fill(8, 16, 1))
    assert torch.equal(call("g=4", given), call("g=4", given._replace(x=x.contiguous())))


def test_b061_halves_within_their_last_places():
    line = S1_LINE + ",post=silu"
    exact = expected(line, s1())
    for dtype in (torch.float16, torch.bfloat16):
        y = call(line, s1(dtype)).double()
        last_place = torch.finfo(dtype).eps * exact.abs().clamp(min=torch.finfo(dtype).smallest_normal)
        assert ((y - exact).abs() <= 2 * last_place).all()
        assert abs(exact.sum() - 123.63855) < 1e-4


def test_meta_device():
    given = s1()._replace(weight=torch.zeros(8, 6, 3, device="meta"))
    assert call(S1_LINE, given._replace(x=given.x.to("meta"))).device.type == "meta"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_b073_gpu_tensors_without_cuda_are_refused_in_one_sentence():
    from convnorm import _library

    assert _library.cuda_absence is not None or torch.version.cuda is not None


def test_path_is_named():
    assert torch.ops.convnorm.path(*s1()[:5], S1_LINE).count(" on ") == 1
    # B104: a wide problem does not fall back to the reference.
    given = problem(c=32, o=32, l=256)
    assert "reference" not in torch.ops.convnorm.path(*given[:5], "p=1,g=4")


def test_autocast_rounds_the_convolution_and_keeps_the_norm():
    given = s1()
    with torch.autocast("cpu", torch.bfloat16):
        y = convnorm.functional.conv1d_group_norm(given.x, given.weight, given.bias, num_groups=4, gamma=given.gamma,
                                                  beta=given.beta, padding=1)
    assert y.dtype == torch.bfloat16
    halves = given._replace(x=given.x.bfloat16(), weight=given.weight.bfloat16())
    assert torch.equal(y, call(S1_LINE, halves))


def test_float64_is_composed():
    given = in_double(s1())
    y = convnorm.functional.conv1d_group_norm(given.x, given.weight, given.bias, num_groups=4, gamma=given.gamma,
                                              beta=given.beta, padding=1)
    assert torch.equal(y, expected(S1_LINE, s1()))
    with pytest.raises(RuntimeError, match="float64"):
        call(S1_LINE, given)


def test_b009_identity_convolution():
    x = torch.tensor([[[1.0, 2, 3, 4, 5]]])
    expect_close(
        call("cg=1,g=1", Operands(x, identity(1)))[0, 0], torch.tensor([-1.41421, -0.70711, 0, 0.70711, 1.41421]))


@pytest.mark.parametrize("given, said", [
    (dict(x=torch.ones(2, 6, 20, dtype=torch.int32)), r"x has dtype int32, .*; convert x$"),
    (dict(x=torch.ones(2, 6, 20, dtype=torch.bool)), r"x has dtype bool, .*; convert x$"),
    (dict(lengths=torch.tensor([3, 4], dtype=torch.int32)),
     r"lengths has dtype int32, but it must have int64; convert lengths$"),
    (dict(num_groups=7), r"g=7 does not divide o=8.*\(o: C_out of weight, g: num_groups\)$"),
    (dict(stride=0), r"s=0 must be at least 1 \(s: stride\)$"),
    (dict(activation="Mish"), r'post="Mish" is not known \(did you mean mish\?\); use one of .*\(post: activation\)$'),
])
def test_refusals_speak_python(given, said):
    arguments = {"x": x_fill(2, 6, 20), "weight": torch.ones(8, 6, 3), "num_groups": 4, **given}
    with pytest.raises(RuntimeError, match=said):
        conv1d_group_norm(**arguments)
