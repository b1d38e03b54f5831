"""The collectives that a contract lists, and the bytes that each puts on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from conformance.errors import CaseError, ContractError
from conformance.expressions import Expression
from conformance.notation import Operand, parse_operand

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
"""The HLO names of the collectives."""

Reducer = Literal["sum", "max", "min", "prod", "and", "or"]
_REDUCERS = ("sum", "max", "min", "prod", "and", "or")


@dataclass(frozen=True, slots=True)
class Collective:
    """One expected collective over `axes` (major first), of an operand in the notation.

    `op` is the reducer of reductions, `shift` how many places a permute sends along its axis, and
    `times` how often it runs, as an expression in axis sizes; where `times` is None it runs once
    or split in parts, and only its bytes are compared.
    """

    kind: Kind
    axes: tuple[str, ...]
    operand: Operand
    op: str | None = None
    shift: int | None = None
    times: Expression | None = None

    def __post_init__(self) -> None:
        if not self.axes:
            raise ContractError(f"{self.kind} of {self.operand}: name at least one mesh axis")
        if len(set(self.axes)) < len(self.axes):
            raise ContractError(f"{self.kind} over {self.axes}: each axis may stand once")
        if self.op is not None and self.op not in _REDUCERS:
            raise ContractError(
                f"{self.kind} over {self.axes}: op={self.op!r} is none of {', '.join(_REDUCERS)}"
            )

    def __str__(self) -> str:
        what = f" by {self.op}" if self.op not in (None, "sum") else ""
        what += f" by {self.shift:+d}" if self.shift is not None else ""
        often = f", {self.times} times" if self.times is not None else ""
        return f"{self.kind}{what} over {', '.join(self.axes)} of {self.operand}{often}"


def wire_bytes(kind: Kind, group: int, operand_bytes: Fraction) -> Fraction:
    """Bytes that one device sends in a ring of `group` devices, for an operand of these bytes.

    Source: Scaling Book, "Sharded Matrices and How to Multiply Them".
    """
    others = group - 1
    match kind:
        case "all-reduce":
            return 2 * operand_bytes * others / group
        case "all-gather":
            return operand_bytes * others
        case "reduce-scatter" | "all-to-all":
            return operand_bytes * others / group
        case "collective-permute":
            return operand_bytes


def all_reduce(axes: str | tuple[str, ...], operand: str, op: Reducer = "sum") -> Collective:
    """Expects an all-reduce over `axes`; each device gives one `operand` and gets the total."""
    return Collective("all-reduce", _axes(axes), parse_operand(operand), op=op)


def reduce_scatter(axes: str | tuple[str, ...], operand: str, op: Reducer = "sum") -> Collective:
    """Expects a reduce-scatter over `axes`; each device gives one `operand` and gets its block."""
    return Collective("reduce-scatter", _axes(axes), parse_operand(operand), op=op)


def all_gather(axes: str | tuple[str, ...], operand: str) -> Collective:
    """Expects an all-gather over `axes`; each device gives one `operand` and gets all of them."""
    return Collective("all-gather", _axes(axes), parse_operand(operand))


def all_to_all(axes: str | tuple[str, ...], operand: str) -> Collective:
    """Expects an all-to-all over `axes`; each device gives one `operand`, a block to each peer."""
    return Collective("all-to-all", _axes(axes), parse_operand(operand))


def permute(axis: str, operand: str, *, shift: int, times: str | None = None) -> Collective:
    """Expects a permute along `axis`, sending `operand` from j to j + `shift`, `times` times."""
    if not isinstance(shift, int) or shift == 0:
        raise ContractError(
            f"permute over {axis!r}: expected a whole number of places, and not 0; "
            f"given shift={shift!r}"
        )
    expression = None if times is None else Expression(times)
    return Collective(
        "collective-permute", (axis,), parse_operand(operand), shift=shift, times=expression
    )


def runs(collective: Collective, sizes: Mapping[str, int]) -> int:
    """How often the collective runs on axes of these sizes."""
    often = 1 if collective.times is None else collective.times.evaluate(sizes)
    if often < 0:
        raise CaseError(
            f"collective '{collective}': {collective.times} is {often}; give an expression that is "
            "never negative on the meshes of the contract"
        )
    return often


def _axes(axes: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(axes, str):
        return (axes,)
    if not isinstance(axes, tuple | list) or not all(isinstance(axis, str) for axis in axes):
        raise ContractError(f"axes: expected a name or a tuple of names; given {axes!r}")
    return tuple(axes)
