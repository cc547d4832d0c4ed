"""Our CPU backend beside PyTorch eager, layer by layer, in one run.

usage: cpu_vs_torch.py CONVNORM [--layers bench/shapes/layers.txt] [--only a,b] [--threads 1,2] [--out RESULTS.json]

Each layer is timed in turns: ours (a process of its own: `convnorm bench --hot --json`, which checks before it times),
PyTorch, and so on; the best median of the turns counts for both sides. Both run on buffers that stay where
they are, PyTorch with its weights as they come (it reorders them inside each call), ours with packed weights (packing
is reported apart by `convnorm bench`). The peaks are measured by our process in the same run. Needs torch.
"""
import argparse
import datetime
import json
import platform
import subprocess
import sys
import time

import torch

from torch_layers import TorchLayer, read_layers

# What the fp32 layers are to reach with two threads: ("peak", share of FMA peak) or ("torch", times as fast).
TARGETS = {
    "default": ("peak", 0.80), "tts_block": ("peak", 0.80), "demucs_enc2_n1": ("peak", 0.70),
    "w2v2_l0_b1": ("torch", 15.0), "tasnet_dw": ("torch", 5.0), "conformer_dw": ("torch", 5.0),
    "dp_b1_2048": ("torch", 4.0), "dp_b1_512": ("torch", 2.5),
}
DEFAULT_LAYERS = list(TARGETS)
TURNS = 3


def torch_median_us(line, threads, seconds, dtype=torch.float32):
    torch.set_num_threads(threads)
    layer = TorchLayer(line, dtype)
    x = layer.draw_x()
    times = []
    with torch.inference_mode():
        for _ in range(3):
            layer(x)
        end = time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            layer(x)
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e6


def ours(binary, line, threads, seconds, check):
    command = [binary, "bench", line, "--hot", "--json", "--threads", str(threads), "--min-time", str(seconds)]
    result = subprocess.run(command + ([] if check else ["--no-check"]), capture_output=True, text=True)
    if not result.stdout.strip():
        sys.exit(f"convnorm bench {line}: {result.stderr.strip()}")
    record = json.loads(result.stdout.splitlines()[0])
    if record.get("fault") or (check and not record.get("pass")):
        sys.exit(f"convnorm bench {line}: {record}")
    return record


def cpu_name():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convnorm")
    parser.add_argument("--layers", default="bench/shapes/layers.txt")
    parser.add_argument("--only", default=",".join(DEFAULT_LAYERS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--out")
    args = parser.parse_args()
    layers = read_layers(args.layers)
    layers["demucs_enc2_n1"] = layers["demucs_enc2"].replace("n=4", "n=1")
    names = list(layers) if args.only == "all" else args.only.split(",")

    head = {"machine": cpu_name(), "date": datetime.date.today().isoformat(), "torch": torch.__version__,
            "torch_capability": torch.backends.cpu.get_cpu_capability(),
            "command": "bench/cpu_vs_torch.py " + " ".join(a for a in sys.argv[2:] if "/" not in a)}
    print(" | ".join(f"{k}: {v}" for k, v in head.items()))
    print(f"{'layer':16s} thr {'path':10s} {'ours us':>10s} {'torch us':>10s} {'ratio':>6s} {'GFLOP/s':>8s} {'of peak':>7s}"
          f" {'GB/s':>6s} {'of bw':>6s} {'bf16/f32':>8s} {'f16/f32':>8s}  to reach")
    rows = []
    for threads in (int(t) for t in args.threads.split(",")):
        for name in names:
            line = layers[name]
            mine = {"f32": [], "bf16": [], "f16": []}
            peer = []
            for turn in range(TURNS):
                for dtype, records in mine.items():
                    records.append(ours(args.convnorm, line + ("" if dtype == "f32" else f",dtype={dtype}"), threads,
                                        args.seconds, check=turn == 0))
                peer.append(torch_median_us(line, threads, args.seconds))
            best = {dtype: min(records, key=lambda r: r["median_us"]) for dtype, records in mine.items()}
            us, torch_us = best["f32"]["median_us"], min(peer)
            peak = max(r["fma_gflops"] for r in mine["f32"])
            bandwidth = max(r["bandwidth_gbps"] for r in mine["f32"])
            row = {"layer": name, "problem": line, "threads": threads, "path": best["f32"]["path"],
                   "target": best["f32"]["target"], "us": us, "torch_us": torch_us, "ratio": torch_us / us,
                   "gflops": best["f32"]["gflops"], "fma_peak_gflops": peak, "of_peak": best["f32"]["gflops"] / peak,
                   "gbps": best["f32"]["gbps"], "bandwidth_gbps": bandwidth, "pack_us": best["f32"]["pack_us"],
                   "bf16_over_f32": best["bf16"]["median_us"] / us, "f16_over_f32": best["f16"]["median_us"] / us}
            kind, goal = TARGETS.get(name, ("", 0))
            reach = f"{goal:.0%} of peak" if kind == "peak" else f"{goal:g}x torch" if kind else ""
            rows.append(row)
            print(f"{name:16s} {threads:3d} {row['path']:10s} {us:10.1f} {torch_us:10.1f} {row['ratio']:6.2f}"
                  f" {row['gflops']:8.1f} {row['of_peak']:7.1%} {row['gbps']:6.1f} {row['gbps'] / bandwidth:6.1%}"
                  f" {row['bf16_over_f32']:8.2f} {row['f16_over_f32']:8.2f}  {reach}", flush=True)
    if args.out:
        with open(args.out, "w") as f:
            json.dump({**head, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
