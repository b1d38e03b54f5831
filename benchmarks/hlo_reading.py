"""How fast HLO text is read: MB/s over all texts of the tests, and over one long program.

    python benchmarks/hlo_reading.py

Reading is parsing every instruction and collecting the collectives. Exits with 1 below the limit.
"""

import sys
import time
from pathlib import Path

from conformance.hlo import collectives, parse

DATA = Path(__file__).parent.parent / "tests" / "data" / "hlo"
LIMIT = 30.0
ROUNDS = 60


def rate(texts: list[str]) -> float:
    """Megabytes a second, the best of several rounds: the others were disturbed."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for text in texts:
            collectives(parse(text))
        best = min(best, time.perf_counter() - started)
    return sum(map(len, texts)) / best / 1e6


def long_program(text: str, copies: int) -> str:
    """One entry computation with its instructions many times over, under new names."""
    head, _, entry = text.partition("ENTRY ")
    opening, _, body = entry.partition("\n")
    lines = body.split("\n")
    root = next(i for i, line in enumerate(lines) if line.startswith("  ROOT"))
    one = "\n".join(lines[:root])
    names = {line.split(" = ")[0].strip() for line in lines[:root] if " = " in line}
    blocks = []
    for copy in range(copies):
        block = one
        for name in sorted(names, key=len, reverse=True):
            block = (
                block.replace(f"{name} ", f"{name}.c{copy} ")
                .replace(f"{name},", f"{name}.c{copy},")
                .replace(f"{name})", f"{name}.c{copy})")
            )
        blocks.append(block)
    return (
        f"{head}ENTRY {opening}\n" + "\n".join(blocks) + "\n" + one + "\n" + "\n".join(lines[root:])
    )


def main() -> int:
    """Prints the rates."""
    groups = {
        "cpu": [path.read_text() for path in sorted(DATA.glob("cpu*/*.hlo"))],
        "tpu": [path.read_text() for path in sorted(DATA.glob("tpu*/*.hlo"))],
    }
    source = (DATA / "tpu-v5e-2x4-0.12.0.1" / "mlp_gradient.hlo").read_text()
    groups["one long program"] = [long_program(source, 300)]
    slowest = float("inf")
    for name, texts in groups.items():
        found = rate(texts)
        slowest = min(slowest, found)
        size = sum(map(len, texts)) / 1e6
        print(f"{name:<18} {len(texts):>3} texts {size:6.2f} MB {found:7.1f} MB/s")
    print(f"limit {LIMIT} MB/s: {'held' if slowest >= LIMIT else 'missed'}")
    return int(slowest < LIMIT)


if __name__ == "__main__":
    sys.exit(main())
