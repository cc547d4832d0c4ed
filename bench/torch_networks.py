#!/usr/bin/env python3
"""Whole networks, unfused and fused, each in the same modes: eager, CUDA graph, torch.compile(mode="reduce-overhead"),
in the last by Inductor alone and through the backend "convnorm".

usage: torch_networks.py [--device cuda|cpu] [--dtype float32|float16|bfloat16] [--only TEXT] [--small] [--skip-compile]
       [--graphs-alone]

Each chain of the fused network is timed first, and left alone where it would be slower; those are printed.
Results are compared before anything is timed, in the precision class of PyTorch's defaults (TF32 for convolutions on
GPUs, where ours takes three 16-bit products), and again after. Times are medians; of CUDA graphs by events over many
replays.
The networks: the conditional U-net of a diffusion policy in tests/python; where diffusers is installed its UNet1DModel,
shaped as for reinforcement learning; where torchfcpe is, its pitch tracker on two seconds of sound, with random
weights.
"""
import argparse
import copy
import functools
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/python"))
import convnorm  # noqa: E402
import convnorm.backend  # noqa: E402
from networks import ConditionalUnet, value_function  # noqa: E402

# Of the largest result, after a whole network.
TOLERANCE = {torch.float32: 1e-2, torch.float16: 3e-2, torch.bfloat16: 2e-1}


def policy(widths, batch):
    inputs = torch.randn(batch, 16, 7), torch.full((batch,), 7.0), torch.randn(batch, 20)
    return (lambda: ConditionalUnet(7, 20, 128, widths)), inputs


def diffuser(batch):
    from diffusers import UNet1DModel

    build = functools.partial(value_function, UNet1DModel, 14, (32, 64, 128, 256), 65536)
    return build, (torch.randn(batch, 14, 32), torch.full((batch,), 3), False)


def pitch_tracker(batch):
    from torchfcpe.models import CFNaiveMelPE

    return (lambda: CFNaiveMelPE(128, 360, use_fa_norm=True, conv_only=True)), (torch.randn(batch, 200, 128),)


def networks(small):
    """(title, what gives a builder and its inputs)."""
    widths = {"16-32": (16, 32)} if small else {"256-512-1024": (256, 512, 1024), "512-1024-2048": (512, 1024, 2048)}
    for name, each in widths.items():
        for batch in (1, 64):
            yield f"policy {name}, batch {batch}", functools.partial(policy, each, batch)
    for name, build in (("UNet1DModel", diffuser), ("FCPE", pitch_tracker)):
        for batch in (1, 16):
            yield f"{name}, batch {batch}", functools.partial(build, batch)


def first(y):
    return y[0] if isinstance(y, tuple) else y


def timed(calls, device, rounds=40):
    """Median milliseconds of each call, waited for; all in turn, so that what slows the host slows all."""
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, its in zip(calls, times):
            start = time.perf_counter()
            call()
            if device == "cuda":
                torch.cuda.synchronize()
            its.append(time.perf_counter() - start)
    return [1e3 * statistics.median(its) for its in times]


def replayed(call):
    """Milliseconds of one replay of a graph of the call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    start.record()
    for _ in range(50):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 50


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32", choices=[str(each).removeprefix("torch.") for each in TOLERANCE],
                        help="of network and inputs")
    parser.add_argument("--only", default="", help="networks whose titles, with a comma at their end, hold this text")
    parser.add_argument("--small", action="store_true", help="a network that any machine computes in a moment")
    parser.add_argument("--skip-compile", action="store_true")
    parser.add_argument("--graphs-alone", action="store_true", help="timing='graph': fuse what is faster in graphs")
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    dtype = getattr(torch, options.dtype)
    print(f"PyTorch {torch.__version__}, convnorm {convnorm.version}, {name}, {options.dtype}")
    for title, describe in networks(options.small):
        if options.only not in f"{title},":
            continue
        torch.manual_seed(0)
        try:
            build, inputs = describe()
        except (ImportError, RuntimeError) as error:  # diffusers turns the one into the other
            print(f"\n{title}: left out, {str(error).splitlines()[-1]}")
            continue
        plain = build().to(options.device, dtype).eval()
        inputs = tuple(each.to(options.device, dtype if each.is_floating_point() else None)
                       if isinstance(each, torch.Tensor) else each for each in inputs)
        fused = copy.deepcopy(plain)
        report = convnorm.fuse(fused, inputs, timing="graph" if options.graphs_alone else None)
        with torch.no_grad():
            wanted = first(plain(*inputs))
            far = ((first(fused(*inputs)) - wanted).abs().max() / wanted.abs().max()).item()
            if not far < TOLERANCE[dtype]:
                raise SystemExit(f"{title}: the fused network's results are {far:.1e} of the largest away")
            print(f"\n{title}: {len(report.fused)} chains fused, {len(report.left_alone)} left; difference {far:.1e} "
                  "of the largest")
            for entry in {(entry.text, round(entry.gain or 0, 2)) for entry in report.left_alone}:
                print("  left:", *entry)
            calls = [functools.partial(model, *inputs) for model in (plain, fused)]
            for label, call, eager in zip(("PyTorch", "convnorm"), calls, timed(calls, options.device)):
                line = f"  {label:<9} eager {eager:8.3f} ms"
                if options.device == "cuda":
                    line += f"   graph {replayed(call):8.3f} ms"
                print(line, flush=True)
            if not options.skip_compile and options.device == "cuda":
                for backend in ("inductor", "convnorm"):
                    torch._dynamo.reset()
                    compiled = torch.compile(plain, mode="reduce-overhead", backend=backend)
                    for _ in range(3):
                        compiled(*inputs)
                    (milliseconds,) = timed([functools.partial(compiled, *inputs)], "cuda")
                    print(f"  torch.compile(mode='reduce-overhead', backend='{backend}') {milliseconds:8.3f} ms",
                          flush=True)
            if not ((first(fused(*inputs)) - wanted).abs().max() / wanted.abs().max()).item() < TOLERANCE[dtype]:
                raise SystemExit(f"{title}: results changed while they were timed")


if __name__ == "__main__":
    main()
