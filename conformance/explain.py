"""What one case of a strategy holds and sends, in lines to read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from conformance import hlo, lowerings
from conformance.backends import Backend, get_backend
from conformance.candidate import Candidate
from conformance.case import Case
from conformance.notation import ITEM_BYTES
from conformance.observe import Executable, Raised, compile_forward
from conformance.traffic import Flow, expected_flows, logical_axes


def explain(
    candidate: Candidate, case: Case, backend: str, *, text: bool = False
) -> tuple[list[str], bool]:
    """Local shapes; collectives with axes, bytes and source line; lowerings; memory; the HLO.

    Returns the lines, and whether the candidate raised.
    """
    case.check(candidate.contract)
    source = get_backend(backend)
    source.require(case.devices)
    program = compile_forward(candidate, case, source)
    lines = list(_lines(candidate, case, source, program, text))
    return lines, isinstance(program, Raised)


def _lines(
    candidate: Candidate, case: Case, source: Backend, program: Executable | Raised, text: bool
) -> Iterator[str]:
    contract = candidate.contract
    yield f"{candidate.name}  case {case}  on {source.name}"
    yield f"  {contract.signature}"
    yield ""
    yield "arrays, global and on each device"
    for spec in contract.signature.arrays:
        dtype = contract.dtype_of(spec.name, case.dtype)
        local = spec.local_shape(case.sizes)
        size = math.prod(local) * ITEM_BYTES[dtype]
        yield f"  {spec}: {dtype}{list(spec.shape(case.sizes))} -> {list(local)}, {size} B"
    yield ""
    if isinstance(program, Raised):
        yield f"the candidate {program}"
        return
    expected = expected_flows(contract.collectives, contract, case)
    reading = lowerings.read(
        program.module, logical_axes(case), expected, source.name, program.written
    )
    yield f"collectives expected{'' if expected else ': none'}"
    yield from (f"  {_with_wire(flow)}" for flow in expected)
    yield f"collectives observed{'' if reading.entries else ': none'}"
    yield from (f"  {_with_wire(e.flow)}  {e.source}" for e in reading.entries)
    yield from (f"  {text}" for text in reading.unknown)
    if reading.lowerings:
        yield "lowered"
        yield from (f"  {text}" for text in reading.lowerings)
    yield f"schedule, of {program.module.instruction_count} instructions"
    yield from _schedule(program.module, program.module.entry, "  ")
    yield f"temporary memory: {program.temporary_bytes} B on each device"
    if text:
        yield ""
        yield program.text


def _schedule(module: hlo.Module, computation: hlo.Computation, indent: str) -> Iterator[str]:
    """What computes or sends, in the order in which it runs; fusions and calls opened."""
    for instruction in computation.instructions.values():
        opcode = instruction.opcode
        if opcode in ("fusion", "call", "while", "conditional"):
            inner = indent
            if opcode in ("while", "conditional"):
                yield f"{indent}{opcode}"
                inner = f"{indent}  "
            for name in itertools.chain(*instruction.called.values()):
                yield from _schedule(module, module.computation(name, instruction), inner)
        elif opcode not in _SILENT:
            source = hlo.source_of(module, instruction)
            yield f"{indent}{opcode:<16} {instruction.shape!s:<14} {source}".rstrip()
            if "replica_groups=" in instruction.attributes:
                groups = map(list, hlo.groups_of(module, instruction))
                yield f"{indent}{'':<16} among {' '.join(map(str, groups))}"


# What only names, moves or shapes a value.
_SILENT = {
    *("parameter", "constant", "iota", "partition-id", "tuple", "get-tuple-element"),
    *("bitcast", "copy", "convert", "broadcast"),
}


def _with_wire(flow: Flow) -> str:
    return f"{flow} ({float(flow.wire_bytes):g} B on the wire)"
