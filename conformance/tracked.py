"""A NumPy array that knows how far a candidate's copy of it may be off.

While every partial sum that any order can reach is a multiple of `2**quantum` and fits in the
precision of the dtype under test, no order of summation rounds. A forward error bound is carried
along in any case (Higham, "Accuracy and Stability of Numerical Algorithms", chapters 2 and 3; for
sums in any order, Jeannerod and Rump 2013): it holds for candidates that divide before they sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

PRECISION = {"float64": 53, "float32": 24, "bfloat16": 8, "float16": 11, "int64": 63, "int32": 31}
"""Bits of significand of a dtype, the implicit one included; for integers, bits of magnitude."""

# A little over one half unit in the last place, for the rounding of the bound's own arithmetic.
_SLACK = 1 + 2.0**-20


@dataclass(frozen=True, slots=True)
class Tracked:
    """A value in float64, int64 or bool, with what is known of the candidate's copy.

    `magnitude` bounds every partial sum; all entries, and partial sums, are multiples of
    `2**quantum`, None once a sum may have been rounded; `bound` is the largest absolute error of
    arithmetic that rounds; `proven` is False after a primitive that nobody has a bound for.
    """

    value: Array
    magnitude: Array
    quantum: int | None
    bound: Array
    proven: bool = True

    @property
    def exact(self) -> bool:
        """Whether this is the value in every order of summation."""
        return self.proven and self.quantum is not None

    @property
    def doubt(self) -> Array:
        """By how much a candidate's copy may be off, which is nothing if it is exact."""
        return np.zeros(self.bound.shape) if self.exact else self.bound


def exactly(value: Any) -> Tracked:
    """A value that the candidate has too, bit for bit: an input or a constant."""
    array = np.asarray(value)
    if array.dtype == bool:
        return Tracked(array, array.astype(float), 0, np.zeros(array.shape))
    if array.dtype.kind in "iu":
        array = array.astype(np.int64)
        return Tracked(array, np.abs(array).astype(float), 0, np.zeros(array.shape))
    array = array.astype(np.float64)
    return Tracked(array, np.abs(array), _quantum(array), np.zeros(array.shape))


def settled(
    value: Any,
    magnitude: Any,
    quantum: int | None,
    error: Any,
    roundings: float,
    precision: int,
    proven: bool = True,
) -> Tracked:
    """The result of an operation, with its bound; exact if all that it can reach fits.

    `error` is what the operands' errors become, `roundings` how many half units in the last place
    of `magnitude` the operation itself may add.
    """
    value, magnitude = np.asarray(value), np.asarray(magnitude, dtype=float)
    error = np.broadcast_to(np.asarray(error, dtype=float), value.shape)
    reach = float(np.max(magnitude, initial=0.0))
    fits = quantum is not None and reach <= 2.0 ** (precision + quantum)
    unit = roundings * _SLACK * 2.0**-precision
    with np.errstate(all="ignore"):
        bound = error + unit * (magnitude + error)
    # An infinity (a mask) is no rounded number: it is there or it is not.
    bound = np.where(np.isinf(value), 0.0, np.where(np.isnan(bound), np.inf, bound))
    return Tracked(value, magnitude, quantum if fits else None, bound, proven)


def rounded_to(one: Tracked, dtype: np.dtype[Any], precision: int) -> Tracked:
    """The value in a narrower dtype, as both sides round it."""
    narrow = one.value.astype(dtype).astype(np.float64)
    bound = one.bound + 2 * 2.0**-precision * _SLACK * (np.abs(narrow) + one.bound)
    if one.exact and not np.array_equal(narrow, one.value):
        return replace(one, value=narrow, quantum=_quantum(narrow), bound=bound)
    return replace(one, value=narrow, bound=bound if one.bound.any() else one.bound)


def _quantum(array: Array) -> int:
    """The largest q such that every entry is a multiple of 2**q."""
    finite = array[np.isfinite(array) & (array != 0)]
    if finite.size == 0:
        return 0
    fraction, exponent = np.frexp(finite)
    digits = (fraction * 2.0**53).astype(np.int64)
    lowest = digits & -digits
    return int((exponent - 53 + np.log2(lowest.astype(float)).astype(int)).min())
