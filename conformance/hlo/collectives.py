"""The collectives of a module: every one that the entry can reach, and how often each runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from conformance.hlo.dataflow import Dataflow
from conformance.hlo.error import HloError
from conformance.hlo.groups import Group, parse_groups, parse_pairs
from conformance.hlo.loops import trip_count
from conformance.hlo.opcodes import CALLING, COLLECTIVES, LOCAL, POINT_TO_POINT
from conformance.hlo.shapes import Shape
from conformance.hlo.text import Instruction, Module

_REDUCERS = {
    "add": "sum",
    "maximum": "max",
    "minimum": "min",
    "multiply": "prod",
    "and": "and",
    "or": "or",
}
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

    @property
    def what(self) -> tuple[object, ...]:
        """All that two collectives have in common which do the same."""
        return (
            self.kind,
            self.groups,
            self.pairs,
            self.operands,
            self.reducer or "",
            str(self.times),
        )


def collectives(module: Module) -> tuple[CollectiveOp, ...]:
    """Every collective that runs, in the order of the text, a start/done pair once.

    One that stands in a branch of a `conditional` counts once if every branch has the same ones,
    and else an unknown number of times. Raises `HloError` for a collective, or a form of its
    groups, that is not known.
    """
    try:
        return tuple(_within(module, module.entry.name, 1, Dataflow(module)))
    except RecursionError:
        raise HloError("a computation calls itself") from None


def _within(
    module: Module, computation: str, times: int | None, dataflow: Dataflow
) -> Iterator[CollectiveOp]:
    for instruction in module.computations[computation].instructions.values():
        opcode = instruction.opcode
        if opcode in LOCAL:
            continue
        if opcode in POINT_TO_POINT:
            raise instruction.error(f"{opcode!r} sends in a way that is not known")
        kind = opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            yield _collective(module, instruction, kind, times)
        elif opcode == "conditional":
            yield from _branches(module, instruction, times, dataflow)
        elif kind in CALLING:
            inside = times
            if opcode == "while":
                trips = trip_count(dataflow, instruction)
                inside = None if times is None or trips is None else times * trips
            for attribute, callees in instruction.called.items():
                for callee in callees:
                    found = module.computation(callee, instruction)
                    often = inside
                    # The condition is asked once more than the body runs.
                    if attribute == "condition" and inside is not None and times is not None:
                        often = inside + times
                    yield from _within(module, found.name, often, dataflow)


def _branches(
    module: Module, conditional: Instruction, times: int | None, dataflow: Dataflow
) -> Iterator[CollectiveOp]:
    branches = [
        list(_within(module, module.computation(name, conditional).name, times, dataflow))
        for name in itertools.chain(*conditional.called.values())
    ]
    alike = all(
        sorted(op.what for op in branch) == sorted(op.what for op in branches[0])
        for branch in branches
    )
    for branch in branches[:1] if alike else branches:
        for op in branch:
            yield replace(op, conditional=True, times=op.times if alike else None)


def _collective(
    module: Module, instruction: Instruction, kind: str, times: int | None
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
        False,
        instruction,
        source_of(module, instruction),
    )


def groups_of(module: Module, instruction: Instruction) -> tuple[Group, ...]:
    """The replica groups of a collective; raises `ValueError` for a form that is not known."""
    printed = _GROUPS.search(instruction.attributes)
    return parse_groups(printed[1] if printed else "", module.partitions)


def _reducer(module: Module, instruction: Instruction) -> str:
    (name, *more) = instruction.called.get("to_apply", ("",))
    if more:
        raise instruction.error("expected one computation in to_apply")
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
