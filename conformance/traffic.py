"""What a program sends, in the user's own axes: one form for what is expected and observed.

Groups are matched by position in the logical mesh, never by the names that XLA prints. Axes of
size 1 are dropped on both sides, after which the match is unique.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from conformance.case import Case
from conformance.collective import Collective, Kind, runs, wire_bytes
from conformance.contracts import Contract

MeshAxes = Sequence[tuple[str, int]]
Group = tuple[int, ...]

ORDERED: frozenset[str] = frozenset({"all-gather", "reduce-scatter", "all-to-all"})
"""Collectives whose result depends on the order of the devices within a group."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes that every device gives to one kind of collective over `axes`, all runs together.

    `axes` are mesh axes, major first; None where the groups are no product of axes, and then
    `detail` shows them as positions. `detail` is else the reducer, or the shift of a permute.
    `runs` is how often it runs, None where that does not count.
    """

    kind: Kind
    axes: tuple[str, ...] | None
    group: int
    dtype: str
    detail: str | int | None
    bytes: Fraction
    runs: int | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[object, ...]:
        """What must agree, besides the bytes, for two flows to be the same."""
        return self.kind, self.axes, self.dtype, self.detail

    @property
    def wire_bytes(self) -> Fraction:
        """Bytes that one device sends, by the ring formulas."""
        return wire_bytes(self.kind, self.group, self.bytes)

    def __str__(self) -> str:
        over = f"over {', '.join(self.axes)}" if self.axes else f"over positions {self.detail}"
        by = f" by {self.detail}" if self.axes and self.detail not in (None, "sum") else ""
        if self.axes and isinstance(self.detail, int):
            back = self.detail - self.group if self.detail * 2 > self.group else self.detail
            by = f" by {back:+d}"
        return f"{self.kind}{by} {over}, {self.bytes} B of {self.dtype}"


def logical_axes(case: Case) -> MeshAxes:
    """The axes of the case's mesh under the names that the contract gives them."""
    return tuple(
        (axis.name if len(axis.parts) == 1 else f"{axis.name}[{index}]", size)
        for axis in case.mesh
        for index, size in enumerate(axis.parts)
    )


def expected_flows(
    collectives: Sequence[Collective], contract: Contract, case: Case
) -> tuple[Flow, ...]:
    """What a contract's list of collectives sends on the mesh and sizes of a case."""
    flows = []
    for collective in collectives:
        axes = _parts(collective, case)
        group = math.prod(size for _, size in axes)
        detail: str | int | None = collective.op
        if collective.shift is not None:
            detail = collective.shift % group
        operand = collective.operand.spec
        dtype = contract.travels_as(operand, case.dtype)
        often = runs(collective, case.sizes)
        total = collective.operand.local_bytes(case.sizes, dtype) * often
        if group > 1 and total and detail != 0:
            names = tuple(name for name, _ in axes)
            counted = None if collective.times is None else often
            flows.append(Flow(collective.kind, names, group, dtype, detail, total, counted))
    return tuple(flows)


def totals(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """The flows with the bytes of equal keys added up."""
    added: dict[tuple[object, ...], Flow] = {}
    for flow in flows:
        known = added.get(flow.key)
        if known is not None:
            counted = None if None in (flow.runs, known.runs) else flow.runs + known.runs  # type: ignore[operator]
            flow = replace(flow, bytes=flow.bytes + known.bytes, runs=counted)
        added[flow.key] = flow
    return tuple(added.values())


def match_groups(groups: Sequence[Group], mesh: MeshAxes, ordered: bool) -> tuple[str, ...] | None:
    """The mesh axes, major first, whose product the groups of positions are; None if no product.

    Where the order within a group does not count, axes come in the order of the mesh.
    """
    axes = [(name, size) for name, size in mesh if size > 1]
    shown = {group if ordered else tuple(sorted(group)) for group in groups}
    for chosen in _choices(axes, len(groups[0]), ordered):
        if {g if ordered else tuple(sorted(g)) for g in _expand(chosen, axes)} == shown:
            return tuple(name for name, _ in chosen)
    return None


def match_pairs(
    pairs: Sequence[tuple[int, int]], mesh: MeshAxes
) -> tuple[tuple[str, ...], int, int] | None:
    """Axes, their size, and the shift along them, of which the pairs are the cyclic permute."""
    axes = [(name, size) for name, size in mesh if size > 1]
    shown = set(pairs)
    for count in range(1, len(axes) + 1):
        for chosen in itertools.permutations(axes, count):
            size = math.prod(n for _, n in chosen)
            rings = list(_expand(chosen, axes))
            for shift in range(1, size):
                sent = {(ring[j], ring[(j + shift) % size]) for ring in rings for j in range(size)}
                if sent == shown:
                    return tuple(name for name, _ in chosen), size, shift
    return None


def coordinate(position: int, axes: Sequence[str], mesh: MeshAxes) -> int:
    """Where a device stands along `axes`, major first."""
    index = 0
    for axis in axes:
        stride = math.prod(size for _, size in mesh[[name for name, _ in mesh].index(axis) + 1 :])
        size = dict(mesh)[axis]
        index = index * size + position // stride % size
    return index


def _parts(collective: Collective, case: Case) -> list[tuple[str, int]]:
    """The mesh axes of a collective: in its own order, or the mesh's where order does not count."""
    logical = [(name, size) for name, size in logical_axes(case) if size > 1]
    if collective.kind == "all-reduce":
        return [axis for axis in logical if axis[0].partition("[")[0] in collective.axes]
    return [
        axis for role in collective.axes for axis in logical if axis[0].partition("[")[0] == role
    ]


def _choices(
    axes: Sequence[tuple[str, int]], group: int, ordered: bool
) -> Iterator[tuple[tuple[str, int], ...]]:
    choose = itertools.permutations if ordered else itertools.combinations
    for count in range(1, len(axes) + 1):
        for chosen in choose(axes, count):
            if math.prod(size for _, size in chosen) == group:
                yield chosen


def _expand(
    chosen: Sequence[tuple[str, int]], axes: Sequence[tuple[str, int]]
) -> Iterator[tuple[int, ...]]:
    """The groups of logical positions along the chosen axes, major first."""
    strides: dict[str, int] = {}
    stride = 1
    for name, size in reversed(axes):
        strides[name] = stride
        stride *= size

    def offsets(some: Sequence[tuple[str, int]]) -> list[int]:
        return [
            sum(index * strides[name] for index, (name, _) in zip(indices, some, strict=True))
            for indices in itertools.product(*(range(size) for _, size in some))
        ]

    others = [axis for axis in axes if axis not in chosen]
    for start in offsets(others):
        yield tuple(start + offset for offset in offsets(chosen))
