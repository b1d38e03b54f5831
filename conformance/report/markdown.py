"""Verdicts as a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.report.terminal import LEGEND, shown_checks, summary
from conformance.verdict import Count, Verdict


def markdown(verdicts: Sequence[Verdict], machine: Mapping[str, str]) -> str:
    """A table of compared/failed cases by check, then lowerings and failures."""
    checks = shown_checks(verdicts)
    head = ["strategy", "backend", "cases", *checks, "wire", "verdict"]
    rows = [head, ["---"] * len(head)]
    for verdict in verdicts:
        counts = (verdict.counts.get(check, Count()) for check in checks)
        cells = (f"{c.compared}/{c.failed}" if c.compared else "-" for c in counts)
        wire = "-" if verdict.wire is None else f"{verdict.wire:.1f}x"
        rows.append(
            [verdict.candidate, verdict.backend, str(verdict.cases), *cells, wire, verdict.word]
        )
    lines = ["# Conformance", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    lines += [LEGEND, ""]
    lowered = [(v, text, count) for v in verdicts for text, count in v.lowerings.items()]
    if lowered:
        lines += ["## Lowered", ""]
        lines += [f"- {v.candidate}: {text} ({count} programs)" for v, text, count in lowered]
        lines.append("")
    for failure in (failure for verdict in verdicts for failure in verdict.failures):
        lines += [f"## {failure.candidate}: {failure.check}", "", "```", str(failure), "```", ""]
    lines += [summary(verdicts), "", ", ".join(f"{k} {v}" for k, v in machine.items()), ""]
    return "\n".join(lines)
