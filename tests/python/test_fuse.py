"""convnorm.fuse on networks of the shapes that are met."""
import copy
import pickle
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import convnorm
from convnorm import _patterns
from convnorm._report import SLOWER, Entry, FusionReport
from support import expect_close, x_fill


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


@pytest.fixture
def calls(monkeypatch):
    """How often the operator ran."""
    counted = []
    apply = convnorm.functional.apply
    monkeypatch.setattr(convnorm.functional, "apply",
                        lambda *arguments: counted.append(arguments[0]) or apply(*arguments))
    return counted


def block(in_channels=6, out_channels=8, groups=4, act=nn.Mish, norm_channels=None, **conv):
    norm = nn.GroupNorm(groups, norm_channels or out_channels)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return [nn.Conv1d(in_channels, out_channels, 3, padding=1, **conv), norm, *([act()] if act else [])]


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = block(act=None)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class Film(nn.Module):
    """A residual block of a diffusion policy."""

    def __init__(self, in_channels=6, out_channels=8):
        super().__init__()
        self.first = nn.Sequential(*block(in_channels, out_channels))
        self.second = nn.Sequential(*block(out_channels, out_channels))
        self.condition = nn.Sequential(nn.Mish(), nn.Linear(5, 2 * out_channels), nn.Unflatten(-1, (-1, 1)))
        self.skip = nn.Conv1d(in_channels, out_channels, 1) if in_channels != out_channels else nn.Identity()

    def forward(self, x, cond):
        scale, shift = self.condition(cond).chunk(2, 1)
        return self.second(scale * self.first(x) + shift) + self.skip(x)


class FourAxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = block()

    @staticmethod
    def turn(t):
        if len(t.shape) == 3:
            return t[:, :, None, :]
        if len(t.shape) == 4:
            return t[:, :, 0, :]
        raise ValueError(len(t.shape))

    def forward(self, x):
        return self.act(self.turn(self.norm(self.turn(self.conv(x)))))


class Standardised(nn.Conv1d):
    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2), keepdim=True)
        weight = weight / (weight.var((1, 2), unbiased=False, keepdim=True) + 1e-5).sqrt()
        return F.conv1d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Sum(nn.Module):
    """The sum of two chains."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Sequential(*block(act=None)), nn.Sequential(*block(act=None))

    def forward(self, x):
        return F.relu(self.first(x) + self.second(x))


class OtherReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = block(act=None)

    def forward(self, x):
        z = self.conv(x)
        return self.norm(z) + z.mean()


class Optional_(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = block(act=None)

    def forward(self, x, mask=None, scale: float = 1.0):
        y = self.norm(self.conv(x)).relu() * scale
        if mask is not None:
            y = y * mask
        return y


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = block(act=None)

    def forward(self, x):
        return self.norm(self.conv(x)) if x.sum() > 0 else x


class Old(nn.Module):
    """conv -> relu -> norm, and a broadcast addition."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = block(act=None)
        self.prelu = nn.PReLU(8)

    def forward(self, x, t):
        return self.norm(self.prelu(self.conv(x))) + t[:, :, None]


def weight_normed(parametrized):
    conv, norm, act = block()
    wrap = nn.utils.parametrizations.weight_norm if parametrized else nn.utils.weight_norm
    return nn.Sequential(wrap(conv), norm, act)


