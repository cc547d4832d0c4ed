"""Times every path that takes a problem, on the current GPU: what plans choose among.

usage: paths.py CONVNORM [--lists bench/shapes/layers.txt,bench/shapes/random.txt] [--skip any_arch] [--seconds 50]
                [--least-seconds 0.005]

Prints `name<TAB>problem line<TAB>path<TAB>microseconds`, cold, by graph replay, for each path that accepts: of as many
problems as there is time for, all paths of each. Tests hold the planner to a table of this form in bench/results: the path
that it expects to be the fastest has to be, or nearly so.
"""
import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time

AT_ONCE = 40  # problems: starting a process costs as much as timing one


def problems_of(names):
    with open(names, encoding="utf-8") as file:
        return [line for line in file if line.strip() and not line.startswith("#")]


def time_path(args, path, problems):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(problems)
        file.flush()
        command = [args.convnorm, "bench", "@" + file.name, "--device", "cuda", "--path", path, "--json", "--no-check",
                   "--min-time", args.least_seconds]
        result = subprocess.run(command, capture_output=True, text=True)
    for row in result.stdout.splitlines():
        record = json.loads(row)
        if "median_us" in record:
            print(record["name"], record["problem"], path, record["median_us"], sep="\t", flush=True)
        elif "refuses" not in record.get("error", ""):
            sys.exit(f"{' '.join(command)}: {row}\n{result.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convnorm")
    parser.add_argument("--lists", default="bench/shapes/layers.txt,bench/shapes/random.txt")
    parser.add_argument("--skip", default="")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--least-seconds", default="0.005", help="of timed work for each problem and path")
    args = parser.parse_args()
    begun = time.monotonic()
    info = json.loads(subprocess.run([args.convnorm, "info", "--json"], capture_output=True, text=True).stdout)
    print(f"# {info['cuda']}, {datetime.date.today().isoformat()}: bench/paths.py", flush=True)
    for names in args.lists.split(","):
        problems = problems_of(names)
        for first in range(0, len(problems), AT_ONCE):
            if time.monotonic() - begun > args.seconds:
                print(f"# ended after {args.seconds:g} s: {names} from its problem {first + 1} on is left out", flush=True)
                return
            for path in info["cuda_paths"]:
                if path not in args.skip.split(","):
                    time_path(args, path, problems[first:first + AT_ONCE])


if __name__ == "__main__":
    main()
