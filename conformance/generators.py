"""Cases for a contract: two fixed ones that see most, then any number drawn by Hypothesis.

A mesh of one axis, an axis of size 1 or 2, equal sizes and round sizes each hide a kind of fault;
what is drawn here avoids or varies each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st

from conformance.case import Axis, Case
from conformance.contracts import AxisTypes, Contract

_T = TypeVar("_T")
_EXTRA = "extra"
_MULTIPLES = (1, 2, 3, 5, 4, 7)


def fixed_cases(
    contract: Contract, axis_types: AxisTypes, devices: int, renames: bool
) -> tuple[Case, ...]:
    """The two cases that every profile opens with, on at most `devices` devices.

    The first has a mesh of 2 x 3 and odd blocks; the second 4 x 2, devices shuffled and, where
    the candidate can take it, axes renamed. Sizes grow, up to eightfold, until the contract's
    constraints hold.
    """
    openings = ((2, 3, 2), (1, 3, 5, 7, 9, 11), 0), ((4, 2, 1), (2, 3, 1, 5, 4, 7), 1)
    opening = []
    for index, (shape, multiples, other) in enumerate(openings):
        mesh, free = [], devices
        for position, axis in enumerate(contract.axes):
            size = min(shape[position] if position < len(shape) else 1, free)
            free //= size
            mesh.append(Axis(axis, (size,)))
        mesh = mesh or [Axis(_EXTRA, (2,), extra=True)]
        scaled = (_sized(contract, mesh, [n * scale for n in multiples]) for scale in range(1, 9))
        candidates = (
            Case(
                tuple(mesh),
                dims,
                dtype=contract.dtypes[index % len(contract.dtypes)],
                axis_types=axis_types,
                order=7 * other,
                names=other if renames else 0,
            )
            for dims in scaled
        )
        opening += [*itertools.islice((c for c in candidates if _admits(contract, c)), 1)]
    return tuple(opening)


@st.composite
def cases(
    draw: st.DrawFn, contract: Contract, axis_types: AxisTypes, devices: int, renames: bool
) -> Case:
    """Any case that the contract admits, on at most `devices` devices.

    Each axis is an integer of its own, with 2 simpler than 1, and every case is made of equally
    many choices: so a failing case shrinks to the smallest mesh and sizes. A third of the meshes
    have one axis of size 1, or nothing but such axes.
    """
    unit = draw(_CHOICE)
    of_one = unit - 8 if unit >= 8 else None
    every = len(contract.axes)
    mesh, free = [], devices
    for left, name in reversed(list(enumerate(contract.axes))):
        choice = draw(_CHOICE)
        is_unit = of_one is not None and of_one % (every + 1) in (left, every)
        size = 1 if is_unit else _pick(choice, _sizes(free // 2**left))
        free //= size
        split = _pick(draw(_CHOICE), _splits(size))
        mesh.append(Axis(name, split if renames else (size,)))
    mesh = draw(st.permutations(mesh[::-1]))
    extra, size, place = (draw(_CHOICE) for _ in range(3))
    if free >= 2 and (extra % 4 == 3 or not mesh):
        size = _pick(size, range(2, free + 1))
        mesh.insert(place % (len(mesh) + 1), Axis(_EXTRA, (size,), extra=True))
    return Case(
        tuple(mesh),
        _sized(contract, mesh, draw(st.permutations(_MULTIPLES))),
        dtype=draw(st.sampled_from(contract.dtypes)),
        axis_types=axis_types,
        order=draw(st.integers(0, 9)),
        names=draw(st.integers(0, 1)) if renames else 0,
        seed=draw(st.integers(0, 999)),
    )


def drawn_cases(
    contract: Contract,
    axis_types: AxisTypes,
    devices: int,
    renames: bool,
    count: int,
    seed: int,
) -> tuple[Case, ...]:
    """`count` cases, no two with one program; the same for one seed and Hypothesis version."""
    found: dict[Case, Case] = {}

    @with_seed(seed)
    @settings(
        max_examples=8 * count,
        derandomize=False,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(contract, axis_types, devices, renames))
    def collect(case: Case) -> None:
        if _admits(contract, case):
            found.setdefault(case.program, case)

    collect()
    return tuple(found.values())[:count]


def _admits(contract: Contract, case: Case) -> bool:
    return all(expression.evaluate(case.sizes) for expression in contract.where)


_CHOICE = st.integers(0, 11)


def _pick(choice: int, options: Sequence[_T]) -> _T:
    """One of any number of options, the first ones simplest, by one and the same choice."""
    return options[choice % len(options)]


def _sizes(most: int) -> Sequence[int]:
    return range(2, most + 1) if most > 1 else (1,)


def _splits(size: int) -> list[tuple[int, ...]]:
    """The axis as one mesh axis, or as a product of two."""
    return [(size,), *((n, size // n) for n in range(2, size) if size % n == 0)]


def _sized(
    contract: Contract, mesh: Sequence[Axis], multiples: Sequence[int]
) -> tuple[tuple[str, int], ...]:
    """Sizes that divide as the signature asks, each another multiple of what it must be."""
    axes = {axis.name: axis.size for axis in mesh}
    return tuple(
        (symbol, contract.signature.multiple_of(symbol, axes) * multiple)
        for symbol, multiple in zip(
            contract.signature.symbols, itertools.cycle(multiples), strict=False
        )
    )
