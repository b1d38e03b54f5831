"""Verdicts as a table for people: strategy by check, then failures, then one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.verdict import Count, Verdict

_STYLE = {"conforms": "green", "lowered": "green", "failed": "bold red"}
_STYLE |= {"known failure": "yellow", "not run": "yellow"}


def print_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Prints in how many cases each check compared something, and in how many it failed."""
    checks = shown_checks(verdicts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=LEGEND, caption_justify="left")
    table.add_column("strategy", no_wrap=True)
    table.add_column("backend")
    table.add_column("cases", justify="right")
    for check in checks:
        table.add_column(check, justify="right")
    table.add_column("wire", justify="right")
    table.add_column("verdict")
    for verdict in verdicts:
        table.add_row(
            escape(verdict.candidate),
            verdict.backend,
            str(verdict.cases),
            *(_cell(verdict.counts.get(check, Count())) for check in checks),
            "-" if verdict.wire is None else f"{verdict.wire:.1f}x",
            f"[{_STYLE[verdict.word]}]{verdict.word}[/]",
        )
    console.print(table)
    _print_lowerings(verdicts, console)
    for verdict in verdicts:
        for why, count in verdict.known.items():
            console.print(
                escape(f"Known failure of {verdict.candidate}, in {count} programs: {why}"),
                soft_wrap=True,
            )
        for note in verdict.notes:
            console.print(escape(f"Note on {verdict.candidate}: {note}"), soft_wrap=True)
    for failure in (failure for verdict in verdicts for failure in verdict.failures):
        console.print(f"\n[bold red]FAILED[/] {escape(str(failure))}", soft_wrap=True)
    console.print(f"\n{escape(summary(verdicts))}", soft_wrap=True)


def shown_checks(verdicts: Sequence[Verdict]) -> list[str]:
    """The checks that apply to any of the verdicts, in their order."""
    return list(
        dict.fromkeys(
            check
            for verdict in verdicts
            for check, count in verdict.counts.items()
            if count.compared or count.reason or check not in ("memory", "refusal")
        )
    )


def summary(verdicts: Sequence[Verdict]) -> str:
    """One line: the verdicts in words, and by which means arrays were compared."""
    words = Counter(verdict.word for verdict in verdicts)
    numbers: Counter[str] = Counter()
    for verdict in verdicts:
        numbers.update(verdict.numbers)
    counted = ", ".join(f"{count} {word}" for word, count in words.items()) or "nothing ran"
    by = ", ".join(f"{count} {how}" for how, count in sorted(numbers.items())) or "none"
    return f"{counted}; arrays compared: {by}; {sum(v.seconds for v in verdicts):.1f} s"


def _print_lowerings(verdicts: Sequence[Verdict], console: Console) -> None:
    rows = [(v, text, count) for v in verdicts for text, count in v.lowerings.items()]
    if rows:
        console.print("Lowered (another physical form, proven to stand for the logical one):")
    for verdict, text, count in rows:
        console.print(f"  {escape(verdict.candidate)}: {escape(text)}  ({count} programs)")


def _cell(count: Count) -> str:
    if not count.compared:
        return "-"
    return (
        f"[bold red]{count.compared}/{count.failed}[/]" if count.failed else f"{count.compared}/0"
    )


LEGEND = (
    "compared/failed, in cases (collectives: in programs, forward and gradient); "
    "- where a check compared nothing; wire: bytes sent over the least that would do, at most"
)
