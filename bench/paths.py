"""Times every path that takes a problem, on the current GPU: what plans choose among.

usage: paths.py CONVNORM [--lists bench/shapes/layers.txt,bench/shapes/random.txt] [--only a,b] [--skip any_arch]
                [--min-time 0.01] [--seconds 50]

Prints `name<TAB>problem line<TAB>path<TAB>microseconds`, cold, by graph replay, for each path that accepts. Tests hold
the planner to a table of this form in bench/results: the path that it expects to be the fastest has to be.
"""
import argparse
import datetime
import json
import subprocess
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convnorm")
    parser.add_argument("--lists", default="bench/shapes/layers.txt,bench/shapes/random.txt")
    parser.add_argument("--only")
    parser.add_argument("--skip", default="")
    parser.add_argument("--min-time", default="0.01")
    parser.add_argument("--seconds", type=float, default=1e9, help="for each path and list: what is left then is left out")
    args = parser.parse_args()
    info = json.loads(subprocess.run([args.convnorm, "info", "--json"], capture_output=True, text=True).stdout)
    print(f"# {info['cuda']}, {datetime.date.today().isoformat()}: bench/paths.py", flush=True)
    for path in info["cuda_paths"]:
        if path in args.skip.split(","):
            continue
        for names in args.lists.split(","):
            time_path(args, path, names)


def time_path(args, path, names):
    command = [args.convnorm, "bench", "@" + names, "--device", "cuda", "--path", path, "--json", "--no-check",
               "--min-time", args.min_time]
    if args.only:
        command += ["--only", args.only]
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for row in process.stdout:
            record = json.loads(row)
            if "median_us" in record:
                print(record["name"], record["problem"], path, record["median_us"], sep="\t", flush=True)
            elif "refuses" not in record.get("error", ""):
                sys.exit(f"{' '.join(command)}: {row}")
            if time.monotonic() - begun > args.seconds:
                print(f"# {path}, {names}: ended after {args.seconds:g} s", flush=True)
                process.kill()
                break


if __name__ == "__main__":
    main()
