"""The operator and the module under PyTorch's compilers, exporters and transforms."""
import copy
import io
import pickle

import pytest
import torch
from torch import nn

import convnorm
from convnorm.nn import Conv1dGroupNorm
from convnorm.reference import Operands
from support import S1_LINE, b_fill, beta_fill, call, expect_close, gamma_fill, s1, w_fill, x_fill
from test_autograd import leaves

OPERATOR = torch.ops.convnorm.conv1d_group_norm.default


@pytest.mark.parametrize("line, changes", [
    (S1_LINE + ",post=silu", {}),
    ("s=2,p=1,g=4,post=film+add", {
        "film_scale": x_fill(2, 8),
        "film_shift": w_fill(2, 8),
        "residual": x_fill(2, 8, 10)
    }),
    ("p=same,g=2,layout=nlc", {
        "x": x_fill(2, 20, 6)
    }),
])
def test_opcheck(line, changes):
    given = leaves(s1()._replace(**changes))
    torch.library.opcheck(OPERATOR, (*given[:5], line, 0, *given[5:]))


def test_b088_opcheck_in_bfloat16():
    given = leaves(s1(torch.bfloat16))
    torch.library.opcheck(OPERATOR, (*given[:5], S1_LINE, 0, *given[5:]),
                          test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Conv1dGroupNorm(6, 8, 4, activation="mish", bias=True)
        self.head = nn.Conv1d(8, 3, 1)

    def forward(self, x):
        return self.head(self.block(x)) + 1


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_compiled_whole_with_dynamic_batch_and_length(mode):
    torch.manual_seed(1)
    net = Net().train(mode == "train")
    compiled = torch.compile(net, fullgraph=True, dynamic=True, backend="aot_eager")
    for n, length in ((2, 20), (3, 33), (5, 7)):
        x = x_fill(n, 6, length).requires_grad_()
        expect_close(compiled(x), net(x))
        (ours,) = torch.autograd.grad(compiled(x).square().sum(), x)
        (wanted,) = torch.autograd.grad(net(x).square().sum(), x)
        expect_close(ours, wanted, 1e-4)


def test_b088_trained_in_float16_and_channels_last_without_graph_break():
    torch._dynamo.reset()
    module = Conv1dGroupNorm(6, 8, 4, activation="silu").half()
    x = x_fill(2, 20, 6, dtype=torch.float16).transpose(1, 2).requires_grad_()
    y = torch.compile(module, fullgraph=True, backend="aot_eager")(x)
    grad = torch.randn_like(y)
    wants = [x, *module.parameters()]
    found = torch.autograd.grad(y, wants, grad)
    assert torch.equal(y, module(x))
    for ours, eager in zip(found, torch.autograd.grad(module(x), wants, grad)):
        expect_close(ours, eager, 2e-3)


def test_traced_programs_name_no_weight_of_this_process():
    module, x = Conv1dGroupNorm(6, 8, 4).eval(), x_fill(2, 6, 20)
    for gradients in (torch.enable_grad, torch.no_grad):
        with gradients():
            module(x)
            traced = torch.jit.trace(module, (x,))
            saved = io.BytesIO()
            torch.jit.save(traced, saved)
            saved.seek(0)
            assert torch.equal(torch.jit.load(saved)(2 * x), module(2 * x))
    assert "value=0]" in str(traced.graph) and f"value={module._kept.number}]" not in str(traced.graph)


def test_inductor_without_graph_break():
    net = Net().eval()
    compiled = torch.compile(net, fullgraph=True)
    with torch.no_grad():
        x = x_fill(2, 6, 20)
        expect_close(compiled(x), net(x))
        net.block.weight.mul_(2)
        net.block.gamma.add_(1)
        expect_close(compiled(x), net(x))
        last = x.transpose(1, 2).contiguous().transpose(1, 2)
        expect_close(compiled(last), net(x))


def test_autocast_inside_of_a_compiled_graph():
    net = Net().eval()

    def call_it(x):
        with torch.autocast("cpu", torch.bfloat16):
            return net(x)

    x = x_fill(2, 6, 20)
    with torch.no_grad():
        compiled = torch.compile(call_it, fullgraph=True, backend="aot_eager")(x)
        assert compiled.dtype == torch.bfloat16
        expect_close(compiled, call_it(x), 1e-2)


def test_b085_weight_of_odd_strides():
    weight = w_fill(33, 1, 16).transpose(1, 2)
    x = x_fill(20, 16, 50)

    def run(x):
        return call("g=3", Operands(x, weight))

    with torch.no_grad():
        compiled = torch.compile(run, backend="aot_eager")
        for _ in range(3):
            assert torch.equal(compiled(x), run(x))
        fake = torch._subclasses.FakeTensorMode()
        with fake:
            y = call("g=3", Operands(fake.from_tensor(x), fake.from_tensor(weight)))
    assert y.stride() == run(x).stride()


def test_b087_huge_values():
    x = torch.tensor([8.0e37, 8.5e37] * 8)[None, None]
    given = Operands(x, torch.ones(1, 1, 1))
    wanted = torch.tensor([-1.0, 1.0] * 8)[None, None]
    expect_close(call("g=1", given), wanted)
    expect_close(torch.compile(lambda x: call("g=1", given._replace(x=x)), backend="aot_eager")(x), wanted)


def test_b089_export_with_dynamic_batch_and_length():
    net = Net().eval()
    n, length = torch.export.Dim("n", min=1, max=64), torch.export.Dim("length", min=4, max=4096)
    program = torch.export.export(net, (x_fill(2, 6, 20),), dynamic_shapes=({0: n, 2: length},))
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    loaded = torch.export.load(stored).module()
    for shape in ((2, 6, 20), (5, 6, 31)):
        expect_close(loaded(x_fill(*shape)), net(x_fill(*shape)))
    # PyTorch's own operators, for runtimes that do not know ours.
    plain = program.run_decompositions(convnorm.functional.decomposition_table())
    names = {str(node.target) for node in plain.graph.nodes if node.op == "call_function"}
    assert not any("convnorm" in name for name in names)
    expect_close(plain.module()(x_fill(3, 6, 25)), net(x_fill(3, 6, 25)), 1e-4)


def test_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda *tensors: call(S1_LINE, Operands(*tensors)), tracing_mode="symbolic")(*s1()[:5])
    assert torch.equal(graph(*s1()[:5]), call(S1_LINE, s1()))


