"""Our CUDA backend beside PyTorch, layer by layer, in one run on one GPU.

usage: cuda_vs_torch.py CONVNORM [--layers bench/shapes/layers.txt] [--only a,b] [--dtypes f32,bf16,f16]
                        [--precision high] [--path P] [--compile] [--out RESULTS.json]

GPU time of one call, by replaying a CUDA graph of many, cold: x and y rotate over more than twice the second-level
cache (ours, `convnorm bench`, rotates its weights too). Every peer is compared with PyTorch in fp64 before it is timed;
"the peer" is the fastest that meets the tolerance of its element type, and what does not meet it is shown in brackets.
--check holds ours against the library's reference as well, on the CPU and at full size, which takes minutes for large
layers (`convnorm check` and the tests do it otherwise). --compile adds torch.compile, which takes some ten seconds a
layer. Needs torch with CUDA.
"""
import argparse
import datetime
import json
import subprocess
import sys
import tempfile

import torch

from torch_layers import TorchLayer, read_layers, with_dtype

TORCH_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
TOLERANCES = {"f32": 1e-4, "f16": 2e-3, "bf16": 1.6e-2}
COMPULSORY_BYTES = 2.2 * torch.cuda.get_device_properties(0).L2_cache_size if torch.cuda.is_available() else 0


def contestants(dtype, compiled):
    """(name, TF32 allowed, channels last, compiled) of what a user could take instead."""
    modes = [("", False)] if dtype != "f32" else [("", False), ("+tf32", True)]
    for suffix, tf32 in modes:
        yield f"eager{suffix}", tf32, False, False
        yield f"channels_last{suffix}", tf32, True, False
        if compiled:
            yield f"compile{suffix}", tf32, False, True


def graph_us(call, sets):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for x in sets[:2]:
            for _ in range(3):
                call(x)
    torch.cuda.current_stream().wait_stream(side)
    nodes = max(1, -(-32 // len(sets))) * len(sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(nodes):
            call(sets[i % len(sets)])
    times = []
    for _ in range(12):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / nodes)
    return sorted(times[2:])[5]


def worst_ratio(layer, x, y, tolerance):
    n = min(x.shape[0], 2)  # samples are independent
    twin = layer.in_double()
    for name in ("scale", "shift", "residual"):
        value = getattr(twin, name)
        setattr(twin, name, None if value is None else value[:n])
    plain = x[:n].double().squeeze(2) if layer.channels_last else x[:n].double()
    with torch.backends.cudnn.flags(enabled=True, benchmark=False):  # no search for the fastest fp64 convolution
        want = twin(plain)
    got = (y.squeeze(2) if layer.channels_last else y)[:n].double()
    return float(((got - want).abs() / (tolerance + tolerance * want.abs())).max())


def peers(line, dtype, compiled):
    result = {}
    for name, tf32, channels_last, use_compile in contestants(dtype, compiled):
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.manual_seed(0)
        try:
            with torch.inference_mode():
                layer = TorchLayer(line, TORCH_DTYPES[dtype], "cuda", channels_last)
                x = layer.draw_x()
                call = layer
                if use_compile:
                    torch._dynamo.reset()
                    call = torch.compile(layer.__call__, dynamic=False)
                y = call(x)
                ratio = worst_ratio(layer, x, y, TOLERANCES[dtype])
                bytes_of_call = (x.numel() + y.numel()) * x.element_size()
                count = int(min(max(COMPULSORY_BYTES // bytes_of_call + 1, 1), 64))
                sets = [x] + [layer.draw_x() for _ in range(count - 1)]
                result[name] = {"us": graph_us(call, sets), "worst_ratio": ratio, "meets": ratio <= 1}
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            result[name] = {"error": str(error).splitlines()[0][:160]}
        torch.cuda.empty_cache()
    return result


def ours(args, name, line, dtypes):
    """{dtype: record} of one layer, from one process, which may not hang the whole run."""
    lines = [with_dtype(line, dtype) + (f",precision={args.precision}" if dtype == "f32" else "") for dtype in dtypes]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.writelines(f"{name}:{dtype}\t{each}\n" for dtype, each in zip(dtypes, lines))
        f.flush()
        command = [args.convnorm, "bench", "@" + f.name, "--device", "cuda", "--json", "--min-time", "0.02"]
        command += [] if args.check else ["--no-check"]
        command += ["--path", args.path] if args.path else []
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
        except subprocess.TimeoutExpired:
            return {dtype: {"error": f"more than {args.limit} s"} for dtype in dtypes}
    records = [json.loads(row) for row in result.stdout.splitlines() if row.startswith("{")]
    if len(records) != len(lines):
        message = (result.stderr.strip().splitlines() or ["no message"])[-1]
        return {dtype: {"error": f"{len(records)} results for {len(lines)} lines: {message}"} for dtype in dtypes}
    return dict(zip(dtypes, records))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convnorm")
    parser.add_argument("--layers", default="bench/shapes/layers.txt")
    parser.add_argument("--only", default="default,default_silu,tts_block,dp_b64_512,dp_b256_1024")
    parser.add_argument("--dtypes", default="f32,bf16,f16")
    parser.add_argument("--precision", default="high")
    parser.add_argument("--path")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--limit", type=float, default=120, help="seconds that our timings of a layer may take")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    layers = read_layers(args.layers)
    names = list(layers) if args.only == "all" else args.only.split(",")

    torch.backends.cudnn.benchmark = True
    head = {"machine": torch.cuda.get_device_name(0), "date": datetime.date.today().isoformat(),
            "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "precision": args.precision,
            "command": "bench/cuda_vs_torch.py " + " ".join(a for a in sys.argv[2:] if "/" not in a)}
    print(" | ".join(f"{k}: {v}" for k, v in head.items()))
    dtypes = args.dtypes.split(",")
    print(f"{'layer':16s} {'type':4s} {'path':14s} {'ours us':>9s} {'peer us':>9s} {'ratio':>6s}  peer; others",
          flush=True)
    rows = []
    for name in names:
        mine = ours(args, name, layers[name], dtypes)
        for dtype in dtypes:
            record = mine[dtype]
            try:
                others = peers(layers[name], dtype, args.compile)
            except SystemExit as refused:  # a line that PyTorch has no operators for
                others = {"none": {"error": str(refused)}}
            meeting = {k: v["us"] for k, v in others.items() if v.get("meets")}
            peer = min(meeting, key=meeting.get) if meeting else ""
            us = record.get("median_us", float("nan"))
            texts = [f"{k} {v['us']:.1f}" if v.get("meets") else
                     f"[{k} {v['us']:.1f}, {v['worst_ratio']:.1f} x tolerance]" if "us" in v else f"{k}: {v['error']}"
                     for k, v in others.items() if k != peer]
            rows.append({"layer": name, "dtype": dtype, "ours": record, "torch": others, "peer": peer})
            peer_us = meeting.get(peer, float("nan"))
            failed = "OURS FAILED ITS CHECK" if record.get("pass") is False else record.get("error", "")
            print(f"{name:16s} {dtype:4s} {record.get('path', '-'):14s} {us:9.2f} {peer_us:9.2f} {peer_us / us:6.2f}"
                  f"  {peer}; {', '.join(texts)}  {failed}", flush=True)
    if args.out:
        with open(args.out, "w") as f:
            json.dump({**head, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
