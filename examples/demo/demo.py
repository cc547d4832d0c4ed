"""Auditory features of a recording in one fused call.

A gammatone filter bank, a model of the inner ear, is a Conv1d: one output channel per filter. GroupNorm with one group
per filter brings every band to the same loudness over the recording, and relu keeps the half wave that the hair cells
pass on. All three are one `convnorm run`; the script around it writes the filters, has the result checked and timed,
and draws it.

usage: demo.py [--convnorm PROGRAM] [--output FOLDER] RECORDING.wav

Several channels are mixed down, by filters that take the mean over them. Recordings of a tenth of a second and more.
"""
import argparse
import json
import math
import shlex
import struct
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

FILTERS = 64
LOWEST_HZ = 80
HIGHEST_HZ = 8000
KERNEL_SECONDS = 0.032  # 512 taps at 16 kHz
STEP_SECONDS = 1 / 20000  # between outputs: what the highest band needs
MOST_STEPS = 250_000  # of longer recordings the step grows
SHORTEST_SECONDS = 0.1


class Refusal(Exception):
    """One sentence for the user."""


def read_wav_header(path):
    """(channels, sampling rate in Hz, seconds). The samples themselves are left to convnorm."""
    try:
        size_of_file = Path(path).stat().st_size
        with open(path, "rb") as wav:
            head = wav.read(12)
            if head[:4] not in (b"RIFF", b"RF64") or head[8:] != b"WAVE":
                raise Refusal(f"{path} is no WAV file; convert it to one")
            frame_bytes = 0
            while len(chunk := wav.read(8)) == 8:
                name, size = struct.unpack("<4sI", chunk)
                size = min(size, size_of_file - wav.tell())  # a recorder that was cut off leaves any number here
                if name == b"fmt " and size >= 16:
                    _, channels, rate, _, frame_bytes = struct.unpack("<HHIIH", wav.read(14))
                    if channels < 1 or rate < 2000 or frame_bytes < 1:
                        raise Refusal(f"{path} has {channels} channels at {rate} Hz; give 1 or more at 2000 Hz or more")
                    size -= 14
                elif name == b"data" and frame_bytes:
                    return channels, rate, size // frame_bytes / rate
                wav.seek(size + size % 2, 1)
    except OSError as error:
        raise Refusal(f"{path} cannot be read ({error.strerror}); give the path of a WAV file") from None
    raise Refusal(f"{path} ends before its samples; the file is damaged")


def erb_scale(hz):
    """Place along the inner ear, in equivalent rectangular bandwidths (Glasberg and Moore, 1990)."""
    return 21.4 * np.log10(1 + 0.00437 * hz)


def centre_frequencies(rate):
    places = np.linspace(erb_scale(LOWEST_HZ), erb_scale(min(HIGHEST_HZ, 0.9 * rate / 2)), FILTERS)
    return (10 ** (places / 21.4) - 1) / 0.00437


