"""What one case of a strategy holds and sends, in lines to read."""

from __future__ import annotations

import math
from collections.abc import Iterator

from conformance import lowerings
from conformance.backends import get_backend
from conformance.candidate import Candidate
from conformance.case import Case
from conformance.notation import ITEM_BYTES
from conformance.observe import Raised, compile_forward
from conformance.traffic import Flow, expected_flows, logical_axes


def explain(candidate: Candidate, case: Case, backend: str, *, hlo: bool = False) -> Iterator[str]:
    """Local shapes; collectives with axes, bytes and source line; lowerings; memory; the HLO."""
    contract = candidate.contract
    case.check(contract)
    source = get_backend(backend)
    source.require(case.devices)
    yield f"{candidate.name}  case {case}  on {source.name}"
    yield f"  {contract.signature}"
    yield ""
    yield "arrays, global and on each device"
    for spec in contract.signature.arrays:
        dtype = contract.dtype_of(spec.name, case.dtype)
        local = spec.local_shape(case.sizes)
        size = math.prod(local) * ITEM_BYTES[dtype]
        yield f"  {spec}: {dtype}{list(spec.shape(case.sizes))} -> {list(local)}, {size} B"
    program = compile_forward(candidate, case, source)
    yield ""
    if isinstance(program, Raised):
        yield f"the candidate {program}"
        return
    expected = expected_flows(contract.collectives, contract, case)
    reading = lowerings.read(program.module, logical_axes(case), expected, source.name)
    yield f"collectives expected{'' if expected else ': none'}"
    yield from (f"  {_with_wire(flow)}" for flow in expected)
    yield f"collectives observed{'' if reading.entries else ': none'}"
    yield from (f"  {_with_wire(e.flow)}  {e.source}" for e in reading.entries)
    yield from (f"  {text}" for text in reading.unknown)
    if reading.lowerings:
        yield "lowered"
        yield from (f"  {text}" for text in reading.lowerings)
    yield f"instructions read: {program.module.instruction_count}"
    if (memory := program.compiled.memory_analysis()) is not None:
        yield f"temporary memory: {memory.temp_size_in_bytes} B on each device"
    if hlo:
        yield ""
        yield program.text


def _with_wire(flow: Flow) -> str:
    return f"{flow} ({float(flow.wire_bytes):g} B on the wire)"
