"""convnorm.nn.Conv1dGroupNorm."""
import gc
import threading

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import prune
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from convnorm.nn import Conv1dGroupNorm
from support import expect_close, x_fill


def twin(conv, norm):
    return nn.Sequential(conv, norm)


@pytest.mark.parametrize("bias, affine", [(False, True), (True, True), (True, False)])
def test_initialised_bit_for_bit_as_the_two_modules(bias, affine):
    torch.manual_seed(3)
    conv, norm = nn.Conv1d(12, 16, 5, padding=2, groups=4, bias=bias), nn.GroupNorm(4, 16, affine=affine)
    torch.manual_seed(3)
    ours = Conv1dGroupNorm(12, 16, 4, 5, padding=2, groups=4, bias=bias, affine=affine)
    for theirs, mine in ((conv.weight, ours.weight), (conv.bias, ours.bias), (norm.weight, ours.gamma),
                         (norm.bias, ours.beta)):
        assert (theirs is None) == (mine is None) and (theirs is None or torch.equal(theirs, mine))
    drawn = torch.rand(1)
    torch.manual_seed(3)
    nn.Conv1d(12, 16, 5, groups=4, bias=bias)
    assert torch.equal(drawn, torch.rand(1))


def test_parameters_by_name_and_position():
    module = Conv1dGroupNorm(128, 256, 32, 3, 1, 1, 1, 1e-5, True)
    assert [name for name, _ in module.named_parameters()] == ["weight", "gamma", "beta"]
    plain = Conv1dGroupNorm(4, 8, 2, bias=True, affine=False)
    assert [name for name, _ in plain.named_parameters()] == ["weight", "bias"]


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "replicate"])
@pytest.mark.parametrize("activation, act", [(None, nn.Identity()), ("silu", nn.SiLU()),
                                             ("leaky_relu(0.2)", nn.LeakyReLU(0.2))])
def test_equals_the_two_modules_and_shares_their_parameters(padding_mode, activation, act):
    conv, norm = nn.Conv1d(6, 8, 3, 2, 2, 2, padding_mode=padding_mode), nn.GroupNorm(2, 8)
    nn.init.normal_(norm.weight)
    ours = Conv1dGroupNorm.from_modules(conv, norm, activation)
    x = x_fill(3, 6, 30)
    expect_close(ours(x), act(norm(conv(x))))
    assert ours.weight is conv.weight and ours.beta is norm.bias


def test_film_and_residual():
    module = Conv1dGroupNorm(6, 8, 2, activation="mish")
    x, scale, shift, residual = x_fill(3, 6, 30), torch.randn(3, 8), torch.randn(3, 8), torch.randn(3, 8, 30)
    plain = module(x)
    expect_close(module(x, film=(scale, shift), residual=residual),
                 plain * scale[..., None] + shift[..., None] + residual)


def test_loads_the_state_of_a_sequential():
    pair = twin(nn.Conv1d(6, 8, 3, padding=1), nn.GroupNorm(2, 8))
    nn.init.normal_(pair[1].bias)
    ours = Conv1dGroupNorm(6, 8, 2, bias=True)
    assert not any(ours.load_state_dict(pair.state_dict()))
    x = x_fill(2, 6, 9)
    expect_close(ours(x), pair(x))
    again = Conv1dGroupNorm(6, 8, 2, bias=True)
    again.load_state_dict(ours.state_dict())
    assert torch.equal(again(x), ours(x))
    inside = nn.ModuleDict({"block": Conv1dGroupNorm(6, 8, 2, bias=True)})
    inside.load_state_dict({f"block.{name}": value for name, value in pair.state_dict().items()})
    assert torch.equal(inside["block"](x), ours(x))