def gammatone_bank(rate, channels):
    """Weights (FILTERS, channels, K): impulse responses of order 4, reversed in time because Conv1d correlates."""
    taps = round(KERNEL_SECONDS * rate)
    t = np.arange(taps) / rate
    hz = centre_frequencies(rate)[:, None]
    bandwidth = 1.019 * 24.7 * (0.00437 * hz + 1)
    response = t**3 * np.exp(-2 * np.pi * bandwidth * t) * np.cos(2 * np.pi * hz * t)
    # The lowest filters ring on at the end of the kernel: fade, or the cut would sound at all frequencies.
    fade = max(1, taps // 4)
    response[:, -fade:] *= np.cos(np.linspace(0, np.pi / 2, fade)) ** 2
    gain = np.abs(np.sum(response * np.exp(-2j * np.pi * hz * t), axis=1, keepdims=True))
    bank = (response / gain)[:, None, ::-1] / channels
    return np.repeat(bank, channels, axis=1).astype(np.float32)


def write_safetensors(path, tensors):
    """float32 only: the length of the header, the header as JSON, the bytes."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        block = np.ascontiguousarray(tensor, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path, name):
    blob = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", blob[:8])
    entry = json.loads(blob[8 : 8 + size])[name]
    begin, end = entry["data_offsets"]
    return np.frombuffer(blob[8 + size + begin : 8 + size + end], "<f4").reshape(entry["shape"])


def call(program, *arguments, statuses=(0,)):
    """Prints the command, runs it and returns what it printed."""
    print("$", shlex.join(["convnorm", *arguments]), flush=True)
    try:
        done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={"OMP_WAIT_POLICY": "passive", **os.environ})  # kind to whatever else runs
    except OSError as error:
        raise Refusal(f"{program} cannot be run ({error.strerror}); build it with `make cli`") from None
    if done.returncode not in statuses:
        raise Refusal((done.stderr + done.stdout).strip())
    return done.stdout


def compute(program, recording, folder):
    """The features (FILTERS, steps), the samples (channels, L) and the seconds between two steps."""
    channels, rate, seconds = read_wav_header(recording)
    if seconds < SHORTEST_SECONDS:
        raise Refusal(f"{recording} lasts {seconds:.3f} s; give a recording of {SHORTEST_SECONDS} s or more")
    bank = gammatone_bank(rate, channels)
    stride = max(1, round(rate * STEP_SECONDS), math.ceil(seconds * rate / MOST_STEPS))
    bank_file, tensors_file, features_file = (
        str(folder / name) for name in ("bank.safetensors", "tensors.safetensors", "features.npy"))
    write_safetensors(bank_file, {"weight": bank})
    print(f"{recording}: {seconds:.2f} s, {rate} Hz, {channels} channel{'s'[:channels > 1]}; {FILTERS} gammatone "
          f"filters of {bank.shape[2]} taps, an output every {stride / rate * 1e3:.3g} ms\n")

    # One norm group per filter. eps is far below the power of a quiet band, which the usual 1e-5 would drown.
    line = (f"n=1,c=auto,l=auto,o={FILTERS},k={bank.shape[2]},s={stride},p=causal,g={FILTERS},affine=0,eps=1e-12,"
            "post=relu")
    done = call(program, "run", line, "--input", str(recording), "--tensors", bank_file, "--output", features_file,
                "--save-tensors", tensors_file, "--json")
    problem = json.loads(done)["problem"]
    print()
    print(call(program, "explain", problem))
    # From here on with the very tensors of that run.
    judge(program, problem, tensors_file)
    return np.load(features_file)[0], read_safetensors(tensors_file, "x")[0], stride / rate, rate


def judge(program, problem, tensors_file):
    """Status 1 of check and bench is an answer too: the result, or the measurement, did not hold."""
    checked = json.loads(call(program, "check", problem, "--tensors", tensors_file, "--json", statuses=(0, 1)))
    if not checked["pass"]:
        raise Refusal(f"the result does not hold against the fp64 reference: {checked}")
    print(f"PASS: the largest error against the fp64 reference is {checked['max_abs_err']:.1e} "
          f"(allowed 1e-4 + 1e-4 |y|)\n")
    for _ in range(3):
        timed = json.loads(
            call(program, "bench", problem, "--tensors", tensors_file, "--unfused", "--json", statuses=(0, 1)))
        if "unfused_ratio" in timed:
            print(f"fused {timed['median_us'] / 1e3:.2f} ms ({timed['gflops']:.0f} GFLOP/s); convolution and norm as "
                  f"two steps {timed['unfused']['median_us'] / 1e3:.2f} ms, {timed['unfused_ratio']:.2f} times as "
                  "long\n")
            return
        fault = timed.get("fault") or timed.get("unfused", {}).get("fault", "the two steps did not pass their check")
        print(f"no times, other work disturbs the measurement: {fault}\n")


def draw(features, samples, step, rate, title, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # Means of the rectified wave over some 12 ms, a few periods of the lowest band, follow the loudness.
    per_column = max(1, round(0.004 / step), features.shape[1] // 1500)
    columns = features.shape[1] // per_column
    level = features[:, : columns * per_column].reshape(FILTERS, columns, per_column).mean(axis=2)
    if columns >= 5:
        level = np.apply_along_axis(np.convolve, 1, level, np.array([1, 2, 3, 2, 1]) / 9, mode="same")
    decibel = 20 * np.log10(level + 1e-6)
    seconds = samples.shape[1] / rate

    figure, (wave, image) = plt.subplots(
        2, 1, figsize=(11, 6.5), sharex=True, gridspec_kw={"height_ratios": [1, 3.2]}, layout="constrained")
    mono = samples.mean(axis=0)
    bin_size = max(1, mono.size // 4000)
    bins = mono[: mono.size // bin_size * bin_size].reshape(-1, bin_size)
    wave.fill_between(np.arange(len(bins)) * bin_size / rate, bins.min(axis=1), bins.max(axis=1), color="0.25", lw=0.4)
    wave.set_ylabel("Amplitude")
    wave.set_title(title)
    wave.grid(alpha=0.25)

    drawn = image.imshow(decibel, origin="lower", aspect="auto", cmap="magma", vmin=-30, vmax=12,
                         extent=(0, columns * per_column * step, -0.5, FILTERS - 0.5))
    centres = centre_frequencies(rate)
    ticks = [hz for hz in (100, 200, 500, 1000, 2000, 4000, 8000) if centres[0] <= hz <= centres[-1] * 1.001]
    image.set_yticks(np.interp(erb_scale(np.array(ticks)), erb_scale(centres), np.arange(FILTERS)), ticks)
    image.set_ylabel("Centre frequency of the filter (Hz)")
    image.set_xlabel("Time (s)")
    image.set_xlim(0, seconds)
    figure.colorbar(drawn, ax=image, pad=0.01, extend="both",
                    label="Level (dB; 0 is the band's own deviation)")
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description="Auditory features of a recording in one fused call.")
    parser.add_argument("recording", help="a WAV file")
    parser.add_argument("--convnorm", default="convnorm", help="the program")
    parser.add_argument("--output", default="demo-out", help="folder for the results")
    options = parser.parse_args()
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    features, samples, step, rate = compute(options.convnorm, options.recording, folder)
    title = f"{Path(options.recording).name}: gammatone filters, normalised per band, rectified, in one fused call"
    draw(features, samples, step, rate, title, folder / "features.png")
    print(f"demo: wrote {folder}/features.npy {features.shape}, {folder}/features.png, {folder}/bank.safetensors and "
          f"{folder}/tensors.safetensors")


if __name__ == "__main__":
    try:
        main()
    except Refusal as refusal:
        sys.exit(f"demo: {refusal}")
