#!/usr/bin/env python3
"""The pitch of a recording, by a network with trained weights, fused and unfused.

usage: pitch.py RECORDING.wav [--output PREFIX] [--device cpu|cuda]

The torchfcpe package brings the network: its input stack is Conv1d -> GroupNorm -> LeakyReLU -> Conv1d, in front of a
conformer of pointwise convolutions with GLU and depthwise ones with SiLU. Each is timed on this recording and fused
where that is faster. Writes PREFIX.csv (time, pitch of both) and, with matplotlib, PREFIX.png. pip install convnorm
torchfcpe matplotlib.
"""
import argparse
import contextlib
import copy
import io
import time
import wave

import numpy as np
import torch

import convnorm


def read(path):
    """Samples (1, T, 1) in [-1, 1] of the first channel, and their rate."""
    with wave.open(path) as recording:
        if recording.getsampwidth() != 2:
            raise SystemExit(f"{path}: {8 * recording.getsampwidth()} bits a sample, but this example reads 16")
        samples = np.frombuffer(recording.readframes(recording.getnframes()), np.int16)
        first = samples.reshape(-1, recording.getnchannels())[:, 0].astype(np.float32) / 32768
        return torch.from_numpy(first)[None, :, None], recording.getframerate()


def load(device):
    import torchfcpe

    with contextlib.redirect_stdout(io.StringIO()):  # it talks about its defaults
        return torchfcpe.spawn_bundled_infer_model(device=device)


def milliseconds(calls, repeats=11):
    """Median times of calls, waited for, one after the other in every round."""
    def once(call):
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return 1e3 * np.median([[once(call) for call in calls] for _ in range(repeats + 1)][1:], axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording")
    parser.add_argument("--output", default="pitch", help="prefix of the files that are written")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    samples, rate = read(options.recording)
    model = load(options.device)
    with torch.no_grad():
        mel = model.wav2mel(samples.to(options.device), rate)
    network = model.model

    def pitch():
        return model.infer(samples, sr=rate).flatten().cpu().numpy()

    plain = pitch()
    unfused = copy.deepcopy(network)
    print(convnorm.fuse(network, (mel,)))
    fused = pitch()

    with torch.no_grad():
        turned = mel.transpose(1, 2)
        plain_stack, fused_stack, plain_all, fused_all = milliseconds([
            lambda: unfused.input_stack(turned), lambda: network.input_stack(turned), lambda: unfused(mel),
            lambda: network(mel)])

    seconds = np.arange(len(fused)) * model.get_hop_size_ms() / 1e3
    with open(f"{options.output}.csv", "w", encoding="ascii") as table:
        table.write("seconds,hertz,hertz_unfused\n")
        table.writelines(f"{t:.3f},{ours:.4f},{theirs:.4f}\n" for t, ours, theirs in zip(seconds, fused, plain))
    print(f"{len(fused)} frames, {np.count_nonzero(fused)} voiced, median {np.median(fused[fused > 0]):.1f} Hz"
          if fused.any() else f"{len(fused)} frames, none voiced")
    print(f"largest difference {np.abs(fused - plain).max():.6f} Hz")
    for part, plain_ms, fused_ms in (("input stack", plain_stack, fused_stack), ("network", plain_all, fused_all)):
        print(f"{part:<11} {plain_ms:.2f} ms unfused, {fused_ms:.2f} ms fused, {plain_ms / fused_ms:.2f} times as fast")
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    figure, axes = pyplot.subplots(figsize=(9, 3), layout="constrained")
    axes.plot(seconds, np.where(plain > 0, plain, np.nan), label="unfused", linewidth=4, alpha=0.4)
    axes.plot(seconds, np.where(fused > 0, fused, np.nan), label="fused")
    axes.set(xlabel="seconds", ylabel="Hz", title=options.recording)
    axes.legend()
    figure.savefig(f"{options.output}.png", dpi=120)


if __name__ == "__main__":
    main()
