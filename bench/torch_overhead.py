#!/usr/bin/env python3
"""What a call costs in Python: the operator, the function and the module beside a bare custom operator.

usage: torch_overhead.py [--device cuda|cpu] [--rounds N]

The bare operator is PyTorch's documented kind, torch.library.custom_op, with the same arguments and, as ours, gradients
of its own; it allocates its result and computes nothing. The problem is the smallest that does anything, x (1, 8, 4)
and weight (8, 8, 1), so that what is timed is the way to the kernel; its computing is part of our time all the same.
"weight kept" is the operator as modules call it in eval mode; the function, and the operator without a number for its
weight, pack it at every call. On a GPU ours launch their kernels within the time, the bare operator none: "bare and a
launch" is a second one that also launches PyTorch's smallest kernel.
All are timed in turn, in one process, on one thread; printed are medians over the rounds of the mean time of one call.
"""
import argparse
import statistics
import time
from typing import Optional

import torch
from torch import Tensor, nn

import convnorm
from convnorm.functional import conv1d_group_norm

CALLS = 200


@torch.library.custom_op("convnorm_bench::bare", mutates_args=())
def bare(x: Tensor, weight: Tensor, bias: Optional[Tensor], gamma: Optional[Tensor], beta: Optional[Tensor],
         attributes: str, weight_id: int = 0) -> Tensor:
    return x.new_empty((1, 8, 4))


@torch.library.custom_op("convnorm_bench::launching", mutates_args=())
def launching(x: Tensor, weight: Tensor, bias: Optional[Tensor], gamma: Optional[Tensor], beta: Optional[Tensor],
              attributes: str, weight_id: int = 0) -> Tensor:
    return x.new_empty((1, 8, 4)).fill_(1)


for operator in (bare, launching):
    operator.register_autograd(lambda ctx, grad: (None,) * 7,
                               setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:5]))


def candidates(device):
    module = convnorm.nn.Conv1dGroupNorm(8, 8, 2, 1, padding=0, device=device).eval()
    conv, norm = nn.Conv1d(8, 8, 1, bias=False, device=device), nn.GroupNorm(2, 8, device=device)
    x = torch.randn(1, 8, 4, device=device)
    operator = torch.ops.convnorm.conv1d_group_norm
    weight, gamma, beta = module.weight, module.gamma, module.beta
    line, kept = "g=2", convnorm.nn.WeightId()
    found = {"bare custom operator": lambda: bare(x, weight, None, gamma, beta, line)}
    if device == "cuda":
        found["bare and a launch"] = lambda: launching(x, weight, None, gamma, beta, line)
    return found | {
        "torch.ops, weight kept": lambda: operator(x, weight, None, gamma, beta, line, kept.number),
        "torch.ops, packing": lambda: operator(x, weight, None, gamma, beta, line),
        "functional": lambda: conv1d_group_norm(x, weight, num_groups=2, gamma=gamma, beta=beta),
        "module": lambda: module(x),
        "nn.Conv1d, nn.GroupNorm": lambda: norm(conv(x)),
    }


def microseconds(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return 1e6 * (time.perf_counter() - start) / CALLS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    torch.set_num_threads(1)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"PyTorch {torch.__version__}, convnorm {convnorm.version}, {name}, one thread; us a call, and times the "
          "bare operator's")
    modes = {"inference_mode": torch.inference_mode, "no_grad": torch.no_grad, "gradients recorded": torch.enable_grad}
    calls = candidates(options.device)
    found = {}
    for mode, context in modes.items():
        with context():
            for call in calls.values():
                call()
            rounds = []
            for _ in range(options.rounds):
                rounds.append({label: microseconds(call) for label, call in calls.items()})
                if options.device == "cuda":
                    torch.cuda.synchronize()  # not inside: what is timed is the host's work
        for label in calls:
            time_of_call = statistics.median(each[label] for each in rounds)
            ratio = statistics.median(each[label] / each["bare custom operator"] for each in rounds)
            found[label, mode] = f"{time_of_call:8.1f} {ratio:5.2f}x"
    print(" " * 26 + "".join(f"{mode:>20}" for mode in modes))
    for label in calls:
        print(f"{label:<26}" + "".join(f"{found[label, mode]:>20}" for mode in modes))


if __name__ == "__main__":
    main()
