"""`verify`: a candidate and its contract in, cases drawn and observed, a verdict out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from conformance import checks, inputs, lowerings
from conformance.backends import Backend, get_backend
from conformance.candidate import Candidate, as_candidate
from conformance.case import Case
from conformance.checks import Finding
from conformance.collective import Collective
from conformance.contracts import FLOATS, Contract
from conformance.errors import UsageError
from conformance.inputs import Inputs, differentiated
from conformance.observe import Executable, Raised, compile_forward, compile_gradient
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
    programs: dict[Case, _Programs] = {}
    for case in cases:
        progress(case)
        drawn = inputs.draw(candidate.contract, case)
        if case.program not in programs:
            programs[case.program] = compiled = _compile(candidate, case, source, drawn)
            findings += _of_programs(candidate.contract, case, compiled, source)
        findings += _of_data(candidate.contract, case, programs[case.program], drawn)
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


@dataclass(frozen=True, slots=True)
class _Programs:
    """What is compiled once for a case: the forward program, and its gradient if it has one."""

    forward: Executable | Raised
    gradient: Executable | Raised | None


def _compile(candidate: Candidate, case: Case, backend: Backend, drawn: Inputs) -> _Programs:
    forward = compile_forward(candidate, case, backend)
    if isinstance(forward, Raised) or not drawn.gradients:
        return _Programs(forward, None)
    return _Programs(forward, compile_gradient(candidate, case, backend, drawn))


def _of_programs(
    contract: Contract, case: Case, programs: _Programs, backend: Backend
) -> Iterator[tuple[Case, str, Finding]]:
    """What one compile shows, whatever the data."""

    def judged(
        program: Executable, collectives: Sequence[Collective], which: str
    ) -> tuple[Case, str, Finding]:
        expected = expected_flows(collectives, contract, case)
        reading = lowerings.read(program.module, logical_axes(case), expected, backend.name)
        return case, "collectives", checks.check_collectives(expected, reading, which)

    forward, gradient = programs.forward, programs.gradient
    if isinstance(forward, Raised):
        yield case, "runs", Finding(1, (str(forward),))
        return
    yield judged(forward, contract.collectives, "")
    if isinstance(gradient, Executable) and contract.gradient is not None:
        yield judged(gradient, contract.gradient, "in the gradient, ")


def _of_data(
    contract: Contract, case: Case, programs: _Programs, drawn: Inputs
) -> Iterator[tuple[Case, str, Finding]]:
    """What one run shows."""
    forward, gradient = programs.forward, programs.gradient
    if isinstance(forward, Raised):
        return
    arrays = inputs.place(drawn.arrays, contract.signature.inputs, forward.mesh, case)
    returned = forward.run(*arrays)
    if isinstance(returned, Raised):
        yield case, "runs", Finding(1, (str(returned),))
        return
    specs = contract.signature.outputs
    yield case, "runs", Finding(1)
    yield case, "values", checks.check_values(specs, drawn.expected, returned)
    placement = checks.check_out_sharding(specs, case, forward.mesh, returned)
    yield case, "out_sharding", placement
    yield case, "replicas", checks.check_replicas(specs, returned)
    if isinstance(gradient, Raised):
        # Explicit axis types refuse cotangents that are not placed as the outputs are.
        reason = "the outputs have another sharding" if placement.problems else ""
        problems = () if reason else (f"the gradient {gradient}",)
        yield case, "gradients", Finding(len(problems), problems, reason=reason)
    elif gradient is not None:
        cotangents = inputs.place(drawn.cotangents, drawn.differentiable, gradient.mesh, case)
        pulled = gradient.run(cotangents, arrays)
        if isinstance(pulled, Raised):
            yield case, "gradients", Finding(1, (f"the gradient {pulled}",))
            return
        wanted = [contract.signature.inputs[i] for i in differentiated(contract, case)]
        yield (
            case,
            "gradients",
            checks.check_gradients(wanted, drawn.gradients, case, gradient.mesh, pulled),
        )
