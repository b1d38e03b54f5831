"""One candidate on one case: what is compiled, what is run, and what every check finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance import checks, inputs, lowerings
from conformance.backends import Backend
from conformance.candidate import Candidate
from conformance.case import Case
from conformance.checks import Finding
from conformance.collective import Collective
from conformance.contracts import Contract
from conformance.inputs import Inputs, differentiated
from conformance.observe import (
    Executable,
    Raised,
    compile_forward,
    compile_gradient,
    count_events,
)
from conformance.traffic import expected_flows, logical_axes

Found = tuple[str, Finding]
"""The name of a check, and what it found."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What all checks found on one case.

    `of_program` is the same for all cases with one program, and is counted once.
    """

    case: Case
    of_program: tuple[Found, ...]
    of_data: tuple[Found, ...]

    def problems(self, check: str) -> tuple[str, ...]:
        """What one check has against the case."""
        found = (*self.of_program, *self.of_data)
        return tuple(text for name, finding in found if name == check for text in finding.problems)


class Examiner:
    """Examines cases of one candidate on one backend, and compiles each program once."""

    def __init__(self, candidate: Candidate, backend: Backend) -> None:
        self.candidate = candidate
        self.backend = backend
        self.compiled = 0
        self._programs: dict[Case, tuple[_Programs, tuple[Found, ...]]] = {}
        self._examined: dict[Case, Examination] = {}
        self._called_twice: set[str] = set()

    def examine(self, case: Case) -> Examination:
        """Compiles the programs of a case, unless they are there, and runs them on its data."""
        if case in self._examined:
            return self._examined[case]
        contract = self.candidate.contract
        drawn = inputs.draw(contract, case)
        if case.program not in self._programs:
            self.compiled += 1
            programs = _compile(self.candidate, case, self.backend, drawn)
            found = tuple(_of_programs(contract, case, programs, self.backend))
            self._programs[case.program] = programs, found
        programs, of_program = self._programs[case.program]
        of_data = (
            *_of_data(contract, case, programs, drawn),
            *self._retraces(case, programs, drawn),
        )
        self._examined[case] = Examination(case, of_program, of_data)
        return self._examined[case]

    def _retraces(self, case: Case, programs: _Programs, drawn: Inputs) -> Iterator[Found]:
        """Once for each kind of axes, since it costs a compile of its own."""
        if isinstance(programs.forward, Raised) or case.axis_types in self._called_twice:
            return
        self._called_twice.add(case.axis_types)
        if not hasattr(self.candidate.function, "trace"):
            yield "retraces", Finding(0, reason="it is not jitted, its caller will jit it")
            return
        specs, mesh = self.candidate.contract.signature.inputs, programs.forward.mesh
        arrays = inputs.place(drawn.arrays, specs, mesh, case)
        events = count_events(self.candidate, case, mesh, arrays)
        yield "retraces", checks.check_retraces(events)


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
) -> Iterator[Found]:
    """What one compile shows, whatever the data."""

    def judged(program: Executable, collectives: Sequence[Collective], which: str) -> Found:
        expected = expected_flows(collectives, contract, case)
        reading = lowerings.read(program.module, logical_axes(case), expected, backend.name)
        return "collectives", checks.check_collectives(expected, reading, which)

    forward, gradient = programs.forward, programs.gradient
    if isinstance(forward, Raised):
        yield "runs", Finding(1, (str(forward),))
        return
    yield judged(forward, contract.collectives, "")
    if isinstance(gradient, Executable) and contract.gradient is not None:
        yield judged(gradient, contract.gradient, "in the gradient, ")


def _of_data(contract: Contract, case: Case, programs: _Programs, drawn: Inputs) -> Iterator[Found]:
    """What one run shows."""
    forward, gradient = programs.forward, programs.gradient
    if isinstance(forward, Raised):
        return
    arrays = inputs.place(drawn.arrays, contract.signature.inputs, forward.mesh, case)
    returned = forward.run(*arrays)
    if isinstance(returned, Raised):
        yield "runs", Finding(1, (str(returned),))
        return
    specs = contract.signature.outputs
    yield "runs", Finding(1)
    yield "values", checks.check_values(specs, drawn.expected, returned)
    placement = checks.check_out_sharding(specs, case, forward.mesh, returned)
    yield "out_sharding", placement
    yield "replicas", checks.check_replicas(specs, returned)
    if isinstance(gradient, Raised):
        # Explicit axis types refuse cotangents that are not placed as the outputs are.
        reason = "the outputs have another sharding" if placement.problems else ""
        problems = () if reason else (f"the gradient {gradient}",)
        yield "gradients", Finding(len(problems), problems, reason=reason)
    elif gradient is not None:
        cotangents = inputs.place(drawn.cotangents, drawn.differentiable, gradient.mesh, case)
        pulled = gradient.run(cotangents, arrays)
        if isinstance(pulled, Raised):
            yield "gradients", Finding(1, (f"the gradient {pulled}",))
            return
        wanted = [contract.signature.inputs[i] for i in differentiated(contract, case)]
        yield (
            "gradients",
            checks.check_gradients(wanted, drawn.gradients, case, gradient.mesh, pulled),
        )
