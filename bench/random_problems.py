"""Draws problems of the kinds that real layers are of: what the planner's choice is held to beside those.

usage: random_problems.py [COUNT] [SEED]

Prints `name<TAB>problem line` for each, as bench/shapes has them; bench/shapes/random.txt is the output for 200 problems
from seed 1. Sizes are such that timing them all takes a GPU a minute.
"""
import random
import sys

MOST_BYTES = 12 << 20
MOST_PRODUCTS = 6e8


def pick(rng, kind):
    c = lambda *values: rng.choice(values)
    p = dict(n=c(1, 2, 4, 8), k=3, s=1, d=1, cg=1)
    if kind == "policy":  # few positions, wide channels
        p.update(n=c(1, 1, 2, 4, 16), c=c(256, 384, 512, 1024), l=c(4, 8, 12, 16), o=c(256, 512, 1024), k=c(1, 3, 5), g=8)
        p["p"] = p["k"] // 2
        p["post"] = c("mish", "silu", "mish+film", "mish+add")
    elif kind == "audio":  # few inputs under the kernel
        p.update(c=c(1, 1, 2, 4), l=c(4000, 9001, 16000, 32000), o=c(16, 32, 64, 128, 256), k=c(3, 5, 7, 8, 10), s=c(1, 1, 2, 4, 5))
        p["p"] = c(0, p["k"] // 2)
        p["g"] = c(1, 4, p["o"])
        p["post"] = c("gelu", "elu", "silu", "relu")
    elif kind == "sensors":  # several channels, short rows
        p.update(n=c(4, 8, 16), c=c(6, 8, 12, 20), l=c(250, 512, 1000, 1536), o=c(64, 128, 256), k=c(3, 3, 5), s=c(1, 2, 3), p=1)
        p["g"] = c(1, 8, p["o"] // 2)
        p["post"] = c("gelu", "relu", "silu")
    elif kind == "depthwise":
        p.update(c=c(80, 128, 256, 512), l=c(200, 400, 801, 1600, 3200), k=c(3, 3, 7, 15, 31), d=c(1, 1, 2, 8, 64, 128))
        p["o"] = p["cg"] = p["c"]
        if p["k"] > 3:
            p["d"] = 1
        p["p"] = p["d"] * (p["k"] - 1) // 2
        p["g"] = c(1, 1, 8, p["c"])
        p["post"] = c("relu", "silu", "none")
        p["pre"] = c("none", "none", "prelu")
    else:  # blocks of speech and music models
        p.update(c=c(64, 96, 128, 192, 256), l=c(100, 256, 600, 860, 1024, 2048), o=c(64, 128, 192, 256, 384), k=c(1, 3, 3, 5, 8),
                 s=c(1, 1, 1, 2, 4))
        p["p"] = p["k"] // 2
        p["d"] = c(1, 1, 1, 2) if p["s"] == 1 else 1
        p["g"] = c(1, 4, 8, 32)
        p["post"] = c("silu", "mish", "gelu", "relu", "leaky_relu(0.1)", "none")
    p["bias"] = c(0, 1)
    p["dtype"] = c("f32", "f32", "f16", "bf16")
    return p


def fits(p):
    room = p["l"] + 2 * p["p"] - p["d"] * (p["k"] - 1) - 1
    if room < 0 or p["o"] % p["g"] != 0:
        return False
    positions = p["n"] * (room // p["s"] + 1)
    width = 4 if p["dtype"] == "f32" else 2
    bytes_moved = width * (p["n"] * p["c"] * p["l"] + positions * p["o"] + p["o"] * p["c"] // p["cg"] * p["k"])
    return bytes_moved <= MOST_BYTES and positions * p["o"] * p["c"] // p["cg"] * p["k"] <= MOST_PRODUCTS


def line(p):
    defaults = dict(s=1, d=1, p=0, cg=1, bias=0, pre="none", post="none", dtype="f32")
    order = ("n", "c", "l", "o", "k", "s", "d", "p", "cg", "g", "bias", "pre", "post", "dtype")
    return ",".join(f"{key}={p[key]}" for key in order if key in p and defaults.get(key) != p[key])


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rng = random.Random(seed)
    kinds = ("policy", "audio", "sensors", "depthwise", "block", "block")
    print(f"# bench/random_problems.py {count} {seed}")
    for i in range(count):
        kind = kinds[i % len(kinds)]
        while True:
            p = pick(rng, kind)
            if fits(p):
                break
        print(f"{kind}{i}\t{line(p)}")


if __name__ == "__main__":
    main()
