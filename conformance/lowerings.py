"""Which physical programs may stand for a logical collective, on which backend, by which proof.

A program is read into flows over the user's axes. Where a literal reading is not what the contract
expects, the rules below offer others, each only with its proof from the dataflow of the compiled
text; a rule that is used is reported with its cost. What no rule covers stays as it is, and fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import get_args

from conformance import hlo
from conformance.collective import Kind
from conformance.traffic import (
    ORDERED,
    Flow,
    MeshAxes,
    match_groups,
    match_pairs,
    totals,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One flow of a program, where in the source it comes from, and how it was lowered."""

    flow: Flow
    source: str
    lowered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """All that a program sends, read as its contract asks where a proof allows it.

    `idle` counts collectives among groups of one, which move nothing; `unknown` says what could
    not be judged.
    """

    entries: tuple[Entry, ...]
    idle: int
    unknown: tuple[str, ...]

    @property
    def lowerings(self) -> tuple[str, ...]:
        """Each lowering that was used, with its cost in bytes."""
        return tuple(dict.fromkeys(text for entry in self.entries for text in entry.lowered))


def read(module: hlo.Module, mesh: MeshAxes, expected: Sequence[Flow], backend: str) -> Reading:
    """Reads a program's collectives, over the axes of its mesh, as the expected ones if it can.

    The literal reading comes first. Where it disagrees with `expected`, each flow may be read by
    a rule of this backend, and the combination that agrees with what is expected is taken.
    """
    dataflow = hlo.Dataflow(module)
    parts: list[_Part] = []
    idle = 0
    unknown: list[str] = []
    for op in hlo.collectives(module):
        where = f"{op.kind}{f' ({op.source})' if op.source else ''}"
        if op.kind not in get_args(Kind):
            unknown.append(f"{where} is no collective that a contract can list")
        elif op.times is None:
            unknown.append(f"{where} runs an unknown number of times, in a loop that data end")
        elif _moves_nothing(op):
            idle += 1
        else:
            parts += _parts(op, mesh, dataflow)
    alternatives = [_alternatives(part, module, mesh, dataflow, backend) for part in parts]
    merged = [_merged(...)]
    return Reading(tuple(chosen), idle, tuple(unknown))
