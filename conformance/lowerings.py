"""Which physical programs may stand for a logical collective, on which backend, by which proof.

A program is read into flows over the user's axes. Where a literal reading is not what the contract
expects, the rules here offer others, each only with its proof from the dataflow of the compiled
text; a rule that is used is reported with its cost. What no rule covers stays as it is, and fails.

- A reduce-scatter may be an all-reduce and a slice: the slice is its only use, and each device
  takes the block of its own coordinate on these very axes.
- An all-reduce over X and Y may be one over Y and then one over X: the second is the only use of
  the first, and both reduce alike.
- Several all-reduces may be one with a tuple of operands: each operand is a flow of its own.
- A bf16 (f8) collective may travel as f32 (f16), on cpu: the operand was converted from the narrow
  type, or every use converts to it, or XLA's own promotion pass made the reducer; and where the
  program that XLA was given writes the collective out, it writes it in the narrow type.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import get_args

from conformance import hlo
from conformance.collective import Kind
from conformance.notation import ITEM_BYTES
from conformance.traffic import (
    ORDERED,
    Flow,
    MeshAxes,
    coordinate,
    match_groups,
    match_pairs,
    totals,
)

_WIDENED_TO = {"f32": ("bf16", "f16"), "f16": ("f8e4m3fn", "f8e5m2")}
_WIDENING_BACKENDS = ("cpu",)
_MOST_STEPS = 20_000


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
    not be judged; `wire_bytes` are those that one device really sends, whatever the reading.
    """

    entries: tuple[Entry, ...]
    idle: int
    unknown: tuple[str, ...]
    wire_bytes: Fraction = Fraction(0)

    @property
    def lowerings(self) -> tuple[str, ...]:
        """Each lowering that was used, with its cost in bytes."""
        return tuple(dict.fromkeys(text for entry in self.entries for text in entry.lowered))


@dataclass(frozen=True, slots=True)
class _Part:
    """One operand of a collective: a flow, and the result that it leads to."""

    op: hlo.CollectiveOp
    index: int
    flow: Flow
    lowered: tuple[str, ...] = ()

    @property
    def element(self) -> int | None:
        return self.index if self.op.instruction.shape.dtype == "tuple" else None

    def is_used_only_by(self, other: _Part, dataflow: hlo.Dataflow) -> bool:
        uses = dataflow.uses(self.op.instruction, self.element)
        return [(use.instruction, use.operand) for use in uses] == [
            (other.op.instruction, other.index)
        ]


def read(
    module: hlo.Module,
    mesh: MeshAxes,
    expected: Sequence[Flow],
    backend: str,
    written: frozenset[hlo.Written] = frozenset(),
) -> Reading:
    """Reads a program's collectives, over the axes of its mesh, as the expected ones if it can.

    `written` are the collectives of the program that XLA was given, before it changed any type.

    The literal reading comes first. Where it disagrees with `expected`, each flow may be read by
    a rule of this backend, and the combination that agrees with what is expected is taken.
    """
    mesh = [axis for axis in mesh if axis[1] > 1]
    parts: list[_Part] = []
    idle = 0
    unknown: list[str] = []
    for op in hlo.collectives(module):
        where = f"{op.kind}{f' ({op.source})' if op.source else ''}"
        if op.kind not in get_args(Kind):
            unknown.append(f"{where} is no collective that a contract can list")
        elif op.times is None:
            place = "one branch of a conditional" if op.conditional else "a loop that data end"
            unknown.append(f"{where} runs an unknown number of times, in {place}")
        elif all(len(group) == 1 for group in op.groups) and all(a == b for a, b in op.pairs):
            idle += 1
        else:
            parts += [_Part(op, i, _literal(op, i, mesh)) for i in range(len(op.operands))]
    wire = sum((part.flow.wire_bytes for part in parts), Fraction(0))
    if backend in _WIDENING_BACKENDS:
        parts = [_as_written(part, written) for part in parts]
    literal = [Entry(part.flow, part.op.source, part.lowered) for part in parts]
    if set(totals(part.flow for part in parts)) == set(totals(expected)):
        return Reading(tuple(literal), idle, tuple(unknown), wire)
    dataflow = hlo.Dataflow(module)
    choices = [
        list(_forms(chain, mesh, dataflow, written if backend in _WIDENING_BACKENDS else None))
        for chain in _chains(parts, dataflow)
    ]
    chosen = _agreeing(choices, totals(expected)) or _nearest(choices, expected)
    entries = tuple(itertools.chain.from_iterable(chosen))
    return Reading(entries, idle, tuple(unknown), wire)