@pytest.mark.parametrize("dim", [0, 1, 3])
def test_b091_vmap(dim):
    x = x_fill(2, 6, 20, 4).movedim(3, dim)
    weight = w_fill(8, 6, 3)
    y = torch.vmap(lambda x: call(S1_LINE, Operands(x, weight)), in_dims=dim)(x)
    wanted = torch.stack([call(S1_LINE, Operands(each, weight)) for each in x.unbind(dim)])
    expect_close(y, wanted)


def test_vmap_over_weights_and_gradients_of_each_sample():
    weights = w_fill(3, 8, 6, 3)
    y = torch.vmap(lambda weight: call(S1_LINE, s1()._replace(weight=weight)))(weights)
    assert torch.equal(y, torch.stack([call(S1_LINE, s1()._replace(weight=each)) for each in weights]))

    def loss(weight, x):
        return convnorm.functional.conv1d_group_norm(x[None], weight, num_groups=4, padding=1).square().sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(w_fill(8, 6, 3), x_fill(2, 6, 20))
    for gradient, x in zip(each, x_fill(2, 6, 20)):
        expect_close(gradient, torch.func.grad(loss)(w_fill(8, 6, 3), x), 1e-4)


def test_meta_tensors():
    given = Operands(*(None if each is None else each.to("meta") for each in s1()))
    assert call("s=2,p=1,g=4", given).shape == (2, 8, 10)
    assert Conv1dGroupNorm(6, 8, 4, device="meta")(given.x).shape == (2, 8, 20)


def test_copies_and_pickles():
    net = Net().eval()
    x = x_fill(2, 6, 20)
    with torch.no_grad():
        wanted = net(x)
        for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            assert torch.equal(other(x), wanted)
            assert other.block._kept.number != net.block._kept.number
            other.block.weight.zero_()
        assert torch.equal(net(x), wanted)
