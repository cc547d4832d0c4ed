"""Every Python snippet that a document shows runs, one after the other."""
import pathlib
import re

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = ["README.md", "docs/python.md"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_snippets_run(name):
    torch._dynamo.reset()
    snippets = re.findall(r"^```python\n(.*?)^```$", (ROOT / name).read_text(), re.M | re.S)
    assert snippets
    scope = {}
    for snippet in snippets:
        exec(compile(snippet, name, "exec"), scope)


def test_the_report_shown_is_the_report_printed(capsys):
    text = (ROOT / "docs/python.md").read_text()
    first = re.search(r"^```python\n(.*?)^```$", text, re.M | re.S)[1]
    exec(compile(first, "python.md", "exec"), {})

    def without_times(shown):
        return re.sub(r"[\d.]+ times", "some times", shown)

    assert without_times(f"```\n{capsys.readouterr().out}```") in without_times(text)
