"""The operator on GPUs: numbers, streams, graphs, devices."""
import copy
import ctypes
import threading

import pytest
import torch
from torch import nn

import convnorm
from convnorm import _timing, _transposed, reference
from convnorm._attributes import parse
from convnorm.nn import Conv1dGroupNorm, keep_weight_of
from convnorm.reference import Operands
from support import S1_LINE, call, expect_close, expected, s1, x_fill
from test_autograd import leaves
from test_operator import LINES, TOLERANCE

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def on_gpu(operands, device="cuda"):
    return Operands(*(None if each is None else each.to(device) for each in operands))


@pytest.mark.parametrize("line, operands", LINES, ids=[line for line, _ in LINES])
def test_equals_the_composition(line, operands):
    expect_close(call(line + ",precision=highest", on_gpu(operands)), expected(line, operands), 5e-5)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_dtypes(dtype):
    y = call(S1_LINE + ",post=silu", on_gpu(s1(dtype)))
    assert y.dtype == dtype
    expect_close(y, expected(S1_LINE + ",post=silu", s1(dtype)), max(1e-4, TOLERANCE[dtype]))


@pytest.mark.parametrize("line, operands", LINES[:4], ids=[line for line, _ in LINES[:4]])
def test_gradients(line, operands):
    ours, exact = leaves(on_gpu(operands)), leaves(on_gpu(Operands(*(
        None if each is None else each.double() for each in operands))))
    y = call(line + ",precision=highest", ours)
    grad = torch.randn_like(y)
    with torch.backends.cudnn.flags(allow_tf32=False):
        found = torch.autograd.grad(y, [each for each in ours if each is not None], grad)
    wanted = torch.autograd.grad(reference.conv1d_group_norm(parse(line), exact),
                                 [each for each in exact if each is not None], grad.double())
    for actual, wants in zip(found, wanted):
        scale = wants.abs().max().clamp(min=1)
        expect_close(actual / scale, wants / scale, 1e-4)


@pytest.mark.parametrize("weight_id", [0, 1 << 40])
def test_opcheck(weight_id):
    given = leaves(on_gpu(s1()))
    torch.library.opcheck(torch.ops.convnorm.conv1d_group_norm.default,
                          (*given[:5], S1_LINE + ",post=silu", weight_id, *given[5:]))
    torch.ops.convnorm.release_weight(weight_id)


def test_fused_optimizers_are_seen():
    module = Conv1dGroupNorm(6, 8, 4).cuda().eval()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)
    x = x_fill(2, 6, 20).cuda()
    with torch.no_grad():
        before = module(x)
    module(x).square().sum().backward()
    optimizer.step()
    with torch.no_grad():
        y = module(x)
        assert not torch.equal(y, before)
        expect_close(y, nn.functional.group_norm(nn.functional.conv1d(x.double(), module.weight.double(), padding=1), 4,
                                                 module.gamma.double(), module.beta.double()), 1e-4)


def test_b068_side_stream():
    given, wanted = on_gpu(s1()), expected(S1_LINE, s1())
    stream = torch.cuda.Stream()
    x = torch.empty_like(given.x)
    for _ in range(200):
        with torch.cuda.stream(stream):
            x.fill_(float("nan"))
            torch.cuda._sleep(1_000_000)
            x.copy_(given.x)
            y = call(S1_LINE, given._replace(x=x))
        torch.cuda.current_stream().wait_stream(stream)
        expect_close(y, wanted, 1e-4)


