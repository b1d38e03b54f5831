"""From a case that fails to the smallest one that fails in the same way.

Hypothesis would have to find the failure again before it could shrink it; here the failing case is
the start, every step of a case's structure is known, and each new program costs a compile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from conformance.case import Axis, Case
from conformance.contracts import Contract
from conformance.errors import UsageError


def shrink(case: Case, contract: Contract, fails: Callable[[Case], bool | None]) -> Case:
    """The simplest case, step by step from `case`, for which `fails` is still true.

    `fails` answers None when it may try no more, and then the simplest case so far is returned.
    """
    tried = {case}
    progress = True
    while progress:
        progress = False
        for simpler in _simpler(case, contract):
            if simpler in tried or not _fits(simpler, contract):
                continue
            tried.add(simpler)
            verdict = fails(simpler)
            if verdict is None:
                return case
            if verdict:
                case, progress = simpler, True
                break
    return case


def _simpler(case: Case, contract: Contract) -> Iterator[Case]:
    """Simpler cases, the boldest steps first; an axis of 2 is simpler than one of 1."""
    own = [axis for axis in case.mesh if not axis.extra]
    in_order = tuple(sorted(own, key=lambda axis: contract.axes.index(axis.name)))
    plain = replace(case, order=0, names=0, data="exact", seed=0)
    smallest = tuple(Axis(axis.name, (2,)) for axis in in_order)
    yield _sized(plain, contract, smallest, itertools.repeat(1))
    for change in ({"order": 0}, {"names": 0}, {"seed": 0}, {"data": "exact"}):
        yield replace(case, **change)
    yield replace(case, dtype=contract.dtypes[0])
    multiples = _multiples(case, contract)
    yield _sized(case, contract, tuple(own), multiples)
    yield _sized(case, contract, in_order, multiples)
    yield _sized(case, contract, tuple(Axis(a.name, (a.size,)) for a in in_order), multiples)
    for index, axis in enumerate(case.mesh):
        for size in [*range(2, axis.size), *([2] if axis.size == 1 else [])]:
            mesh = (*case.mesh[:index], replace(axis, parts=(size,)), *case.mesh[index + 1 :])
            yield _sized(case, contract, mesh, multiples)
            yield _sized(case, contract, mesh, _at_least(case, contract, mesh))
    for index, multiple in enumerate(multiples):
        for fewer in range(1, multiple):
            changed = [*multiples[:index], fewer, *multiples[index + 1 :]]
            yield _sized(case, contract, case.mesh, changed)


def _multiples(case: Case, contract: Contract) -> list[int]:
    sizes = case.sizes
    return [size // contract.signature.multiple_of(name, sizes) for name, size in case.dims]


def _at_least(case: Case, contract: Contract, mesh: tuple[Axis, ...]) -> list[int]:
    """Multiples for another mesh that keep the factors of every size."""
    axes = {axis.name: axis.size for axis in mesh}
    needed = [(size, contract.signature.multiple_of(name, axes)) for name, size in case.dims]
    return [math.lcm(size, multiple) // multiple for size, multiple in needed]


def _sized(
    case: Case, contract: Contract, mesh: tuple[Axis, ...], multiples: Iterator[int] | list[int]
) -> Case:
    """The case on another mesh, each size the given multiple of what it must be."""
    axes = {axis.name: axis.size for axis in mesh}
    dims = tuple(
        (name, contract.signature.multiple_of(name, axes) * multiple)
        for (name, _), multiple in zip(case.dims, multiples, strict=False)
    )
    return replace(case, mesh=mesh, dims=dims)


def _fits(case: Case, contract: Contract) -> bool:
    try:
        case.check(contract)
    except UsageError:
        return False
    return True
