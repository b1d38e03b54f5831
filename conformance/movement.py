"""How primitives that only move, shape or convert data act on tracked arrays: with their proof.

With these, `RULES` is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance.primitives import RULES, jumped, lowest, moved, proven, rule
from conformance.tracked import PRECISION, Tracked, exactly, rounded_to, settled

__all__ = ["RULES"]


@rule(
    "stop_gradient",
    "copy",
    "copy_p",
    "optimization_barrier",
    "sharding_constraint",
    "reshard",
    "device_put",
)
def _same(bits: int, *operands: Tracked, **_: Any) -> list[Tracked]:
    return list(operands)


@rule("reshape")
def _reshape(bits: int, a: Tracked, *, new_sizes: Sequence[int], **_: Any) -> Tracked:
    return moved(a, lambda x: x.reshape(new_sizes))


@rule("squeeze")
def _squeeze(bits: int, a: Tracked, *, dimensions: Sequence[int], **_: Any) -> Tracked:
    return moved(a, lambda x: np.squeeze(x, tuple(int(one) for one in dimensions)))


@rule("expand_dims")
def _expand_dims(bits: int, a: Tracked, *, dimensions: Sequence[int], **_: Any) -> Tracked:
    return moved(a, lambda x: np.expand_dims(x, tuple(int(one) for one in dimensions)))


@rule("transpose")
def _transpose(bits: int, a: Tracked, *, permutation: Sequence[int], **_: Any) -> Tracked:
    return moved(a, lambda x: np.transpose(x, [int(one) for one in permutation]))


@rule("rev")
def _rev(bits: int, a: Tracked, *, dimensions: Sequence[int], **_: Any) -> Tracked:
    return moved(a, lambda x: np.flip(x, tuple(int(one) for one in dimensions)))


@rule("broadcast_in_dim")
def _broadcast(
    bits: int,
    a: Tracked,
    *,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
    **_: Any,
) -> Tracked:
    lined_up = [1] * len(shape)
    for dim, size in zip(broadcast_dimensions, a.value.shape, strict=True):
        lined_up[int(dim)] = size
    return moved(a, lambda x: np.broadcast_to(x.reshape(lined_up), shape))


@rule("slice")
def _slice(
    bits: int, a: Tracked, *, start_indices: Any, limit_indices: Any, strides: Any, **_: Any
) -> Tracked:
    steps = strides or (1,) * len(start_indices)
    parts = tuple(map(slice, start_indices, limit_indices, steps))
    return moved(a, lambda x: x[parts])


@rule("concatenate")
def _concatenate(bits: int, *operands: Tracked, dimension: int, **_: Any) -> Tracked:
    return Tracked(
        np.concatenate([one.value for one in operands], dimension),
        np.concatenate([one.magnitude for one in operands], dimension),
        lowest(*(one.quantum for one in operands)),
        np.concatenate([one.bound for one in operands], dimension),
        proven(*operands),
    )


@rule("split")
def _split(bits: int, a: Tracked, *, sizes: Sequence[int], axis: int, **_: Any) -> list[Tracked]:
    ends = np.cumsum(sizes)
    return [
        moved(a, lambda x, lo=end - size, hi=end: np.take(x, np.arange(lo, hi), axis))  # type: ignore[misc]
        for size, end in zip(sizes, ends, strict=True)
    ]


@rule("iota")
def _iota(bits: int, *, dtype: Any, shape: Sequence[int], dimension: int, **_: Any) -> Tracked:
    lined_up = [1] * len(shape)
    lined_up[dimension] = shape[dimension]
    count = np.arange(shape[dimension]).reshape(lined_up)
    return exactly(np.broadcast_to(count, shape).astype(np.dtype(dtype)))


@rule("convert_element_type")
def _convert(bits: int, a: Tracked, *, new_dtype: Any, **_: Any) -> Tracked:
    new = np.dtype(new_dtype)
    if new.kind == "b":
        return jumped(a.value != 0, 1.0 * (a.doubt > 0), a.proven)
    if new.kind in "iu":
        value = (
            np.trunc(a.value).astype(np.int64)
            if a.value.dtype != bool
            else a.value.astype(np.int64)
        )
        jump = 0.0 if a.value.dtype.kind in "biu" else np.where(a.doubt > 0, 1.0, 0.0)
        return jumped(value, a.doubt + jump, a.proven)
    wide = Tracked(a.value.astype(np.float64), a.magnitude, a.quantum, a.bound, a.proven)
    if PRECISION.get(new.name, 0) >= bits and a.value.dtype.kind == "f":
        return wide
    if a.value.dtype.kind == "f":
        return rounded_to(wide, new, PRECISION.get(new.name, 1))
    return settled(wide.value, wide.magnitude, wide.quantum, wide.bound, 1, bits, wide.proven)
