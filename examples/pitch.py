#!/usr/bin/env python3
"""The pitch of a recording, by a network with trained weights, fused and unfused.

usage: pitch.py RECORDING.wav [--output PREFIX] [--device cpu|cuda]

The torchfcpe package brings the network: its input stack is Conv1d -> GroupNorm -> LeakyReLU -> Conv1d, in front of a
conformer. Writes PREFIX.csv (time, pitch of both) and, with matplotlib, PREFIX.png. pip install convnorm torchfcpe matplotlib.
"""
import argparse
import contextlib
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


def milliseconds(call, repeats=5):
    """Median time of a call, waited for."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times[1:]))


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
    stack = model.model.input_stack

    def measure():
        with torch.no_grad():
            pitch = model.infer(samples, sr=rate).flatten().cpu().numpy()
            return pitch, milliseconds(lambda: stack(mel.transpose(1, 2))), milliseconds(lambda: model.model(mel))

    plain, plain_stack, plain_all = measure()
    report = convnorm.fuse(model)
    print(report)
    fused, fused_stack, fused_all = measure()

    seconds = np.arange(len(fused)) * model.get_hop_size_ms() / 1e3
    with open(f"{options.output}.csv", "w", encoding="ascii") as table:
        table.write("seconds,hertz,hertz_unfused\n")
        table.writelines(f"{t:.3f},{ours:.4f},{theirs:.4f}\n" for t, ours, theirs in zip(seconds, fused, plain))
    print(f"{len(fused)} frames, {np.count_nonzero(fused)} voiced, median {np.median(fused[fused > 0]):.1f} Hz"
          if fused.any() else f"{len(fused)} frames, none voiced")
    print(f"largest difference {np.abs(fused - plain).max():.6f} Hz")
    print(f"input stack {plain_stack:.2f} ms unfused, {fused_stack:.2f} ms fused, {plain_stack / fused_stack:.2f} times as fast")
    print(f"network     {plain_all:.2f} ms unfused, {fused_all:.2f} ms fused, {plain_all / fused_all:.2f} times as fast")
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