def test_b068_everything_is_launched_into_the_callers_stream():
    given = on_gpu(s1())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(S1_LINE, given)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            x = given.x * 1  # PyTorch's own, which shows the stream's number
            call(S1_LINE, given._replace(x=x))
            torch.cuda.synchronize()
    launched = [event for event in profile.profiler.kineto_results.events()
                if event.device_type() == torch.autograd.DeviceType.CUDA and "ync" not in event.name()]
    assert len(launched) >= 2 and len({event.device_resource_id() for event in launched}) == 1, [
        (event.name(), event.device_resource_id()) for event in launched]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_b070_graph(mode):
    module = Conv1dGroupNorm(6, 8, 4, bias=True, activation="mish").cuda().train(mode == "train")
    x = x_fill(2, 6, 20).cuda()
    with torch.no_grad():
        module(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(x)
        for step in range(3):
            x.copy_(torch.randn(2, 6, 20))
            graph.replay()
            assert torch.equal(y, module(x))
        # The graph reads a changed weight: in train mode by itself, in eval mode after the next call.
        module.weight.mul_(-2)
        wanted = module(x).clone()
        graph.replay()
        assert torch.equal(y, wanted)


def test_graphs_outlive_training_and_many_shapes():
    module = Conv1dGroupNorm(6, 8, 4).cuda().eval()
    x = x_fill(2, 6, 20).cuda()
    with torch.no_grad():
        wanted = module(x).clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(x)
        module.train().eval()
        for length in range(30, 60):
            module(torch.randn(2, 6, length, device="cuda"))
        graph.replay()
        assert torch.equal(y, wanted)


def captured(work):
    """A graph of `work`, and how many of its kernels may start before the one before them has ended."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        work()
    major = torch.version.cuda.split(".")[0]
    runtime = ctypes.CDLL(f"libcudart.so.{major}")
    edges_of = runtime.cudaGraphGetEdges if int(major) >= 13 else runtime.cudaGraphGetEdges_v2
    raw, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t()
    assert edges_of(raw, None, None, None, ctypes.byref(count)) == 0
    nodes, data = (ctypes.c_void_p * count.value), (ctypes.c_ubyte * (8 * count.value))()
    # A graph of one kernel has no edges, which is an error to ask for.
    assert count.value == 0 or edges_of(raw, nodes(), nodes(), data, ctypes.byref(count)) == 0
    graph.instantiate()
    return graph, sum(kind == 1 for kind in data[2::8])  # cudaGraphDependencyTypeProgrammatic


def policy_block():
    module = Conv1dGroupNorm(512, 512, 8, 5, padding=2, activation="mish").cuda().eval()
    nn.init.normal_(module.gamma)
    x = torch.randn(1, 512, 16, device="cuda")
    line = module._lines[convnorm.functional.precision_for(x, None), False, False]
    path = torch.ops.convnorm.path(x, module.weight, None, module.gamma, module.beta, line)
    if not path.startswith("sm90_stream"):
        pytest.skip(f"{path} has no use for the promise of constant weights")
    return module, x


def test_kept_weights_are_promised_to_captured_graphs():
    module, x = policy_block()
    other = policy_block()[0]
    changed = policy_block()[0]
    source, buffer, side = torch.randn_like(changed.weight), torch.empty_like(x), torch.cuda.Stream()

    def work(out):
        out["run"] = other(module(x))
        out["after PyTorch's kernel"] = module(out["run"] * 0.5)
        buffer.copy_(out["run"])
        out["after a copy"] = other(buffer)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            elsewhere = other(x)
        again = module(x)
        torch.cuda.current_stream().wait_stream(side)
        out["after two streams"] = module(elsewhere + again)

    def function(weight, gamma, beta):
        return convnorm.functional.conv1d_group_norm(x, weight, num_groups=8, gamma=gamma, beta=beta, padding=2,
                                                     activation="mish")

    def work_with_packing(out):
        changed.weight.copy_(source)
        out["packed in the graph"] = changed(x)

    replayed, eager = {}, {}
    with torch.no_grad():
        changed(x)
        work(eager)
        graph, dependent = captured(lambda: work(replayed))
        assert dependent >= 2
        packing, none = captured(lambda: work_with_packing(replayed))
        assert none == 0
        assert captured(lambda: function(module.weight, module.gamma, module.beta))[1] == 0
        for _ in range(50):
            x.copy_(torch.randn_like(x))
            graph.replay()
            packing.replay()
            work(eager)
            eager["packed in the graph"] = function(source, changed.gamma, changed.beta)
            for name, each in eager.items():
                assert torch.equal(replayed[name], each), name
            changed.weight.zero_()


def test_a_graph_reads_the_weight_that_was_packed_just_before_it():
    module, x = policy_block()
    out = {}
    with torch.no_grad():
        module(x)
        graph, dependent = captured(lambda: out.update(y=module(module(x))))
        assert dependent == 1
        for _ in range(300):
            module.weight.mul_(-1)
            wanted = module(module(x))
            graph.replay()
            assert torch.equal(out["y"], wanted)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_call_waits_for_nothing_and_allocates_its_result_alone(mode):
    module, x = policy_block()
    with mode():
        module(x)
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        torch.cuda._sleep(200_000_000)
        busy = torch.cuda.Event()
        busy.record()
        y = module(x)
        assert not busy.query()
        assert torch.cuda.memory_stats()["allocation.all.allocated"] == before + 1
        torch.cuda.synchronize()
        assert torch.equal(y, module(x))


def test_b083_gradients_have_the_same_bits():
    given = leaves(on_gpu(s1()))
    wants = [each for each in given if each is not None]
    grad = torch.randn(2, 8, 20, device="cuda")
    with torch.backends.cudnn.flags(deterministic=True):
        first, *others = (torch.autograd.grad(call(S1_LINE + ",post=silu", given), wants, grad) for _ in range(20))
    assert all(torch.equal(one, other) for each in others for one, other in zip(each, first))


def test_b070_graph_of_forward_and_backward():
    given = leaves(on_gpu(s1()))
    wants = [each for each in given if each is not None]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            torch.autograd.grad(call(S1_LINE, given).square().sum(), wants)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = torch.autograd.grad(call(S1_LINE, given).square().sum(), wants)
    with torch.no_grad():
        given.x.copy_(torch.randn(2, 6, 20))
    graph.replay()
    for actual, wanted in zip(found, torch.autograd.grad(call(S1_LINE, given).square().sum(), wants)):
        expect_close(actual, wanted, 1e-4)


def test_b072_devices_are_named():
    for name in ("x", "weight", "bias", "gamma", "beta"):
        given = on_gpu(s1())
        said = "weight is on cuda:0, but x is on cpu" if name == "x" else f"{name} is on cpu, but x is on cuda:0"
        with pytest.raises(RuntimeError, match=said):
            call(S1_LINE, given._replace(**{name: getattr(given, name).cpu()}))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_b072_another_gpu_is_named():
    given = on_gpu(s1())
    with pytest.raises(RuntimeError, match="gamma is on cuda:1, but x is on cuda:0"):
        call(S1_LINE, given._replace(gamma=given.gamma.to("cuda:1")))


def test_b074_threads_of_mixed_shapes():
    cases = [(x_fill(1, 4, 63), 4), (x_fill(1, 512, 4096), 512), (x_fill(3, 32, 100), 32)]
    modules = [Conv1dGroupNorm(channels, 8, 4).cuda().eval() for _, channels in cases]
    inputs = [x.cuda() for x, _ in cases]
    faults = []
    with torch.no_grad():
        wanted = [module(x) for module, x in zip(modules, inputs)]
    torch.cuda.synchronize()

    def work(start):
        try:
            with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
                for i in range(start, start + 500):
                    y = modules[i % 3](inputs[i % 3])
                    if i % 10 == 0 and not torch.equal(y, wanted[i % 3]):
                        faults.append(i)
        except RuntimeError as error:
            faults.append(str(error))

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[:3]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_b067_other_devices():
    wanted = call(S1_LINE, on_gpu(s1(), "cuda:0"))
    for _ in range(3):
        for device in ("cuda:1", "cuda:0"):
            y = call(S1_LINE, on_gpu(s1(), device))
            assert y.device == torch.device(device) and torch.equal(y.cpu(), wanted.cpu())
            assert torch.cuda.current_device() == 0


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_b067_kept_weights_streams_and_graphs_of_another_device():
    module, x = policy_block()
    other, y = copy.deepcopy(module).to("cuda:1"), x.to("cuda:1")
    with torch.no_grad():
        wanted = module(x).cpu()
        for _ in range(3):  # packed and kept there, while the first device is the current one
            assert torch.equal(other(y).cpu(), wanted) and torch.equal(module(x).cpu(), wanted)
        stream = torch.cuda.Stream("cuda:1")
        stream.wait_stream(torch.cuda.current_stream("cuda:1"))
        with torch.cuda.stream(stream):
            aside = other(y)
        stream.synchronize()
        assert torch.equal(aside.cpu(), wanted)
        with torch.cuda.device(1):
            graph, out = torch.cuda.CUDAGraph(), {}
            with torch.cuda.graph(graph, stream=stream):
                out["y"] = other(y)
            y.mul_(-1)
            graph.replay()
            assert torch.equal(out["y"], other(y)) and not torch.equal(out["y"].cpu(), wanted)
            y.mul_(-1)
        moved = module.to("cuda:1")
        assert torch.equal(moved(y).cpu(), wanted)
        assert torch.equal(moved.to("cuda:0")(x).cpu(), wanted)
        assert torch.cuda.current_device() == 0


def test_weights_move_between_streams_and_go():
    x = x_fill(2, 6, 20).cuda()
    with torch.no_grad():
        for _ in range(20):
            module = Conv1dGroupNorm(6, 8, 4).cuda().eval()
            plain = nn.functional.group_norm(nn.functional.conv1d(x.double(), module.weight.double(), padding=1), 4)
            expect_close(module(x), plain, 1e-4)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                y = module(x)
            del module
            torch.cuda.current_stream().wait_stream(stream)
            expect_close(y, plain, 1e-4)


def test_reduce_overhead():
    module = Conv1dGroupNorm(16, 16, 4, activation="mish").cuda().eval()
    compiled = torch.compile(module, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(2, 16, 20, device="cuda")
            expect_close(compiled(x), module(x))


def test_reduce_overhead_through_the_backend():
    import convnorm.backend

    torch._dynamo.reset()
    model = nn.Sequential(nn.Conv1d(64, 64, 5, padding=2), nn.GroupNorm(8, 64), nn.Mish(),
                          nn.Conv1d(64, 64, 3), nn.GroupNorm(8, 64)).cuda().eval()
    compiled = torch.compile(model, mode="reduce-overhead", backend=convnorm.backend.convnorm)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(2, 64, 20, device="cuda")
            expect_close(compiled(x), model(x), 2e-3)


def test_fused_chains_are_timed_eagerly_and_in_graphs():
    model = nn.Sequential(nn.Conv1d(64, 64, 5, padding=2), nn.GroupNorm(8, 64), nn.Mish(),
                          nn.Conv1d(64, 64, 3, groups=64), nn.SiLU()).cuda().eval()
    x = torch.randn(2, 64, 16, device="cuda")
    with torch.no_grad():
        wanted = model(x)
        report = convnorm.fuse(model, (x,))
        assert all(entry.gain is not None and (entry.gain >= 1) == entry.fused for entry in report.entries), str(report)
        expect_close(model(x), wanted, 2e-3)


def test_a_forward_pass_that_costs_the_host_more_is_put_back(monkeypatch):
    model = nn.Sequential(nn.Conv1d(64, 64, 5, padding=2), nn.GroupNorm(8, 64), nn.Mish()).cuda().eval()
    monkeypatch.setattr(_timing, "times_as_fast", lambda *pair: 2.0)
    for gain, fused in ((0.9, False), (1.1, True)):
        monkeypatch.setattr(_timing.Pairs, "gain_of_calls", lambda *asked: gain)
        report = convnorm.fuse(model, torch.randn(2, 64, 16, device="cuda"))
        assert [(entry.fused, entry.gain) for entry in report.entries] == [(fused, 2.0 if fused else 0.9)]
        assert (type(model) is not nn.Sequential) == fused


@pytest.mark.parametrize("of_the_model, gain", [(1.0, 2.0), (0.9, 0.5)])
def test_chains_that_are_faster_in_graphs_stay_where_eager_calls_of_the_model_allow(monkeypatch, of_the_model, gain):
    model = nn.Sequential(nn.Conv1d(64, 64, 5, padding=2), nn.GroupNorm(8, 64), nn.Mish()).cuda().eval()
    monkeypatch.setattr(_timing, "times_as_fast", lambda *pair: 2.0 if pair[3] else 0.5)
    monkeypatch.setattr(_timing.Pairs, "gain_of_calls", lambda *asked: of_the_model)
    (entry,) = convnorm.fuse(model, torch.randn(2, 64, 16, device="cuda")).entries
    assert (entry.fused, entry.gain) == (gain > 1, gain) and (type(model) is not nn.Sequential) == entry.fused


def test_where_graphs_alone_count_nothing_is_put_back(monkeypatch):
    model = nn.Sequential(nn.Conv1d(64, 64, 5, padding=2), nn.GroupNorm(8, 64), nn.Mish()).cuda().eval()
    monkeypatch.setattr(_timing.Pairs, "gain_of_calls", lambda *asked: 0.1)
    asked = []
    monkeypatch.setattr(_timing, "times_as_fast", lambda *pair: asked.append(pair[2:]) or 2.0)
    assert len(convnorm.fuse(model, torch.randn(2, 64, 16, device="cuda"), timing="graph").fused) == 1
    assert asked == [(True, True)]


def test_the_clock_times_calls_and_graphs():
    x, y = torch.randn(64, 64, device="cuda"), torch.randn(4096, 4096, device="cuda")

    def host_bound():
        for _ in range(20):
            x.add_(1)

    def gpu_bound():
        y @ y

    assert _timing.times_as_fast(host_bound, gpu_bound, True, True) < 0.5
    assert _timing.times_as_fast(gpu_bound, host_bound, True, True) > 2
    assert abs(_timing.times_as_fast(host_bound, host_bound, True) - 1) < 0.2


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 3e-3), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("layer", [(64, 48, 4, 2, 1), (1024, 1024, 4, 2, 1), (96, 40, 7, 3, 2), (8, 8, 10, 5, 3, 1)])
def test_transposed_convolutions(layer, dtype, tolerance):
    module = nn.ConvTranspose1d(*layer).cuda().eval().to(dtype)
    assert _transposed.is_taken(module)
    keep_weight_of(module)
    for n, length in ((1, 8), (3, 17), (64, 4)):
        x = torch.randn(n, layer[0], length, device="cuda", dtype=dtype)
        with torch.no_grad():
            wanted = copy.deepcopy(module).double()(x.double())
            expect_close(_transposed.run(x, module), wanted, tolerance)


def test_a_transposed_convolution_under_capture():
    module = nn.ConvTranspose1d(512, 512, 4, 2, 1).cuda().eval()
    keep_weight_of(module)
    x = torch.randn(1, 512, 8, device="cuda")
    out = {}

    def work(name):
        out[name] = _transposed.run(x, module)

    def check(*graphs):
        wanted = copy.deepcopy(module).double()(x.double())
        for graph, name in graphs:
            graph.replay()
            expect_close(out[name], wanted, 3e-3)

    with torch.no_grad():
        packing, _ = captured(lambda: work("packing"))  # nothing is packed yet: that becomes part of the graph
        check((packing, "packing"))
        work("eager")
        kept, _ = captured(lambda: work("kept"))
        assert torch.equal(out["eager"], _transposed.run(x, module))
        for _ in range(20):
            module.weight.add_(0.01)
            module.bias.add_(0.5)
            x.normal_()
            work("eager")  # packed again, where the graph reads it
            check((packing, "packing"), (kept, "kept"))
            assert torch.equal(out["kept"], out["eager"]) and torch.equal(out["packing"], out["eager"])


def test_b070_a_fused_network_with_transposed_convolutions():
    model = nn.Sequential(nn.Conv1d(64, 512, 3, padding=1), nn.GroupNorm(8, 512), nn.Mish(),
                          nn.ConvTranspose1d(512, 256, 4, 2, 1), nn.Conv1d(256, 64, 1)).cuda().eval()
    x = torch.randn(1, 64, 8, device="cuda")
    plain = copy.deepcopy(model)
    report = convnorm.fuse(model, x, timing="graph")
    assert "transposed conv" in [entry.text for entry in report.fused], str(report)
    out = {}
    with torch.no_grad():
        model(x)
        graph, _ = captured(lambda: out.update(y=model(x)))
        for _ in range(5):
            for each in (model, plain):
                each[3].weight.mul_(-1.5)
            x.normal_()
            expect_close(model(x), plain(x), 1e-2)
            graph.replay()
            expect_close(out["y"], plain(x), 1e-2)


def test_precision_follows_the_switches():
    x = torch.zeros(1, 4, 4, device="cuda")
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert convnorm.functional.precision_for(x, None) == "highest"
    with torch.backends.cudnn.flags(allow_tf32=True):
        assert convnorm.functional.precision_for(x, None) == "high"
    assert convnorm.functional.precision_for(x.half(), None) == "high"


def test_autocast():
    given = on_gpu(s1())
    with torch.autocast("cuda", torch.float16):
        y = convnorm.functional.conv1d_group_norm(given.x, given.weight, given.bias, num_groups=4, gamma=given.gamma,
                                                  beta=given.beta, padding=1)
    assert y.dtype == torch.float16
    expect_close(y, expected(S1_LINE, s1()), 5e-3)
