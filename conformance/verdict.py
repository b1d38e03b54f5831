"""What the checks said of a candidate over all its cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from conformance.case import Case
from conformance.checks import LAWS, Finding
from conformance.failures import Failure

Word = Literal["conforms", "lowered", "failed", "not run"]


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
    collective, with the number of programs; `failures` has one entry for each failed check, with
    the smallest of its cases.
    """

    candidate: str
    backend: str
    cases: int
    counts: Mapping[str, Count]
    numbers: Mapping[str, int]
    lowerings: Mapping[str, int]
    failures: tuple[Failure, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether something was compared and nothing failed."""
        return self.word in ("conforms", "lowered")

    @property
    def word(self) -> Word:
        """The verdict in a word."""
        if self.failures:
            return "failed"
        if not any(count.compared for count in self.counts.values()):
            return "not run"
        return "lowered" if self.lowerings else "conforms"

    def __str__(self) -> str:
        blocks = [f"{self.candidate}: {self.word} ({self.cases} cases on {self.backend})"]
        blocks += map(str, self.failures)
        return "\n\n".join(blocks)


def judge(
    candidate: str,
    backend: str,
    cases: Sequence[Case],
    findings: Sequence[tuple[Case, str, Finding]],
    seconds: float,
) -> Verdict:
    """Adds up what the checks found; of each check's failures the smallest case is kept."""
    counts, failures = {}, []
    numbers: Counter[str] = Counter()
    lowered: Counter[str] = Counter()
    for check in LAWS:
        of_check = [(case, finding) for case, name, finding in findings if name == check]
        failed = [(case, finding) for case, finding in of_check if finding.problems]
        compared = sum(1 for _, finding in of_check if finding.compared)
        reasons = Counter(finding.reason for _, finding in of_check if not finding.compared)
        reason = reasons.most_common(1)[0][0] if reasons and not compared else ""
        counts[check] = Count(compared, len(failed), reason)
        for _, finding in of_check:
            numbers.update(finding.numbers)
            lowered.update(finding.lowered)
        if failed:
            case, finding = min(failed, key=lambda one: _weight(one[0]))
            failures.append(Failure(candidate, check, case, backend, "; ".join(finding.problems)))
    return Verdict(
        candidate, backend, len(cases), counts, numbers, lowered, tuple(failures), seconds
    )


def _weight(case: Case) -> tuple[int, int, int]:
    """Smaller is simpler: few devices, then small sizes, then a short id."""
    return case.devices, sum(size for _, size in case.dims), len(str(case))
