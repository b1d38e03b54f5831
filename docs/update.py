"""Fills in the output of each command that a page shows: `python docs/update.py [--check]`.

A block of output follows a line `<!-- output: conformance ... -->`. With `--check` nothing is
written, and the exit code says whether a page would change. Output differs between versions of
XLA: pages show the newest supported JAX.
"""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from conformance.cli import main as conformance

ROOT = Path(__file__).resolve().parent.parent
# What says nothing of the program to a reader.
NOISE = re.compile(
    r", (?:metadata|frontend_attributes|channel_id)=(?:\{[^}]*\}|\d+)|, backend_config=\{.*\}"
)
BLOCK = re.compile(r"(<!-- output: conformance (.+?) -->\n```\n)(.*?)(```\n)", re.DOTALL)


def output_of(command: str) -> str:
    """What `conformance COMMAND` prints; `| A to B` keeps the lines that begin so, and between."""
    command, _, kept = command.partition(" | ")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        conformance(shlex.split(command))
    text = NOISE.sub("", printed.getvalue())
    if not kept:
        return text
    lines = text.splitlines(keepends=True)
    first, _, last = kept.partition(" to ")
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(first))
    end = next(i for i, line in enumerate(lines) if i > start and line.strip().startswith(last))
    return "".join(lines[start : end + 1])


def updated(page: str) -> str:
    """The page with every block of output made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}{output_of(found[2])}{found[4]}", page)


def main(arguments: list[str]) -> int:
    """Rewrites the pages, or with `--check` tells which are out of date."""
    stale = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        old = path.read_text()
        new = updated(old)
        if new != old:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(new)
    print(f"out of date: {', '.join(stale) or 'none'}")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