def changes():
    def step(module):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        module(x_fill(2, 6, 20)).square().sum().backward()
        optimizer.step()

    def fused_step(module):  # whose kernel counts no change
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)
        module(x_fill(2, 6, 20)).square().sum().backward()
        optimizer.step()

    def normed(module):
        nn.utils.parametrizations.weight_norm(module)
        with torch.no_grad():
            module(x_fill(2, 6, 20))
            module.parametrizations.weight.original0.mul_(2)

    def through_data(module):
        module.weight.data.mul_(2)
        module.repack()

    return {
        "optimizer": step,
        "fused optimizer": fused_step,
        "pruned": lambda module: prune.l1_unstructured(module, "weight", 0.5),
        "parametrized": normed,
        "loaded by assignment": lambda module: module.load_state_dict(Conv1dGroupNorm(6, 8, 4).state_dict(),
                                                                      assign=True),
        "through a view": lambda module: module.weight.detach().view(-1)[3:9].fill_(2),
        "in place": lambda module: module.weight.detach().add_(1),
        "load_state_dict": lambda module: module.load_state_dict(Conv1dGroupNorm(6, 8, 4).state_dict()),
        "new parameter": lambda module: setattr(module, "weight", nn.Parameter(torch.randn(8, 6, 3))),
        "to and back": lambda module: module.to(torch.bfloat16).to(torch.float32),
        "in other strides": lambda module: setattr(module.weight, "data",
                                                   module.weight.data.as_strided((8, 6, 3), (3, 24, 1))),
        "data and repack": through_data,
        "train, data, eval": lambda module: (module.train(), module.weight.data.mul_(2), module.eval()),
    }


@pytest.mark.parametrize("change", changes())
def test_packed_weight_follows(change):
    module = Conv1dGroupNorm(6, 8, 4).eval()
    x = x_fill(2, 6, 20)
    with torch.no_grad():
        module(x)
    changes()[change](module)
    with torch.no_grad():
        expect_close(module(x), nn.functional.group_norm(nn.functional.conv1d(x, module.weight, None, 1, 1), 4,
                                                         module.gamma, module.beta))


def composed(module, x, weight=None):
    z = nn.functional.conv1d(x, module.weight if weight is None else weight, module.bias, 1, 1)
    return nn.functional.group_norm(z, 4, module.gamma, module.beta)


def test_replicas_in_threads():
    module, x = Conv1dGroupNorm(6, 8, 4).eval(), x_fill(2, 6, 20)
    with torch.no_grad():
        module(x)
    # As nn.DataParallel makes them: with tensors in the place of parameters, and everything else shared.
    replicas = [module._replicate_for_data_parallel() for _ in range(3)]
    for factor, each in enumerate(replicas):
        each.weight, each.bias = module.weight.detach() * (factor + 1), None
        each.gamma, each.beta = module.gamma.detach(), module.beta.detach()
    found = {}

    def work(each):
        with torch.no_grad():
            for _ in range(50):
                found[each] = each(x)

    threads = [threading.Thread(target=work, args=(each,)) for each in replicas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in replicas:
        expect_close(found[each], composed(module, x, each.weight))


def test_other_parameters_for_one_call():
    module, x = Conv1dGroupNorm(6, 8, 4).eval(), x_fill(2, 6, 20)
    others = {name: torch.randn_like(each) for name, each in module.named_parameters()}
    with torch.no_grad():
        before = module(x)
        y = torch.func.functional_call(module, others, (x,))
        assert torch.equal(module(x), before)
        both = {name: torch.stack([each, each]) for name, each in others.items()}
        of_two = torch.func.vmap(lambda each: torch.func.functional_call(module, each, (x,)))(both)
        expect_close(of_two, torch.stack([y, y]))
        module.load_state_dict(others)
        expect_close(module(x), y)


@pytest.mark.parametrize("gradients", [torch.enable_grad, torch.no_grad])
def test_forward_mode_gradients(gradients):
    module, x = Conv1dGroupNorm(6, 8, 4).eval(), x_fill(2, 6, 20)
    _, wanted = torch.func.jvp(lambda each: composed(module, each), (x,), (torch.cos(x),))
    with gradients(), forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.cos(x))
        expect_close(forward_ad.unpack_dual(module(dual)).tangent, wanted, 1e-4)
        with pytest.raises(NotImplementedError, match="forward-mode"):
            torch.ops.convnorm.conv1d_group_norm(dual, module.weight, None, module.gamma, module.beta, "p=1,g=4")


