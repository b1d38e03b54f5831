"""`verify`: a candidate and its contract in, cases drawn and observed, a verdict out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from conformance import checks, inputs, lowerings
from conformance.backends import Backend, get_backend
from conformance.candidate import Candidate, as_candidate
from conformance.case import Case
from conformance.checks import Finding
from conformance.contracts import FLOATS, Contract
from conformance.errors import UsageError
from conformance.observe import Executable, Raised, compile_forward
from conformance.traffic import expected_flows, logical_axes
from conformance.verdict import Verdict, judge

Profile = Literal["smoke", "default", "nightly"]

DRAWN: Mapping[str, int] = MappingProxyType({"smoke": 2, "default": 20, "nightly": 200})
"""How many cases a profile draws for each axis type, after the two fixed ones."""


def verify(
    candidate: Callable[..., Any] | Candidate,
    contract: Any = None,
    *,
    cases: Sequence[Case] | None = None,
    backend: str = "cpu",
    profile: Profile = "default",
    seed: int = 0,
    progress: Callable[[Case], None] = lambda case: None,
) -> Verdict:
    """Checks a candidate against its contract over many cases, in this process.

    `contract`: a `Contract`, or a function that has one; None for the candidate's own.
    `cases`: exactly these; None for those of `profile` (smoke, default, nightly), drawn by `seed`.
    `progress`: called with each case before it is observed.

    Raises `UsageError` where there is no contract, a case does not fit it, or the backend cannot
    give the devices; whatever the candidate itself does wrong is in the verdict.
    """
    if not isinstance(candidate, Candidate):
        candidate = as_candidate(candidate, contract)
    source = get_backend(backend)
    if cases is None:
        cases = tuple(profile_cases(candidate, source, profile, seed))
    for case in cases:
        case.check(candidate.contract)
        source.require(case.devices)
    started = time.perf_counter()
    findings: list[tuple[Case, str, Finding]] = []
    programs: dict[Case, Executable | Raised] = {}
    for case in cases:
        progress(case)
        if case.program not in programs:
            programs[case.program] = compile_forward(candidate, case, source)
            findings += _of_program(candidate.contract, case, programs[case.program], source)
        findings += _of_data(candidate.contract, case, programs[case.program])
    seconds = time.perf_counter() - started
    return judge(candidate.name, source.name, cases, findings, seconds)


def assert_conforms(candidate: Callable[..., Any], contract: Any = None, **keywords: Any) -> None:
    """Takes what `verify` takes; raises `AssertionError` with every failure unless all is well."""
    __tracebackhide__ = True
    verdict = verify(candidate, contract, **keywords)
    if not verdict.ok:
        raise AssertionError(str(verdict))


def profile_cases(
    candidate: Candidate, backend: Backend, profile: Profile, seed: int
) -> Iterator[Case]:
    """The cases of a profile: each program on exact data, and on real data where it has floats."""
    from conformance.generators import drawn_cases, fixed_cases

    if profile not in DRAWN:
        raise UsageError(f"profile {profile!r} is none of {', '.join(DRAWN)}")
    contract = candidate.contract
    for axis_types in contract.axis_types:
        limits = (contract, axis_types, len(backend.devices), candidate.renames)
        for case in (*fixed_cases(*limits), *drawn_cases(*limits, DRAWN[profile], seed)):
            yield case
            if case.dtype in FLOATS:
                yield replace(case, data="real")


def _of_program(
    contract: Contract, case: Case, program: Executable | Raised, backend: Backend
) -> Iterator[tuple[Case, str, Finding]]:
    """What one compile shows, whatever the data."""
    if isinstance(program, Raised):
        yield case, "runs", Finding(1, (str(program),))
        return
    expected = expected_flows(contract.collectives, contract, case)
    reading = lowerings.read(program.module, logical_axes(case), expected, backend.name)
    yield case, "collectives", checks.check_collectives(expected, reading)


def _of_data(
    contract: Contract, case: Case, program: Executable | Raised
) -> Iterator[tuple[Case, str, Finding]]:
    """What one run shows."""
    if isinstance(program, Raised):
        return
    drawn = inputs.draw(contract, case)
    placed = inputs.place(drawn.arrays, contract.signature.inputs, program.mesh, case)
    returned = program.run(*placed)
    if isinstance(returned, Raised):
        yield case, "runs", Finding(1, (str(returned),))
        return
    specs = contract.signature.outputs
    yield case, "runs", Finding(1)
    yield case, "values", checks.check_values(specs, drawn.expected, returned)
    yield case, "out_sharding", checks.check_out_sharding(specs, case, program.mesh, returned)
    yield case, "replicas", checks.check_replicas(specs, returned)