def _literal(op: hlo.CollectiveOp, index: int, mesh: MeshAxes) -> Flow:
    """What one operand sends, as it is printed."""
    shape = op.operands[index]
    total = Fraction(shape.bytes * (op.times or 1))
    axes: tuple[str, ...] | None
    detail: str | int | None
    if op.kind == "collective-permute":
        if found := match_pairs(op.pairs, mesh):
            axes, group, detail = found
        else:
            axes, group, detail = None, len(op.pairs), " ".join(f"{a}>{b}" for a, b in op.pairs)
    else:
        axes = match_groups(op.groups, mesh, op.kind in ORDERED)
        group = len(op.groups[0])
        detail = op.reducer if axes else " ".join(str(list(group)) for group in op.groups)
    kind: Kind = op.kind  # type: ignore[assignment]
    return Flow(kind, axes, group, _dtype(shape.dtype), detail, total, op.times)


def _dtype(printed: str) -> str:
    """XLA's name of a dtype in the notation's words."""
    if printed == "pred":
        return "bool"
    return f"i{printed[1:]}" if printed[0] == "s" else printed


def _chains(parts: Sequence[_Part], dataflow: hlo.Dataflow) -> Iterator[tuple[_Part, ...]]:
    """All-reduces that feed each other and nothing else, together; every other part alone."""
    following: dict[int, int] = {}
    for (i, first), (j, second) in itertools.permutations(enumerate(parts), 2):
        if (
            first.flow.kind == second.flow.kind == "all-reduce"
            and first.flow.axes
            and second.flow.axes
            and not set(first.flow.axes) & set(second.flow.axes)
            and replace(first.flow, axes=None, group=0) == replace(second.flow, axes=None, group=0)
            and first.op.conditional == second.op.conditional
            and first.is_used_only_by(second, dataflow)
        ):
            following[i] = j
    for start in range(len(parts)):
        if start not in following.values():
            chain = [start]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            yield tuple(parts[index] for index in chain)


def _forms(
    chain: Sequence[_Part],
    mesh: MeshAxes,
    dataflow: hlo.Dataflow,
    written: frozenset[hlo.Written] | None,
) -> Iterator[tuple[Entry, ...]]:
    """Every reading of a chain that has a proof, the literal one first."""
    yield from itertools.product(
        *(
            _forms_of_one(part, part.flow, part.lowered, part, mesh, dataflow, written)
            for part in chain
        )
    )
    if len(chain) > 1:
        axes = tuple(n for n, _ in mesh if any(n in (p.flow.axes or ()) for p in chain))
        group = 1
        for part in chain:
            group *= part.flow.group
        flow = replace(chain[0].flow, axes=axes, group=group)
        split = ", then ".join(", ".join(part.flow.axes or ()) for part in chain)
        ratio = sum(part.flow.wire_bytes for part in chain) / flow.wire_bytes
        text = f"all-reduce over {', '.join(axes)}, as all-reduces over {split}: {_times(ratio)}"
        texts = (*chain[0].lowered, text)
        for entry in _forms_of_one(chain[0], flow, texts, chain[-1], mesh, dataflow, written):
            yield (entry,)


def _forms_of_one(
    first: _Part,
    flow: Flow,
    lowered: tuple[str, ...],
    last: _Part,
    mesh: MeshAxes,
    dataflow: hlo.Dataflow,
    written: frozenset[hlo.Written] | None,
) -> Iterator[Entry]:
    """The readings of one flow that goes in at the part `first` and comes out of `last`."""
    source = last.op.source
    yield Entry(flow, source, lowered)
    narrow = () if written is None else _narrow(first, last, flow, dataflow, written)
    for one in narrow:
        yield Entry(one, source, (*lowered, _widened(one, flow)))
    if (scattered := _scattered(last, flow, mesh, dataflow)) is not None:
        ratio = flow.wire_bytes / scattered.wire_bytes
        over = ", ".join(scattered.axes or ())
        text = f"reduce-scatter over {over}, as all-reduce + slice: {_times(ratio)}"
        yield Entry(scattered, source, (*lowered, text))
        for one in narrow:
            both = replace(scattered, dtype=one.dtype, bytes=one.bytes)
            yield Entry(both, source, (*lowered, text, _widened(both, flow)))


def _widened(narrow: Flow, wide: Flow) -> str:
    over = ", ".join(narrow.axes or ())
    ratio = wide.bytes / narrow.bytes
    return f"{narrow.kind} of {narrow.dtype} over {over}, as {wide.dtype}: {_times(ratio)}"


def _times(ratio: Fraction) -> str:
    return f"{float(ratio):.1f}x the bytes"