@pytest.mark.parametrize("gradients", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_modes_and_subclasses_see_the_operator(gradients):
    class Other(torch.Tensor):
        pass

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    module, x = Conv1dGroupNorm(6, 8, 4).eval(), x_fill(2, 6, 20)
    for mode in (Functions, Dispatches):
        seen = []
        with gradients(), mode():
            module(x)
        assert any("conv1d_group_norm" in each for each in seen), seen
    with gradients():
        assert type(module(x.as_subclass(Other))) is Other


def test_packed_weights_of_many_shapes_stay_right():
    module = Conv1dGroupNorm(6, 8, 4).eval()
    fresh = Conv1dGroupNorm(6, 8, 4)
    fresh.load_state_dict(module.state_dict())
    with torch.inference_mode():
        for length in list(range(3, 20)) * 2:
            assert torch.equal(module(x_fill(2, 6, length)), fresh(x_fill(2, 6, length)))


def test_addresses_used_again_do_not_deceive():
    x = x_fill(2, 6, 20)
    module = Conv1dGroupNorm(6, 8, 4).eval()
    with torch.no_grad():
        for _ in range(30):
            module.weight = nn.Parameter(torch.randn(8, 6, 3))
            expect_close(module(x), nn.functional.group_norm(nn.functional.conv1d(x, module.weight, None, 1, 1), 4))


def test_modules_that_go_while_something_is_traced():
    released = []
    with torch._subclasses.FakeTensorMode():
        kept = Conv1dGroupNorm(6, 8, 4)._kept
        release = torch.ops.convnorm.release_weight
        torch.ops.convnorm.release_weight = lambda number: released.append(number) or release(number)
        try:
            number = kept.number
            del kept
            gc.collect()
        finally:
            torch.ops.convnorm.release_weight = release
    assert number in released


def test_inference_tensors_are_packed_at_every_call():
    with torch.inference_mode():
        module = Conv1dGroupNorm(6, 8, 4).eval()
        x = x_fill(2, 6, 20)
        before = module(x)
        module.weight.neg_()
        expect_close(module(x), -before)


@pytest.mark.parametrize("arguments, named", [
    ((6, 8, 0), "num_groups=0"), ((6, 8, -1), "num_groups=-1"), ((6, 6, 4), "num_groups=4 .*out_channels=6"),
    ((6, 8, 4, 3, 0), "stride=0"), ((6, 8, 4, 3, 1, -1), "padding=-1"), ((6, 8, 4, 3, 1, 1, 0), "dilation=0"),
    ((6, 8, 4, 3, 1.5), "stride=1.5"), ((6, 8, 4, 3, 1, (1, 2, 3)), r"padding=\(1, 2, 3\)"),
    ((6, 8, 4, 3, 1, "full"), "padding='full'"), ((6, 8, 4, 3, 1, 1, 1, 0.0), "eps=0.0 must be above 0"),
])
def test_b028_to_b031_refused_in_the_constructor(arguments, named):
    with pytest.raises(ValueError, match=named):
        Conv1dGroupNorm(*arguments)


def test_takes_what_conv1d_takes_and_names_what_it_does_not():
    x = x_fill(2, 6, 20)
    module = Conv1dGroupNorm(6, 8, 4, (3,), (2,), (1,), (1,))
    expect_close(module(x), nn.functional.group_norm(nn.functional.conv1d(x, module.weight, None, 2, 1), 4))
    with pytest.raises(ValueError, match="padding_mode='circular'"):
        Conv1dGroupNorm(6, 8, 4, padding_mode="circular")
    with pytest.raises(ValueError, match="precision='best'"):
        Conv1dGroupNorm(6, 8, 4, precision="best")
    for conv, norm in ((nn.Conv2d(6, 8, 3), nn.GroupNorm(4, 8)), (nn.LazyConv1d(8, 3), nn.GroupNorm(4, 8)),
                       (nn.Conv1d(6, 8, 3), nn.BatchNorm1d(8))):
        with pytest.raises(TypeError, match="must be an initialised nn"):
            Conv1dGroupNorm.from_modules(conv, norm)
    with pytest.raises(TypeError, match="x is a NoneType"):
        module(None)
    with pytest.raises(RuntimeError, match=r"x \(2, 5, 20\) has 5 channels, but weight \(8, 6, 3\)"):
        module(x[:, :5])


def test_training_learns():
    torch.manual_seed(0)
    net = nn.Sequential(Conv1dGroupNorm(3, 16, 4, activation="silu"), nn.Conv1d(16, 3, 1))
    optimizer = torch.optim.Adam(net.parameters(), 3e-2)
    x = torch.randn(4, 3, 50)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = (net(x) - x.roll(1, 2)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_repr_says_what_differs():
    assert "activation='mish'" in repr(Conv1dGroupNorm(6, 8, 4, activation="mish"))
