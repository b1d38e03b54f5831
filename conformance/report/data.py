"""A verdict as plain data, and back: what `--report FILE.json` holds, and what children send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.case import parse_case
from conformance.failures import Failure
from conformance.verdict import Count, Verdict

VERSION = 1
"""Of the format; another version means that a field has changed its meaning or is gone."""


def to_data(verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON values, its keys in a fixed order."""
    return {
        "candidate": verdict.candidate,
        "backend": verdict.backend,
        "verdict": verdict.word,
        "cases": verdict.cases,
        "seconds": round(verdict.seconds, 3),
        "counts": {
            check: {"compared": count.compared, "failed": count.failed, "reason": count.reason}
            for check, count in verdict.counts.items()
        },
        "numbers": dict(sorted(verdict.numbers.items())),
        "lowerings": dict(sorted(verdict.lowerings.items())),
        "known": dict(sorted(verdict.known.items())),
        "notes": list(verdict.notes),
        "wire": verdict.wire,
        "failures": [
            {
                "check": failure.check,
                "case": None if failure.case is None else str(failure.case),
                "message": failure.message,
                "replay": failure.replay_command,
            }
            for failure in verdict.failures
        ],
    }


def from_data(data: Mapping[str, Any]) -> Verdict:
    """The verdict that `to_data` was given."""
    candidate, backend = data["candidate"], data["backend"]
    return Verdict(
        candidate,
        backend,
        data["cases"],
        {check: Count(**count) for check, count in data["counts"].items()},
        data["numbers"],
        data["lowerings"],
        tuple(
            Failure(
                candidate,
                one["check"],
                None if one["case"] is None else parse_case(one["case"]),
                backend,
                one["message"],
            )
            for one in data["failures"]
        ),
        data["seconds"],
        data["known"],
        tuple(data["notes"]),
        data["wire"],
    )


def report_data(verdicts: Sequence[Verdict], machine: Mapping[str, str]) -> dict[str, Any]:
    """A whole report: the format's version, the machine with its versions, every verdict."""
    return {
        "version": VERSION,
        "machine": dict(machine),
        "verdicts": [to_data(verdict) for verdict in verdicts],
    }