def _scattered(part: _Part, flow: Flow, mesh: MeshAxes, dataflow: hlo.Dataflow) -> Flow | None:
    """The reduce-scatter that an all-reduce stands for, if each device keeps only its own block."""
    uses = dataflow.uses(part.op.instruction, part.element)
    if flow.kind != "all-reduce" or flow.axes is None or len(uses) != 1:
        return None
    taken = uses[0].instruction
    if taken.opcode != "dynamic-slice" or uses[0].operand != 0:
        return None
    whole, block = dataflow.module.operand(taken, 0).shape.dims, taken.shape.dims
    cut = [dim for dim, (a, b) in enumerate(zip(whole, block, strict=True)) if a != b]
    if len(cut) != 1 or block[cut[0]] * flow.group != whole[cut[0]]:
        return None
    (dim,) = cut
    starts = [
        dataflow.position_value(dataflow.module.operand(taken, 1 + dim), position)
        for position in range(dataflow.module.partitions)
    ]
    for axes in itertools.permutations(flow.axes):
        if all(
            start == coordinate(position, axes, mesh) * block[dim]
            for position, start in enumerate(starts)
        ):
            return replace(flow, kind="reduce-scatter", axes=axes)
    return None


def _narrow(
    first: _Part,
    last: _Part,
    flow: Flow,
    dataflow: hlo.Dataflow,
    written: frozenset[hlo.Written],
) -> tuple[Flow, ...]:
    """The flow in a narrower type, where nothing wider than that type was meant to be sent."""
    _, before = dataflow.origin(dataflow.module.operand(first.op.instruction, first.index))
    uses = dataflow.uses(last.op.instruction, last.element)
    promoted = any(
        name.endswith("_promoted") for name in first.op.instruction.called.get("to_apply", ())
    )
    found = []
    for dtype in _WIDENED_TO.get(flow.dtype, ()):
        converted = len(before) > 1 and before[-2] == dtype
        used_narrow = bool(uses) and all(use.dtypes[1:2] == (dtype,) for use in uses)
        promoted_from = promoted and dtype == _WIDENED_TO[flow.dtype][0]
        if (converted or used_narrow or promoted_from) and not _meant(first, dtype, written):
            ratio = Fraction(ITEM_BYTES.get(dtype, 1), ITEM_BYTES[flow.dtype])
            found.append(replace(flow, dtype=dtype, bytes=flow.bytes * ratio))
    return tuple(found)


def _written_as(part: _Part) -> hlo.Written:
    """What the program would have written, had it asked for this collective as it is printed."""
    shape = part.op.operands[part.index]
    elements = shape.size * (len(part.op.operands) if part.op.kind == "all-to-all" else 1)
    return hlo.Written(part.op.kind, shape.dtype, elements)


def _meant(part: _Part, narrow: str, written: frozenset[hlo.Written]) -> bool:
    """Whether the program itself asks for this collective in the wide type."""
    wide = _written_as(part)
    return wide in written and wide._replace(dtype=narrow) not in written


def _as_written(part: _Part, written: frozenset[hlo.Written]) -> _Part:
    """The part in the narrow type, where the program writes that one and not the wide one."""
    wide = _written_as(part)
    for dtype in _WIDENED_TO.get(part.flow.dtype, ()):
        if wide._replace(dtype=dtype) in written and wide not in written:
            ratio = Fraction(ITEM_BYTES.get(dtype, 1), ITEM_BYTES[part.flow.dtype])
            narrow = replace(part.flow, dtype=dtype, bytes=part.flow.bytes * ratio)
            return replace(part, flow=narrow, lowered=(_widened(narrow, part.flow),))
    return part


def _agreeing(
    choices: Sequence[Sequence[tuple[Entry, ...]]], expected: Sequence[Flow]
) -> list[tuple[Entry, ...]] | None:
    """One form of each chain, such that together they are what is expected; None if there is none.

    Depth first, and given up after many steps: real programs need about one a collective.
    """
    left = {flow.key: flow.bytes for flow in expected}
    chosen: list[tuple[Entry, ...]] = []
    steps = itertools.count()

    def search(depth: int) -> bool:
        if depth == len(choices):
            return not any(left.values())
        for form in choices[depth]:
            if next(steps) > _MOST_STEPS:
                return False
            for entry in form:
                left[entry.flow.key] = left.get(entry.flow.key, Fraction(0)) - entry.flow.bytes
            if all(left[entry.flow.key] >= 0 for entry in form):
                chosen.append(form)
                if search(depth + 1):
                    return True
                chosen.pop()
            for entry in form:
                left[entry.flow.key] += entry.flow.bytes
        return False

    return chosen if search(0) else None


def _nearest(
    choices: Sequence[Sequence[tuple[Entry, ...]]], expected: Sequence[Flow]
) -> list[tuple[Entry, ...]]:
    """Where nothing agrees: of each chain the form that is nearest to what is expected."""
    keys = {flow.key for flow in expected}
    dtypes = {flow.dtype for flow in expected}

    def distance(form: tuple[Entry, ...]) -> tuple[int, int]:
        return (
            sum(entry.flow.key not in keys for entry in form),
            sum(entry.flow.dtype not in dtypes for entry in form),
        )

    return [min(forms, key=distance) for forms in choices]
