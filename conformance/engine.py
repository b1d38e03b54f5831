"""`verify`: a candidate and its contract in, cases drawn and observed, a verdict out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from conformance.backends import get_backend
from conformance.candidate import Candidate, as_candidate
from conformance.case import Case, parse_case
from conformance.checks import LAWS
from conformance.contracts import FLOATS
from conformance.errors import UsageError
from conformance.examine import Examination, Examiner
from conformance.failures import Failure
from conformance.procedures import Procedure
from conformance.shrink import shrink
from conformance.verdict import Count, Verdict, judge

Profile = Literal["smoke", "default", "nightly"]

DRAWN: Mapping[str, int] = MappingProxyType({"smoke": 2, "default": 20, "nightly": 200})
"""How many cases a profile draws for each axis type, after the two fixed ones."""


SHRINKING_COMPILES = 25
"""How many new programs the search for the smallest failing case of one check may compile."""


def verify(
    candidate: Callable[..., Any] | Candidate,
    contract: Any = None,
    *,
    cases: Sequence[Case | str] | None = None,
    backend: str = "cpu",
    profile: Profile = "default",
    seed: int = 0,
    progress: Callable[[Case], None] = lambda case: None,
) -> Verdict:
    """Checks a candidate against its contract over many cases, in this process.

    `contract`: a `Contract`, or a function that has one; None for the candidate's own.
    `cases`: exactly these, as cases or as their ids; None for those of `profile` (smoke, default,
    nightly), drawn by `seed`.
    `progress`: called with each case before it is observed.

    All cases are swept first; then, unless `cases` are given, each failed check is shrunk by itself
    to the smallest case that fails it.

    Raises `UsageError` where there is no contract, a case does not fit it, or the backend cannot
    give the devices; whatever the candidate itself does wrong is in the verdict.
    """
    if not isinstance(candidate, Candidate):
        candidate = as_candidate(candidate, contract)
    source = get_backend(backend)
    chosen = [parse_case(one) if isinstance(one, str) else one for one in cases or ()]
    if cases is None:
        chosen = list(profile_cases(candidate, len(source.devices), profile, seed))
    examiner = Examiner(candidate, source)
    large = examiner.large_case
    if cases is None and large is not None and large.devices <= len(source.devices):
        chosen.append(large)
    for case in chosen:
        case.check(candidate.contract)
        source.require(case.devices)
    started = time.perf_counter()
    examined = []
    for case in chosen:
        progress(case)
        examined.append(examiner.examine(case))
    failures = tuple(
        _failure(examiner, examined, check, progress if cases is None else None)
        for check in _failed(examined)
    )
    seconds = time.perf_counter() - started
    return judge(candidate.name, source.name, examined, failures, seconds)


def _failed(examined: Sequence[Examination]) -> list[str]:
    return [check for check in LAWS if any(one.problems(check) for one in examined)]


def _failure(
    examiner: Examiner,
    examined: Sequence[Examination],
    check: str,
    progress: Callable[[Case], None] | None,
) -> Failure:
    """The smallest failure of one check: of the cases seen, and then shrunk if `progress`."""
    case = min((one.case for one in examined if one.problems(check)), key=_weight)
    if progress is not None and check not in ("retraces", "memory"):  # each has its own case
        allowed = examiner.compiled + SHRINKING_COMPILES

        def fails(simpler: Case) -> bool | None:
            if examiner.compiled >= allowed:
                return None
            progress(simpler)
            return bool(examiner.examine(simpler).problems(check))

        case = shrink(case, examiner.candidate.contract, fails)
    message = "; ".join(examiner.examine(case).problems(check))
    return Failure(examiner.candidate.name, check, case, examiner.backend.name, message)


def _weight(case: Case) -> tuple[int, int, int]:
    """Smaller is simpler: few devices, then small sizes, then a short id."""
    return case.devices, sum(size for _, size in case.dims), len(str(case))


def assert_conforms(candidate: Callable[..., Any], contract: Any = None, **keywords: Any) -> None:
    """Takes what `verify` takes; raises `AssertionError` with every failure unless all is well."""
    __tracebackhide__ = True
    verdict = verify(candidate, contract, **keywords)
    if not verdict.ok:
        raise AssertionError(str(verdict))


def profile_cases(
    candidate: Candidate, devices: int, profile: Profile, seed: int
) -> Iterator[Case]:
    """The cases of a profile on at most `devices` devices.

    Each program is run on exact data, on real data where it has floats, and on cancelling data
    where the contract says how it accumulates.
    """
    from conformance.generators import drawn_cases, fixed_cases

    if profile not in DRAWN:
        raise UsageError(f"profile {profile!r} is none of {', '.join(DRAWN)}")
    contract = candidate.contract
    for axis_types in contract.axis_types:
        limits = (contract, axis_types, devices, candidate.renames)
        for case in (*fixed_cases(*limits), *drawn_cases(*limits, DRAWN[profile], seed)):
            yield case
            if case.dtype in FLOATS:
                yield replace(case, data="real")
                if contract.accumulates is not None:
                    yield replace(case, data="cancelling")


def carry_out(entry: Procedure, backend: str) -> Verdict:
    """Runs a procedure, and counts the facts that it showed."""
    started = time.perf_counter()
    shown = 0
    failures: tuple[Failure, ...] = ()
    try:
        for _ in entry.facts():
            shown += 1
    except Exception as error:
        said = (
            str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        )
        failures = (Failure(entry.name, "facts", None, backend, said),)
    counts = {"facts": Count(shown + len(failures), len(failures))}
    seconds = time.perf_counter() - started
    return Verdict(entry.name, backend, 0, counts, {}, {}, failures, seconds)
