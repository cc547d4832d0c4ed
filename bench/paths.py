"""Times every path that takes a problem, on the current GPU: what plans choose among.

usage: paths.py CONVNORM [--layers bench/shapes/layers.txt] [--only a,b] [--skip any_arch] [--min-time 0.01]

Prints `name<TAB>problem line<TAB>path<TAB>microseconds`, cold, by graph replay, for each path that accepts. Tests hold
the planner to a table of this form in bench/results: the path that it expects to be the fastest has to be.
"""
import argparse
import datetime
import json
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convnorm")
    parser.add_argument("--layers", default="bench/shapes/layers.txt")
    parser.add_argument("--only")
    parser.add_argument("--skip", default="")
    parser.add_argument("--min-time", default="0.01")
    args = parser.parse_args()
    info = json.loads(subprocess.run([args.convnorm, "info", "--json"], capture_output=True, text=True).stdout)
    print(f"# {info['cuda']}, {datetime.date.today().isoformat()}: bench/paths.py", flush=True)
    for path in info["cuda_paths"]:
        if path in args.skip.split(","):
            continue
        command = [args.convnorm, "bench", "@" + args.layers, "--device", "cuda", "--path", path, "--json", "--no-check",
                   "--min-time", args.min_time]
        if args.only:
            command += ["--only", args.only]
        result = subprocess.run(command, capture_output=True, text=True)
        for row in result.stdout.splitlines():
            record = json.loads(row)
            if "median_us" in record:
                print(record["name"], record["problem"], path, record["median_us"], sep="\t", flush=True)
            elif "refuses" not in record.get("error", ""):
                sys.exit(f"{' '.join(command)}: {row}\n{result.stderr}")


if __name__ == "__main__":
    main()
