"""The examples run."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_kernelbench():
    done = subprocess.run([sys.executable, "compare.py", "--trials", "2", "--runs", "3", "--batch", "2"],
                          cwd=ROOT / "examples/kernelbench", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("caught") == 4 and "times as fast" in done.stdout
