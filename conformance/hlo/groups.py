"""Replica groups, in all the forms that XLA prints, as groups of logical positions.

Names of axes in the text are XLA's own and often invented; only the numbers are used.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Sequence

Group = tuple[int, ...]

_LISTS = re.compile(r"\{\{[\d,{}]*\}\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:, ?device_ids=\(([^)]*\)?)\))? ?\{([^}]*)\}")
_AXIS = re.compile(r"'([^']+)'(?:=(\d+))?(?::\((\d+)\)(\d+))?")


@functools.lru_cache(maxsize=1024)
def parse_groups(text: str, partitions: int) -> tuple[Group, ...]:
    """The groups in the order of the text; an empty list is one group of all partitions.

    Raises `ValueError` for a form that is not known, and for groups that are empty, overlap or
    go beyond the partitions.
    """
    try:
        groups = _expanded(text, partitions)
    except (KeyError, IndexError, ZeroDivisionError):
        raise ValueError("unknown form of replica groups") from None
    members = [position for group in groups for position in group]
    if not all(groups) or len(set(members)) < len(members):
        raise ValueError("replica groups that are empty or overlap")
    if not members or max(members) >= partitions:
        raise ValueError(f"replica groups beyond the {partitions} partitions")
    return groups


def _expanded(text: str, partitions: int) -> tuple[Group, ...]:
    if text == "{}":
        return (tuple(range(partitions)),)
    if _LISTS.fullmatch(text):
        return tuple(_numbers(group) for group in re.findall(r"\{([\d,]*)\}", text[1:-1]))
    if found := _IOTA.fullmatch(text):
        count, size = _numbers(found[1])
        flat = _iota(_numbers(found[2]), found[3])
        if count * size != len(flat):
            raise ValueError("unknown form of replica groups")
        return tuple(tuple(flat[i * size : (i + 1) * size]) for i in range(count))
    if found := _MESH.fullmatch(text):
        return _mesh_groups(found[1], found[2], found[3])
    raise ValueError("unknown form of replica groups")


@functools.lru_cache(maxsize=1024)
def parse_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Source and target of each send; raises `ValueError` for a form that is not known."""
    if not re.fullmatch(r"\{(\{\d+,\d+\},?)*\}", text):
        raise ValueError("unknown form of source-target pairs")
    return tuple((int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def _iota(dims: Sequence[int], permutation: str | None) -> list[int]:
    """0, 1, 2, ... in the shape `dims`, with its dimensions permuted, and then flattened."""
    strides = [math.prod(dims[index + 1 :]) for index in range(len(dims))]
    order = _numbers(permutation) if permutation else tuple(range(len(dims)))
    return [
        sum(index * strides[dim] for index, dim in zip(indices, order, strict=True))
        for indices in itertools.product(*(range(dims[dim]) for dim in order))
    ]


def _mesh_groups(mesh: str, device_ids: str | None, over: str) -> tuple[Group, ...]:
    sizes = {name: int(size) for name, size, _, _ in _AXIS.findall(mesh)}
    ids = list(range(math.prod(sizes.values())))
    if device_ids is not None:
        found = _IOTA.fullmatch(device_ids) or re.fullmatch(
            r"\[([\d,]+)\](?:T\(([\d,]+)\))?()", device_ids
        )
        if found is None:
            raise ValueError("unknown form of device ids")
        ids = (
            _iota(_numbers(found[2]), found[3])
            if "<=" in device_ids
            else _iota(_numbers(found[1]), found[2])
        )
    # A sub-axis (1)2 of an axis of 4 is a part of size 2 after a major part of size 1: each axis
    # is cut into (major, part, minor), and the group runs over its part.
    cuts = {name: [(size, False)] for name, size in sizes.items()}
    chosen: list[tuple[str, int]] = []
    for name, _, before, part in _AXIS.findall(over):
        if part:
            major, size = int(before), int(part)
            if sizes[name] % (major * size):
                raise ValueError("unknown form of replica groups")
            cuts[name] = [(major, False), (size, True), (sizes[name] // major // size, False)]
            chosen.append((name, 1))
        else:
            chosen.append((name, 0))
    pieces = [(name, index) for name in sizes for index in range(len(cuts[name]))]
    extent = {(name, index): cuts[name][index][0] for name, index in pieces}
    stride, strides = 1, {}
    for piece in reversed(pieces):
        strides[piece] = stride
        stride *= extent[piece]

    def offsets(some: Sequence[tuple[str, int]]) -> list[int]:
        return [
            sum(i * strides[piece] for i, piece in zip(indices, some, strict=True))
            for indices in itertools.product(*(range(extent[piece]) for piece in some))
        ]

    others = [piece for piece in pieces if piece not in chosen]
    inner = offsets(chosen)
    return tuple(tuple(ids[start + step] for step in inner) for start in offsets(others))
