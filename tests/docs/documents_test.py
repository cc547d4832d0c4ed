"""Holds the documents to the program: snippets, problem lines, tables, links. tests/cli runs the commands.

usage: documents_test.py SOURCE_FOLDER CONVNORM {snippets,lines,operations,keys,links}
"""
import re
import subprocess
import sys
from pathlib import Path

SOURCE, CONVNORM = Path(sys.argv[1]), sys.argv[2]
DOCUMENTS = sorted(SOURCE.glob("*.md")) + sorted(SOURCE.glob("docs/*.md"))
faults = []


def expect(condition, fault):
    if not condition:
        faults.append(fault)


def blocks(document, languages):
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", document.read_text(), re.M | re.S):
        if language in languages:
            yield body


def explain(line):
    return subprocess.run([CONVNORM, "explain", line], capture_output=True, text=True, timeout=60)


def stripped_lines(text):
    return [line.strip() for line in text.strip().splitlines()]


def snippets():
    """Code shown in C or C++ stands, line by line, in an example, and these are compiled and run."""
    programs = [stripped_lines(path.read_text()) for path in SOURCE.glob("examples/*.c*")]
    found = 0
    for document in DOCUMENTS:
        for body in blocks(document, ("c", "cpp")):
            wanted = stripped_lines(body)
            found += 1
            expect(any(wanted == program[at : at + len(wanted)] for program in programs for at in range(len(program))),
                   f"{document.name}: no example holds this snippet:\n{body}")
    expect(found >= 2, "README.md shows no code in C and C++")


def lines():
    """Every problem line in the text parses and prints back."""
    found = 0
    for document in DOCUMENTS:
        for line in re.findall(r"\bn=\d+,c=\d+,[\w=.,:+()-]*\w\)?", document.read_text()):
            done = explain(line)
            found += 1
            expect(done.returncode == 0, f"{document.name}: {line}: {done.stderr}")
    expect(found >= 5, "the documents show fewer than five problem lines")


def table_rows(heading):
    section = (SOURCE / "docs/problem-line.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", section, re.M)]
    return rows[2:]


def operations():
    """The table of operations is src/epilogue/ops.def."""
    defined = [(name, "" if default == "NAN" else f"{float(default):g}", formula)
               for name, default, formula in re.findall(r'^CONVNORM_OP\(\w+, (\w+), \w+, ([^,]+), "(.*)"\)$',
                                                        (SOURCE / "src/epilogue/ops.def").read_text(), re.M)]
    documented = [tuple(row) for row in table_rows("Operations")]
    expect(defined and defined == documented, "the table of operations is not ops.def:\n"
           + "\n".join(map(str, sorted(set(defined) ^ set(documented)))))


def keys():
    """The table of keys has the program's keys in the program's order, with its defaults."""
    answer = explain("nonsense=1").stderr
    known = re.search(r"the keys are ([\w, ]+)", answer)
    rows = table_rows("Keys")
    expect(known and known[1].split(", ") == [row[0] for row in rows], f"the keys are others: {answer}")
    # A default that is spelled out is left out of the canonical line.
    start = "n=2,c=4,l=20,o=4,k=3,g=2"
    for key, _, _, default in rows:
        if default == "required":
            continue
        done = explain(f"{start},{key}={default}")
        expect(re.search(rf"^problem +{start}$", done.stdout, re.M), f"{key}={default} is no default: {done.stdout}{done.stderr}")


def links():
    """Relative links lead to files, and to headings in them."""
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text()):
            name, _, anchor = target.partition("#")
            path = document.parent / name if name else document
            expect(path.exists(), f"{document.name}: {target} leads nowhere")
            if anchor and path.exists():
                headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
                expect(anchor in [re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings],
                       f"{document.name}: {target} has no such heading")


globals()[sys.argv[3]]()
sys.exit("\n".join(faults) if faults else 0)
