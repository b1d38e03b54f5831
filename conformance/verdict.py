"""What the checks said of a candidate over all its cases."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from conformance.checks import LAWS, Finding
from conformance.examine import Examination
from conformance.failures import Failure

Word = Literal["conforms", "lowered", "known failure", "failed", "not run"]


@dataclass(frozen=True, slots=True)
class Count:
    """In how many cases a check compared something, and in how many of these it failed.

    Where it never compared anything, `reason` says why.
    """

    compared: int = 0
    failed: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checks said of one candidate on one backend.

    `counts` has a `Count` for each check; `numbers` tells how many arrays were compared exactly,
    within a bound, or without proof; `lowerings` names each physical form that stood for a logical
    collective, with the number of programs; `known` the failures that are not the candidate's;
    `notes` what was not judged; `wire` the most bytes that a program sends, over the least that
    would do; `failures` has one entry for each failed check, with the smallest
    of its cases.
    """

    candidate: str
    backend: str
    cases: int
    counts: Mapping[str, Count]
    numbers: Mapping[str, int]
    lowerings: Mapping[str, int]
    failures: tuple[Failure, ...]
    seconds: float
    known: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    wire: float | None = None

    @property
    def ok(self) -> bool:
        """Whether something was compared and nothing failed."""
        return self.word in ("conforms", "lowered", "known failure")

    @property
    def word(self) -> Word:
        """The verdict in a word."""
        if self.failures:
            return "failed"
        if not any(count.compared for count in self.counts.values()):
            return "not run"
        if self.known:
            return "known failure"
        return "lowered" if self.lowerings else "conforms"

    def __str__(self) -> str:
        blocks = [f"{self.candidate}: {self.word} ({self.cases} cases on {self.backend})"]
        blocks += map(str, self.failures)
        return "\n\n".join(blocks)


def judge(
    candidate: str,
    backend: str,
    examined: Sequence[Examination],
    failures: Sequence[Failure],
    seconds: float,
) -> Verdict:
    """Adds up what the checks found; what shows in a program is counted once for all its data."""
    found: dict[str, list[Finding]] = {check: [] for check in LAWS}
    programs = {one.case.program: one.of_program for one in examined}
    for check, finding in itertools.chain(*programs.values(), *(one.of_data for one in examined)):
        found[check].append(finding)
    counts = {}
    numbers: Counter[str] = Counter()
    lowered: Counter[str] = Counter()
    known: Counter[str] = Counter()
    notes: dict[str, None] = {}
    wire: Fraction | None = None
    for check, findings in found.items():
        compared = sum(1 for finding in findings if finding.compared)
        failed = sum(1 for finding in findings if finding.problems)
        reasons = Counter(finding.reason for finding in findings if not finding.compared)
        reason = reasons.most_common(1)[0][0] if reasons and not compared else ""
        counts[check] = Count(compared, failed, reason)
        for finding in findings:
            numbers.update(finding.numbers)
            lowered.update(finding.lowered)
            known.update(finding.known)
            wire = max(filter(None, (wire, finding.wire)), default=None)
            if finding.reason.endswith("not judged"):
                notes.setdefault(finding.reason)
    return Verdict(
        candidate,
        backend,
        len(examined),
        counts,
        numbers,
        lowered,
        tuple(failures),
        seconds,
        known,
        tuple(notes),
        None if wire is None else round(float(wire), 3),
    )
