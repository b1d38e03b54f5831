"""One candidate on one case: what is compiled, what is run, and what every check finds."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from conformance import checks, inputs, lowerings
from conformance.backends import Backend
from conformance.candidate import Candidate
from conformance.case import Case, parse_case
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

if TYPE_CHECKING:
    import jax

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
        self._programs: dict[Case, _Programs] = {}
        self._examined: dict[Case, Examination] = {}
        self._called_twice: set[str] = set()

    def examine(self, case: Case) -> Examination:
        """Compiles the programs of a case, unless they are there, and runs them on its data."""
        if case not in self._examined and case == self.large_case:
            self._examined[case] = Examination(case, tuple(self._memory(case)), ())
        if case not in self._examined and self.candidate.contract.refused(case.sizes):
            self._examined[case] = Examination(case, tuple(self._refusal(case)), ())
        if case not in self._examined:
            contract = self.candidate.contract
            drawn = inputs.draw(contract, case)
            if case.program not in self._programs:
                self.compiled += 1
                forward = compile_forward(self.candidate, case, self.backend)
                self._programs[case.program] = _Programs(forward)
            programs = self._programs[case.program]
            of_data = _without_known(contract, case, self._of_data(case, programs, drawn))
            read = programs.gradient is not None
            if read not in programs.found:
                found = self._of_programs(case, programs)
                programs.found[read] = _without_known(contract, case, found)
            self._examined[case] = Examination(case, programs.found[read], of_data)
        return self._examined[case]

    @functools.cached_property
    def large_case(self) -> Case | None:
        """The case of the contract's large sizes, on which memory is judged; None without one."""
        contract = self.candidate.contract
        if contract.sizes is None:
            return None
        return replace(parse_case(contract.sizes), axis_types=contract.axis_types[0])

    def _memory(self, case: Case) -> Iterator[Found]:
        """The forward program at large sizes, compiled and not run; nothing else is asked of it."""
        contract = self.candidate.contract
        self.compiled += 1
        program = compile_forward(self.candidate, case, self.backend)
        if isinstance(program, Raised):
            yield "runs", Finding(1, (str(program),))
            return
        dtypes = [contract.travels_as(one.spec, case.dtype) for one in contract.memory]
        ceiling = [
            (one, one.local_bytes(case.sizes, dtype))
            for one, dtype in zip(contract.memory, dtypes, strict=True)
        ]
        yield "memory", checks.check_memory(ceiling, program.temporary_bytes)

    def _refusal(self, case: Case) -> Iterator[Found]:
        """Whether a case that the contract refuses is refused; nothing else is asked of it."""
        error = self.candidate.contract.refused(case.sizes) or ""
        self.compiled += 1
        program = compile_forward(self.candidate, case, self.backend)
        raised = program.message if isinstance(program, Raised) else None
        yield "refusal", checks.check_refusal(error, raised)

    def _of_programs(self, case: Case, programs: _Programs) -> Iterator[Found]:
        """What the compiled programs show, whatever the data."""
        contract = self.candidate.contract

        def judged(program: Executable, collectives: Sequence[Collective], which: str) -> Found:
            expected = expected_flows(collectives, contract, case)
            reading = lowerings.read(
                program.module, logical_axes(case), expected, self.backend.name, program.written
            )
            return "collectives", checks.check_collectives(expected, reading, which)

        forward, gradient = programs.forward, programs.gradient
        if isinstance(forward, Raised):
            yield "runs", Finding(1, (str(forward),))
            return
        yield judged(forward, contract.collectives, "")
        if isinstance(gradient, Executable) and contract.gradient is not None:
            yield judged(gradient, contract.gradient, "in the gradient, ")
        elif gradient is not None and contract.gradient is None:
            reason = "the gradient's collectives, which the contract does not list, are not judged"
            yield "collectives", Finding(0, reason=reason)

    def _of_data(self, case: Case, programs: _Programs, drawn: Inputs) -> Iterator[Found]:
        """What one run shows."""
        contract, forward = self.candidate.contract, programs.forward
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
        yield "out_sharding", checks.check_out_sharding(specs, case, forward.mesh, returned)
        yield "replicas", checks.check_replicas(specs, returned)
        yield from self._retraces(case, forward, arrays)
        if not drawn.gradients:
            return
        if not checks.fits(specs, drawn.expected, returned):
            reason = "the outputs have another structure, shape or dtype"
            yield "gradients", Finding(0, reason=reason)
            return
        if programs.gradient is None:
            programs.gradient = compile_gradient(self.candidate, case, self.backend, drawn)
        gradient = programs.gradient
        if isinstance(gradient, Executable):
            cotangents = inputs.place(drawn.cotangents, drawn.differentiable, gradient.mesh, case)
            pulled = gradient.run(cotangents, arrays)
        else:
            pulled = gradient
        if isinstance(pulled, Raised):
            yield "gradients", Finding(1, (f"the gradient {pulled}",))
            return
        wanted = [contract.signature.inputs[i] for i in differentiated(contract, case)]
        found = checks.check_gradients(wanted, drawn.gradients, case, forward.mesh, pulled)
        yield "gradients", found

    def _retraces(
        self, case: Case, forward: Executable, arrays: Sequence[jax.Array]
    ) -> Iterator[Found]:
        """Once for each kind of axes, since it costs a compile of its own."""
        if case.axis_types in self._called_twice:
            return
        self._called_twice.add(case.axis_types)
        if not hasattr(self.candidate.function, "trace"):
            yield "retraces", Finding(0, reason="it is not jitted, its caller will jit it")
            return
        events = count_events(self.candidate, case, forward.mesh, arrays)
        yield "retraces", checks.check_retraces(events)


@dataclass(slots=True)
class _Programs:
    """What is compiled once for a case; the gradient when the outputs are seen to fit.

    `found` is what the programs show, without the gradient (False) and with it.
    """

    forward: Executable | Raised
    gradient: Executable | Raised | None = None
    found: dict[bool, tuple[Found, ...]] = field(default_factory=dict)


def _without_known(contract: Contract, case: Case, found: Iterable[Found]) -> tuple[Found, ...]:
    """What was found, with the problems that the contract knows set apart."""

    idle = math.prod(axis.size for axis in case.mesh if axis.extra)
    sizes = {**case.sizes, "idle": idle}

    def sifted(check: str, finding: Finding) -> Finding:
        for known in contract.known:
            if known.check == check and known.where.evaluate(sizes):
                mine = tuple(text for text in finding.problems if not re.search(known.shows, text))
                if mine != finding.problems:
                    why = (*finding.known, known.why)
                    finding = replace(finding, problems=mine, known=why)
        return finding

    return tuple((check, sifted(check, finding)) for check, finding in found)