X = (x_fill(2, 6, 20),)
NETWORKS = {
    "sequential": (lambda: nn.Sequential(*block(), nn.Conv1d(8, 3, 1)), X, 1),
    "two in a chain": (lambda: nn.Sequential(*block(), *block(8, 8, act=nn.ReLU)), X, 2),
    "nested": (lambda: nn.Sequential(nn.Sequential(*block()), nn.Sequential(*block(8, 8, act=nn.GELU))), X, 2),
    "functional": (Functional, X, 1),
    "film and residual": (Film, (*X, torch.randn(2, 5)), 2),
    "residual of the input": (lambda: Film(8, 8), (x_fill(2, 8, 20), torch.randn(2, 5)), 2),
    "sum of two": (Sum, X, 2),
    "four axes": (FourAxes, X, 1),
    "standardised": (lambda: nn.Sequential(Standardised(6, 8, 3, padding=1), *block()[1:]), X, 1),
    "weight norm by hook": (lambda: weight_normed(False), X, 1),
    "weight norm by parametrization": (lambda: weight_normed(True), X, 1),
    "prelu before the norm": (Old, (*X, torch.randn(2, 8)), 1),
    "optional arguments": (Optional_, X, 1),
    "dropout": (lambda: nn.Sequential(block()[0], nn.Dropout(0.5), *block()[1:]), X, 1),
    "glu": (lambda: nn.Sequential(*block(act=None), nn.GLU(1)), X, 1),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_same_results_gradients_and_names(name, calls):
    build, inputs, count = NETWORKS[name]
    model = build().eval()
    names = list(model.state_dict())
    x = inputs[0].clone().requires_grad_()
    wanted = model(x, *inputs[1:])
    gradients = torch.autograd.grad(wanted.square().sum(), [x, *model.parameters()])
    report = convnorm.fuse(model, inputs, timing=False)
    assert report.model is model and len(report.fused) == count, str(report)
    calls.clear()
    y = model(x, *inputs[1:])
    assert len(calls) == count
    expect_close(y, wanted)
    for actual, expected in zip(torch.autograd.grad(y.square().sum(), [x, *model.parameters()]), gradients):
        expect_close(actual / expected.abs().max().clamp(min=1), expected / expected.abs().max().clamp(min=1), 5e-5)
    assert list(model.state_dict()) == names
    with torch.no_grad():
        for other in (copy.deepcopy(model),
                      pickle.loads(pickle.dumps(model)) if "parametrization" not in name else model):
            calls.clear()
            expect_close(other(*inputs), wanted)
            assert len(calls) == count
    calls.clear()
    assert convnorm.unfuse(model) is model
    expect_close(model(*inputs), wanted)
    assert not calls and not any(isinstance(each, convnorm._fuse._Fused) for each in model.modules())


def test_the_whole_chain_is_taken(calls):
    model = Film().eval()
    convnorm.fuse(model)
    model(*X, torch.randn(2, 5))
    assert [line.split("post=")[1] for line in calls] == ["mish+film", "mish+add"]


@pytest.mark.parametrize("build, reason", [
    (OtherReader, "used elsewhere"), (Branches, "could not be traced"),
    (lambda: nn.Sequential(nn.GroupNorm(2, 6), nn.Conv1d(6, 8, 3)), "no Conv1d"),
    (lambda: nn.Sequential(nn.Conv2d(6, 8, 1), nn.GroupNorm(2, 8)), "no Conv1d"),
    (lambda: nn.Sequential(nn.Conv1d(6, 8, 3, padding=1, padding_mode="circular"), nn.GroupNorm(2, 8)), "circular"),
])
def test_left_alone_and_why(build, reason, calls):
    model = build()
    report = convnorm.fuse(model)
    assert not report.fused and reason in report.left_alone[0].text
    assert type(model) is type(build()) and reason in str(report)


def test_train_mode_takes_what_it_can(calls):
    model = nn.Sequential(block()[0], nn.Dropout(0.5), *block()[1:], *block(8, 8))
    convnorm.fuse(model.eval())
    model.train()
    torch.manual_seed(1)
    y = model(*X)
    assert len(calls) == 1  # the dropout keeps the other one apart
    torch.manual_seed(1)
    expect_close(y, convnorm.unfuse(model)(*X))


def test_arguments_choose_the_forward_pass(calls):
    model = Optional_().eval()
    plain = copy.deepcopy(model)
    convnorm.fuse(model)
    mask = (torch.arange(20) < 10).float()
    for arguments, named in (((), {}), ((mask,), {}), ((), {"mask": mask}), ((None, 2.0), {}), ((), {"scale": 0.5})):
        expect_close(model(*X, *arguments, **named), plain(*X, *arguments, **named))
    assert len(calls) == 5
    with pytest.raises(TypeError, match="x"):
        model()


def test_hooks_are_called(calls):
    model = nn.Sequential(*block()).eval()
    convnorm.fuse(model)
    seen = []
    model[1].register_forward_hook(lambda module, inputs, y: seen.append(y.shape))
    model(*X)
    assert seen == [(2, 8, 20)] and not calls
    whole = []
    model.register_forward_hook(lambda module, inputs, y: whole.append(y.shape))
    model(*X)
    assert len(whole) == 1


def test_shared_modules(calls):
    conv, norm, act = block(6, 6, 2)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.act = conv, norm, act

        def forward(self, x):
            x = self.act(self.norm(self.conv(x)))
            return self.act(self.norm(self.conv(x)))

    model = Twice().eval()
    wanted = model(*X)
    convnorm.fuse(model)
    expect_close(model(*X), wanted)
    assert len(calls) == 2


def test_weights_that_change_are_seen():
    model = nn.Sequential(*block()).eval()
    convnorm.fuse(model)
    with torch.no_grad():
        model(*X)
        model[0].weight.mul_(-1)
        y = model(*X)
        expect_close(y, convnorm.unfuse(model)(*X))


def test_data_that_changes_uncounted_is_seen_after_repack():
    model = nn.Sequential(*block()).eval()
    convnorm.fuse(model)
    with torch.no_grad():
        for forget in (lambda: convnorm.repack(model), lambda: model.train().eval()):
            model(*X)
            model[0].weight.data.mul_(-1)
            forget()
            y = model(*X)
            expect_close(y, convnorm.unfuse(copy.deepcopy(model))(*X))


CHANGES = {
    "dropout on in eval mode": lambda model: model[1].train(),
    "eps": lambda model: setattr(model[2], "eps", 0.5),
    "groups": lambda model: setattr(model[2], "num_groups", 2),
    "padding": lambda model: setattr(model[0], "padding", (2,)),
    "another convolution": lambda model: model.__setitem__(0, nn.Conv1d(6, 8, 5, padding=1)),
    "another norm": lambda model: model.__setitem__(2, nn.GroupNorm(2, 8)),
    "another activation": lambda model: model.__setitem__(3, nn.ReLU()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_modules_that_change_are_seen(change, calls):
    conv, norm, act = block()
    model = nn.Sequential(conv, nn.Dropout(0.5), norm, act).eval()
    convnorm.fuse(model)
    model(*X)
    assert len(calls) == 1
    CHANGES[change](model)
    torch.manual_seed(1)
    y = model(*X)
    torch.manual_seed(1)
    assert torch.equal(y, convnorm.unfuse(model)(*X))


class WithCode(nn.Module):
    """A block whose forward pass does more than a graph can hold, or less than it seems."""

    def __init__(self, code):
        super().__init__()
        self.conv, self.norm, self.act = block()
        self.code, self.on, self.count, self.seen = code, True, 0, []

    def forward(self, x):
        return self.code(self, self.act(self.norm(self.conv(x))))


def counts(module, y):
    module.count += 1
    return y


def collects(module, y):
    module.seen.append(y)
    return y


@pytest.mark.parametrize("code, reason", [(counts, "changes its attribute 'count'"),
                                          (collects, "changes its attribute 'seen'"),
                                          (lambda module, y: y + torch.randn(1), "makes a tensor out of nothing")])
def test_code_that_must_run_at_every_call_is_left(code, reason):
    model = WithCode(code).eval()
    report = convnorm.fuse(model)
    assert not report.fused and reason in str(report) and "_tensor_constant0" not in vars(model)
    assert model.count == 0 and model.seen == []
    assert code is not collects or torch.equal(model(*X), model.seen[0])


def test_settings_of_the_module_itself_are_seen(calls):
    model = WithCode(lambda module, y: y + 1 if module.on else y).eval()
    convnorm.fuse(model)
    with_one = model(*X)
    assert len(calls) == 1
    model.on = False
    expect_close(model(*X), with_one - 1)


def test_other_threads_do_not_see_the_tracing():
    model, other = Optional_().eval(), nn.Sequential(nn.Conv1d(6, 8, 3), nn.ReLU())
    convnorm.fuse(model)
    wrong, done = [], threading.Event()

    def work():
        while not done.is_set():
            try:
                other(*X)
                assert type(model(*X)) is torch.Tensor
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for scale in range(12):
            model(*X, None, float(scale))  # each traced anew
    finally:
        sys.setswitchinterval(interval)
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[0]


def test_fused_twice_is_said_twice():
    model = nn.Sequential(*block()).eval()
    first = convnorm.fuse(model)
    assert str(convnorm.fuse(model)) == str(first) and first.fused


def test_calls_without_a_batch_run_as_they_always_did(calls):
    model = nn.Sequential(*block(norm_channels=20)).eval()
    x = x_fill(6, 20)
    wanted = model(x)  # of which PyTorch takes the channels for samples
    convnorm.fuse(model)
    for _ in range(2):
        assert torch.equal(model(x), wanted)


def test_one_tensor_is_an_example_too(calls):
    assert convnorm.fuse(nn.Sequential(*block()).eval(), *X, timing=False).fused and calls
    with pytest.raises(TypeError, match="model is a function, but it must be a torch.nn.Module"):
        convnorm.fuse(lambda x: x)


def test_changed_results_are_put_back(monkeypatch):
    model = nn.Sequential(*block()).eval()
    wanted = model(*X)
    monkeypatch.setattr(_patterns, "run_tensors", lambda *arguments, **named: torch.zeros(2, 8, 20))
    report = convnorm.fuse(model, X, timing=False)
    assert not report.fused and "results changed" in str(report)
    assert torch.equal(model(*X), wanted)


def test_fused_models_compile():
    model = Film().eval()
    inputs = (*X, torch.randn(2, 5))
    wanted = model(*inputs)
    convnorm.fuse(model)
    model(*inputs)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    expect_close(compiled(*inputs), wanted)


def test_autocast():
    model = Film().eval()
    inputs = (*X, torch.randn(2, 5))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        wanted = model(*inputs)
        convnorm.fuse(model)
        y = model(*inputs)
    expect_close(y.float(), wanted.float(), 0.1)


@pytest.mark.parametrize("change", [
    lambda conv: setattr(conv, "forward", lambda x, own=conv.forward: 3 * own(x)),
    lambda conv: setattr(conv, "_conv_forward", lambda *a, own=conv._conv_forward: 3 * own(*a)),
    lambda conv: setattr(conv, "__class__", type("Tripled", (nn.Conv1d,), {
        "forward": lambda self, x: 3 * nn.Conv1d.forward(self, x)})),
], ids=["forward", "_conv_forward", "class"])
def test_a_layer_that_got_a_forward_pass_of_its_own(change):
    model, plain = nn.Sequential(*block()).eval(), nn.Sequential(*block()).eval()
    plain.load_state_dict(model.state_dict())
    convnorm.fuse(model)
    for each in (model, plain):
        change(each[0])
    expect_close(model(*X), plain(*X))


def test_the_report_is_in_natural_order_and_gives_its_entries():
    model = nn.Sequential(*block(6, 8), *block(8, 8), *block(8, 8), *block(8, 8)).eval()
    report = convnorm.fuse(model)
    assert [entry.name for entry in report] == ["1", "4", "7", "10"]
    assert list(report) == report.entries


def test_what_is_slower_is_never_said_to_be_as_fast():
    report = str(FusionReport(nn.Identity(), [Entry("0", False, SLOWER, 0.999), Entry("1", False, SLOWER, 0.5),
                                              Entry("2", True, "conv", 1.004)]))
    assert "0.99 times" in report and "0.50 times" in report and report.count("1.00 times") == 1


class Elsewhere(nn.Module):
    """Stands for a model on a GPU, which refuses what lies on CPUs."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, device="meta"))

    def forward(self, x):
        raise RuntimeError("Input type and weight type should be the same")


def test_an_example_on_another_device_is_named_and_modes_stay():
    model = Elsewhere().train()
    with pytest.raises(RuntimeError, match="example_inputs hold a tensor on cpu, but the model is on meta") as refusal:
        convnorm.fuse(model, (torch.ones(1), ))
    assert "should be the same" in str(refusal.value.__cause__) and model.training
    with pytest.raises(RuntimeError, match="^Input type"):
        convnorm.fuse(model, (torch.ones(1, device="meta"), ))
