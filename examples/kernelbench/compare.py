#!/usr/bin/env python3
"""Compares and times Model and ModelNew as that benchmark does: fresh inputs and outputs, several seeds, and checks
that a wrong kernel would not pass.

usage: compare.py [--device cpu|cuda] [--trials 5] [--runs 20] [--batch 16]
"""
import argparse
import time

import numpy as np
import torch

import model as problem

TOLERANCE = 1e-4  # absolute, and relative


def build(device, seed):
    """Both models from the same seed; parameters must come out bit for bit the same."""
    models = []
    for kind in (problem.Model, problem.ModelNew):
        torch.manual_seed(seed)
        models.append(kind(*problem.get_init_inputs()).to(device).eval())
    for name, parameter in models[0].named_parameters():
        if not torch.equal(parameter, dict(models[1].named_parameters())[name]):
            raise SystemExit(f"seed {seed}: {name} is initialised differently")
    return models


def fault(y, x, wanted):
    """What is wrong with y, or None. `wanted` is float64 and was computed before, from a copy of x."""
    if y.shape != wanted.shape or y.dtype != x.dtype:
        return f"shape {tuple(y.shape)} and dtype {y.dtype}"
    if not torch.isfinite(y).all():
        return "values that are not finite"
    excess = (y.double().cpu() - wanted).abs() - TOLERANCE * (1 + wanted.abs()) * wanted.std().clamp(max=1)
    return f"values that are {excess.max():.1e} too far off" if excess.max() > 0 else None


def check(model, reference, x):
    """Runs the model on a copy of x; what it returns must be new memory, and x must stay."""
    exact = problem.Model(*problem.get_init_inputs()).double()
    exact.load_state_dict({name: value.double().cpu() for name, value in reference.state_dict().items()})
    wanted = exact(x.double().cpu())
    given = x.clone()
    y = model(given)
    if y.untyped_storage().data_ptr() == given.untyped_storage().data_ptr() or not torch.equal(given, x):
        return "written or returned its input"
    return fault(y, x, wanted)


def mutants(reference):
    """Wrong kernels that the check must catch."""
    kept = {}

    def by_address(x):
        return kept.setdefault(x.shape, reference(x).clone())

    return {"nothing written": lambda x: torch.full_like(reference(x), float("nan")),
            "zeros": lambda x: torch.zeros_like(reference(x)),
            "an old answer": by_address,
            "its input zeroed": lambda x: reference(x.zero_())}


def milliseconds(model, device, runs):
    """Median over calls with inputs of their own."""
    inputs = [x.to(device) for x in (problem.get_inputs()[0] for _ in range(4))]
    times = []
    for run in range(runs + 3):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        model(inputs[run % 4])
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times[3:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=problem.batch_size)
    options = parser.parse_args()
    problem.batch_size = options.batch

    with torch.no_grad():
        for seed in range(options.trials):
            reference, ours = build(options.device, seed)
            wrong = check(ours, reference, problem.get_inputs()[0].to(options.device))
            if wrong:
                raise SystemExit(f"seed {seed}: {wrong}")
        print(f"{options.trials} seeds: equal within {TOLERANCE} absolute and relative")
        for name, mutant in mutants(reference).items():
            found = [check(mutant, reference, problem.get_inputs()[0].to(options.device)) for _ in range(2)]
            if not any(found):
                raise SystemExit(f"the check lets a wrong kernel pass: {name}")
            print(f"caught: {name}")
        theirs, mine = (milliseconds(each, options.device, options.runs) for each in (reference, ours))
    print(f"PyTorch {theirs:.3f} ms, convnorm {mine:.3f} ms, {theirs / mine:.2f} times as fast")


if __name__ == "__main__":
    main()
