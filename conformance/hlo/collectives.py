"""The collectives of a module: every one that the entry can reach, and how often each runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.hlo.dataflow import Dataflow
from conformance.hlo.groups import Group, parse_groups, parse_pairs
from conformance.hlo.loops import trip_count
from conformance.hlo.shapes import Shape
from conformance.hlo.text import Instruction, Module

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "collective-broadcast",
)
_LOOKS_COLLECTIVE = ("all-", "reduce-scatter", "collective-", "ragged-all")
# Most of all instructions: neither do they send anything nor call what might.
_PLAIN = frozenset(
    {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "copy", "convert"}
    | {"add", "subtract", "multiply", "divide", "maximum", "broadcast", "reshape", "dot"}
)
_REDUCERS = {
    "add": "sum",
    "maximum": "max",
    "minimum": "min",
    "multiply": "prod",
    "and": "and",
    "or": "or",
}
_CALLING = ("fusion", "call", "while", "conditional", "async-start", "custom-call")
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_SOURCE = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_OPERATION = re.compile(r'op_name="([^"]*)"')
# A mesh form may hold a comma and a list of devices of its own.
_GROUPS = re.compile(
    r"replica_groups=(mesh\[[^\]]*\](?:, ?device_ids=\(\S*\))? ?\{[^}]*\}|\S+?)(?:, |$)"
)


@dataclass(frozen=True, slots=True)
class CollectiveOp:
    """One collective as it is printed, with what is around it.

    `groups` (or `pairs`, for permutes) are logical positions; `operands` the shapes that each
    device gives; `times` the trip counts of the loops around it, multiplied, None where one is
    unknown; `conditional` tells that it stands in a branch.
    """

    kind: str
    groups: tuple[Group, ...]
    pairs: tuple[tuple[int, int], ...]
    operands: tuple[Shape, ...]
    reducer: str | None
    times: int | None
    conditional: bool
    instruction: Instruction
    source: str


def collectives(module: Module) -> tuple[CollectiveOp, ...]:
    """Every collective that runs, in the order of the text, a start/done pair once.

    Raises `HloError` for a collective, or a form of its groups, that is not known.
    """
    return tuple(_within(module, module.entry.name, 1, False, Dataflow(module)))


def _within(
    module: Module, computation: str, times: int | None, conditional: bool, dataflow: Dataflow
) -> Iterator[CollectiveOp]:
    for instruction in module.computations[computation].instructions.values():
        opcode = instruction.opcode
        if opcode in _PLAIN:
            continue
        if opcode.startswith(_LOOKS_COLLECTIVE):
            kind = opcode.removesuffix("-start")
            if kind in KINDS:
                yield _collective(module, instruction, kind, times, conditional)
            elif opcode.removesuffix("-done") not in KINDS:
                raise instruction.error(f"unknown collective {opcode!r}")
        elif opcode.startswith(_CALLING) and not opcode.endswith(("-done", "-update")):
            inside = times
            if opcode == "while":
                trips = trip_count(dataflow, instruction)
                inside = None if times is None or trips is None else times * trips
            branch = conditional or opcode == "conditional"
            for attribute, callees in instruction.called.items():
                for callee in callees:
                    found = module.computation(callee, instruction)
                    often = inside
                    # The condition is asked once more than the body runs.
                    if attribute == "condition" and inside is not None and times is not None:
                        often = inside + times
                    yield from _within(module, found.name, often, branch, dataflow)


def _collective(
    module: Module, instruction: Instruction, kind: str, times: int | None, conditional: bool
) -> CollectiveOp:
    groups: tuple[Group, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    try:
        if kind == "collective-permute":
            pairs = parse_pairs(instruction.attribute("source_target_pairs") or "")
        else:
            groups = groups_of(module, instruction)
    except ValueError as error:
        raise instruction.error(str(error)) from None
    operands = tuple(operand.shape for operand in module.operands(instruction))
    return CollectiveOp(
        kind,
        groups,
        pairs,
        operands,
        _reducer(module, instruction) if "reduce" in kind else None,
        times,
        conditional,
        instruction,
        source_of(module, instruction),
    )


def groups_of(module: Module, instruction: Instruction) -> tuple[Group, ...]:
    """The replica groups of a collective; raises `ValueError` for a form that is not known."""
    printed = _GROUPS.search(instruction.attributes)
    return parse_groups(printed[1] if printed else "", module.partitions)


def _reducer(module: Module, instruction: Instruction) -> str:
    (name,) = instruction.called.get("to_apply", ("",))
    root = module.computation(name, instruction).root
    return _REDUCERS.get(root.opcode, f"unknown:{root.opcode}")


def source_of(module: Module, instruction: Instruction) -> str:
    """Where in the user's code an instruction comes from: `mlp.py:31, in psum`."""
    frame = _FRAME.search(instruction.rest)
    place = module.frames.get(int(frame[1])) if frame else None
    if place is None:
        found = _SOURCE.search(instruction.rest)
        place = (found[1], int(found[2])) if found else None
    operation = _OPERATION.search(instruction.rest)
    within = operation[1].rpartition("/")[2] if operation else ""
    if place is None:
        return f"in {within}" if within else ""
    at = f"{place[0].rpartition('/')[2]}:{place[1]}"
    return f"{at}, in {within}" if within else at
