"""How each JAX primitive acts on tracked arrays: its value, what it can reach, what it can lose."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.tracked import PRECISION, Array, Tracked, exactly, rounded_to, settled

Rule = Callable[..., Tracked | list[Tracked]]
"""Takes (bits, *operands, **params of the primitive)."""

RULES: dict[str, Rule] = {}
"""The rule of each primitive, by its name in a jaxpr."""

_LIBRARY_ULPS = 8.0
"""Half units in the last place that a compiled transcendental function may be off, on CPU."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for primitives of these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def proven(*operands: Tracked) -> bool:
    """Whether something is known of every operand."""
    return all(operand.proven for operand in operands)


def lowest(*quanta: int | None) -> int | None:
    """The quantum of what is made of several arrays."""
    return None if None in quanta else min(q for q in quanta if q is not None)


def _sum(*quanta: int | None) -> int | None:
    return None if None in quanta else sum(q for q in quanta if q is not None)


def _decided(value: Array, quantum: int | None, *operands: Tracked) -> Tracked:
    """A result that jumps: as it is while the operands are exact, and else anything."""
    exact = all(operand.exact for operand in operands)
    bound = np.full(value.shape, 0.0 if exact else np.inf)
    return Tracked(value, np.abs(1.0 * value), quantum if exact else None, bound, proven(*operands))


def _jumped(value: Array, doubt: Array, known: bool) -> Tracked:
    """Whole numbers that are as they are, except where there is doubt."""
    return Tracked(value, np.abs(1.0 * value), None if doubt.any() else 0, doubt, known)


# Arithmetic.


@rule("add", "add_any")
def _add(bits: int, a: Tracked, b: Tracked, **_: Any) -> Tracked:
    reach = a.magnitude + b.magnitude
    quantum = lowest(a.quantum, b.quantum)
    return settled(a.value + b.value, reach, quantum, a.bound + b.bound, 1, bits, proven(a, b))


@rule("sub")
def _sub(bits: int, a: Tracked, b: Tracked, **_: Any) -> Tracked:
    return _add(bits, a, _neg(bits, b))  # type: ignore[return-value]


@rule("neg")
def _neg(bits: int, a: Tracked, **_: Any) -> Tracked:
    return Tracked(-a.value, a.magnitude, a.quantum, a.bound, a.proven)


@rule("mul")
def _mul(bits: int, a: Tracked, b: Tracked, **_: Any) -> Tracked:
    with np.errstate(invalid="ignore"):
        error = a.magnitude * b.bound + b.magnitude * a.bound + a.bound * b.bound
        reach = a.magnitude * b.magnitude
    quantum = _sum(a.quantum, b.quantum)
    return settled(a.value * b.value, reach, quantum, error, 1, bits, proven(a, b))


@rule("div")
def _div(bits: int, a: Tracked, b: Tracked, **_: Any) -> Tracked:
    known = proven(a, b)
    if a.value.dtype.kind in "iu":
        with np.errstate(divide="ignore"):
            whole = np.trunc(a.value / np.where(b.value == 0, 1, b.value)).astype(np.int64)
        return _decided(whole, 0, a, b)
    size = np.abs(b.value)
    fraction, exponent = np.frexp(size)
    with np.errstate(all="ignore"):
        value = a.value / b.value
        if b.exact and a.quantum is not None and bool(np.all(fraction == 0.5)):
            quantum = a.quantum - int(np.max(exponent, initial=1)) + 1
            return settled(value, a.magnitude / size, quantum, 0.0, 1, bits, known)
        left = np.maximum(size - b.bound, 0.0)
        error = (a.bound + np.abs(value) * b.bound) / left
        return settled(value, a.magnitude / size, None, error, 1, bits, known)


@rule("rem")
def _rem(bits: int, a: Tracked, b: Tracked, **_: Any) -> Tracked:
    value = np.fmod(a.value, np.where(b.value == 0, 1, b.value))
    return _decided(value, lowest(a.quantum, b.quantum), a, b)


@rule("integer_pow")
def _integer_pow(bits: int, a: Tracked, *, y: int, **_: Any) -> Tracked:
    if y >= 0:
        power = exactly(np.ones_like(a.value))
        for _step in range(y):
            power = _mul(bits, power, a)  # type: ignore[assignment]
        return power
    return _div(bits, exactly(np.ones_like(a.value)), _integer_pow(bits, a, y=-y))  # type: ignore[return-value]


@rule("square")
def _square(bits: int, a: Tracked, **_: Any) -> Tracked:
    return _mul(bits, a, a)  # type: ignore[return-value]


@rule("abs")
def _abs(bits: int, a: Tracked, **_: Any) -> Tracked:
    return Tracked(np.abs(a.value), np.abs(a.value), a.quantum, a.bound, a.proven)


@rule("sign")
def _sign(bits: int, a: Tracked, **_: Any) -> Tracked:
    unsure = (np.abs(a.value) <= a.doubt) & (a.doubt > 0)
    value = np.sign(a.value)
    return _jumped(value, np.where(unsure, 2.0, 0.0), a.proven)


@rule("max", "min")
def _extreme(bits: int, a: Tracked, b: Tracked, *, largest: bool, **_: Any) -> Tracked:
    value = (np.maximum if largest else np.minimum)(a.value, b.value)
    quantum = lowest(a.quantum, b.quantum)
    return Tracked(value, np.abs(value), quantum, np.maximum(a.bound, b.bound), proven(a, b))


@rule("clamp")
def _clamp(bits: int, low: Tracked, a: Tracked, high: Tracked, **_: Any) -> Tracked:
    value = np.minimum(np.maximum(a.value, low.value), high.value)
    bound = np.maximum(np.maximum(low.bound, high.bound), a.bound)
    quantum = lowest(low.quantum, a.quantum, high.quantum)
    return Tracked(value, np.abs(value), quantum, bound, proven(low, a, high))


@rule("floor", "ceil", "round")
def _whole(bits: int, a: Tracked, *, function: Callable[..., Array], **_: Any) -> Tracked:
    return _decided(function(a.value), 0, a)


# Functions with a slope: the error of the operand times the steepest slope within it.


def _smooth(function: Callable[[Array], Array], spread: Callable[[Array, Array], Array]) -> Rule:
    def apply(bits: int, a: Tracked, **_: Any) -> Tracked:
        with np.errstate(all="ignore"):
            value = function(a.value)
            error = np.where(a.bound > 0, spread(a.value, a.bound), 0.0)
        reach = np.abs(value)
        return settled(value, reach, None, error, _LIBRARY_ULPS, bits, a.proven)

    return apply


def _between(function: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    """How far a monotone function can move."""

    def spread(x: Array, e: Array) -> Array:
        here = function(x)
        return np.fmax(np.abs(function(x + e) - here), np.abs(function(x - e) - here))

    return spread


def _logistic(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(x / 2))


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[float])(x)


def _root(x: Array) -> Array:
    return np.sqrt(np.maximum(x, 0.0))


def _inverse_root(x: Array) -> Array:
    return 1 / np.sqrt(np.maximum(x, 0.0))


RULES |= {
    "exp": _smooth(np.exp, _between(np.exp)),
    "exp2": _smooth(np.exp2, _between(np.exp2)),
    "expm1": _smooth(np.expm1, _between(np.expm1)),
    "log": _smooth(np.log, _between(lambda x: np.log(np.maximum(x, 0.0)))),
    "log1p": _smooth(np.log1p, _between(lambda x: np.log1p(np.maximum(x, -1.0)))),
    "tanh": _smooth(np.tanh, _between(np.tanh)),
    "logistic": _smooth(_logistic, _between(_logistic)),
    "erf": _smooth(_erf, _between(_erf)),
    "sqrt": _smooth(np.sqrt, _between(_root)),
    "rsqrt": _smooth(lambda x: 1 / np.sqrt(x), _between(_inverse_root)),
    "sin": _smooth(np.sin, lambda x, e: np.minimum(e, 2.0)),
    "cos": _smooth(np.cos, lambda x, e: np.minimum(e, 2.0)),
}


# Comparisons and choice. A comparison's bound is 1 where rounding could turn it.


def _compare(function: Callable[[Array, Array], Array]) -> Rule:
    def apply(bits: int, a: Tracked, b: Tracked, **_: Any) -> Tracked:
        value = function(a.value, b.value)
        margin = a.doubt + b.doubt
        with np.errstate(invalid="ignore"):
            unsure = (margin > 0) & (np.abs(1.0 * a.value - b.value) <= margin)
        return _jumped(value, np.where(unsure, 1.0, 0.0), proven(a, b))

    return apply


RULES |= {
    "lt": _compare(np.less),
    "le": _compare(np.less_equal),
    "gt": _compare(np.greater),
    "ge": _compare(np.greater_equal),
    "eq": _compare(np.equal),
    "ne": _compare(np.not_equal),
}


@rule("and", "or", "xor", "not")
def _bits(bits: int, *operands: Tracked, function: Callable[..., Array], **_: Any) -> Tracked:
    value = function(*(operand.value for operand in operands))
    bound = functools.reduce(np.maximum, (operand.doubt for operand in operands))
    return _jumped(value, np.broadcast_to(bound, value.shape), proven(*operands))


@rule("is_finite")
def _is_finite(bits: int, a: Tracked, **_: Any) -> Tracked:
    return Tracked(
        np.isfinite(a.value), np.ones(a.value.shape), 0, np.zeros(a.value.shape), a.proven
    )


@rule("select_n")
def _select(bits: int, which: Tracked, *choices: Tracked, **_: Any) -> Tracked:
    index = which.value.astype(np.int64)

    def pick(arrays: Sequence[Array]) -> Array:
        index_there = np.broadcast_to(index, arrays[0].shape)
        return np.choose(index_there, arrays)

    bound = pick([choice.bound for choice in choices])
    value = pick([choice.value for choice in choices])
    if which.doubt.any():
        for choice in choices:
            other = np.abs(choice.value - value) + choice.bound
            bound = np.where(which.doubt > 0, np.maximum(bound, other), bound)
    magnitude = pick([choice.magnitude for choice in choices])
    quantum = lowest(which.quantum, *(choice.quantum for choice in choices))
    return Tracked(value, magnitude, quantum, bound, proven(which, *choices))


# Sums.


@rule("dot_general")
def _dot(bits: int, a: Tracked, b: Tracked, *, dimension_numbers: Any, **_: Any) -> Tracked:
    terms = math.prod(a.value.shape[dim] for dim in dimension_numbers[0][0])

    def dot(x: Array, y: Array) -> Array:
        return _contracted(x, y, dimension_numbers)

    with np.errstate(invalid="ignore"):
        reach = dot(a.magnitude, b.magnitude)
        error = np.zeros(reach.shape)
        if a.bound.any() or b.bound.any():
            error = dot(a.magnitude, b.bound) + dot(a.bound, b.magnitude) + dot(a.bound, b.bound)
        value = dot(a.value, b.value)
    quantum = _sum(a.quantum, b.quantum)
    return settled(value, reach, quantum, error, terms + 1, bits, proven(a, b))


def _contracted(x: Array, y: Array, dimension_numbers: Any) -> Array:
    (contract_x, contract_y), (batch_x, batch_y) = dimension_numbers
    labels_x = list(range(x.ndim))
    labels_y = [x.ndim + dim for dim in range(y.ndim)]
    for dim_x, dim_y in zip((*contract_x, *batch_x), (*contract_y, *batch_y), strict=True):
        labels_y[dim_y] = labels_x[dim_x]
    kept = [labels_x[dim] for dim in batch_x]
    kept += [labels_x[d] for d in range(x.ndim) if d not in contract_x and d not in batch_x]
    kept += [labels_y[d] for d in range(y.ndim) if d not in contract_y and d not in batch_y]
    return np.asarray(np.einsum(x, labels_x, y, labels_y, kept))


@rule("reduce_sum")
def _reduce_sum(bits: int, a: Tracked, *, axes: Sequence[int], **_: Any) -> Tracked:
    axis = tuple(int(one) for one in axes)
    terms = math.prod(a.value.shape[one] for one in axis)
    return settled(
        a.value.sum(axis),
        a.magnitude.sum(axis),
        a.quantum,
        a.bound.sum(axis),
        max(terms - 1, 0),
        bits,
        a.proven,
    )


@rule("cumsum")
def _cumsum(bits: int, a: Tracked, *, axis: int, reverse: bool, **_: Any) -> Tracked:
    def along(array: Array) -> Array:
        return (
            np.flip(np.cumsum(np.flip(array, axis), axis), axis)
            if reverse
            else np.cumsum(array, axis)
        )

    terms = a.value.shape[axis]
    return settled(
        along(a.value), along(a.magnitude), a.quantum, along(a.bound), terms, bits, a.proven
    )


@rule("reduce_max", "reduce_min")
def _reduce_extreme(
    bits: int, a: Tracked, *, axes: Sequence[int], function: Any, **_: Any
) -> Tracked:
    axis = tuple(int(one) for one in axes)
    value = function.reduce(a.value, axis=axis)
    bound = a.bound.max(axis, initial=0.0)
    return Tracked(value, np.abs(value), a.quantum, bound, a.proven)


@rule("reduce_and", "reduce_or")
def _reduce_bits(bits: int, a: Tracked, *, axes: Sequence[int], function: Any, **_: Any) -> Tracked:
    axis = tuple(int(one) for one in axes)
    value = function.reduce(a.value, axis=axis)
    return _jumped(value, a.doubt.max(axis, initial=0.0), a.proven)


@rule("argmax", "argmin")
def _arg(bits: int, a: Tracked, *, axes: Sequence[int], function: Any, **_: Any) -> Tracked:
    value = function(a.value, axis=int(axes[0]))
    return Tracked(value, 1.0 * value, 0, np.zeros(value.shape), a.proven and a.exact)


@rule("sort")
def _sort(bits: int, *operands: Tracked, dimension: int, num_keys: int, **_: Any) -> list[Tracked]:
    keys = [operand.value for operand in operands[:num_keys]]
    order = np.lexsort(keys[::-1], axis=dimension)
    decided = all(operand.exact for operand in operands[:num_keys])
    return [
        _with_proof(_moved(one, lambda x: np.take_along_axis(x, order, dimension)), decided)
        for one in operands
    ]


@rule("top_k")
def _top_k(bits: int, a: Tracked, *, k: int, **_: Any) -> list[Tracked]:
    order = np.argsort(-a.value, axis=-1, kind="stable")[..., :k]
    values = _moved(a, lambda x: np.take_along_axis(x, order, -1))
    return [_with_proof(values, a.exact), _with_proof(exactly(order), a.exact)]


def _with_proof(one: Tracked, decided: bool) -> Tracked:
    return Tracked(one.value, one.magnitude, one.quantum, one.bound, one.proven and decided)


# Data movement keeps the proof.


def _moved(one: Tracked, move: Callable[[Array], Array]) -> Tracked:
    return Tracked(move(one.value), move(one.magnitude), one.quantum, move(one.bound), one.proven)


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
    return _moved(a, lambda x: x.reshape(new_sizes))


@rule("squeeze")
def _squeeze(bits: int, a: Tracked, *, dimensions: Sequence[int], **_: Any) -> Tracked:
    return _moved(a, lambda x: np.squeeze(x, tuple(int(one) for one in dimensions)))


@rule("expand_dims")
def _expand_dims(bits: int, a: Tracked, *, dimensions: Sequence[int], **_: Any) -> Tracked:
    return _moved(a, lambda x: np.expand_dims(x, tuple(int(one) for one in dimensions)))


@rule("transpose")
def _transpose(bits: int, a: Tracked, *, permutation: Sequence[int], **_: Any) -> Tracked:
    return _moved(a, lambda x: np.transpose(x, [int(one) for one in permutation]))


@rule("rev")
def _rev(bits: int, a: Tracked, *, dimensions: Sequence[int], **_: Any) -> Tracked:
    return _moved(a, lambda x: np.flip(x, tuple(int(one) for one in dimensions)))


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
    return _moved(a, lambda x: np.broadcast_to(x.reshape(lined_up), shape))


@rule("slice")
def _slice(
    bits: int, a: Tracked, *, start_indices: Any, limit_indices: Any, strides: Any, **_: Any
) -> Tracked:
    steps = strides or (1,) * len(start_indices)
    parts = tuple(map(slice, start_indices, limit_indices, steps))
    return _moved(a, lambda x: x[parts])


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
        _moved(a, lambda x, lo=end - size, hi=end: np.take(x, np.arange(lo, hi), axis))  # type: ignore[misc]
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
        return _jumped(a.value != 0, 1.0 * (a.doubt > 0), a.proven)
    if new.kind in "iu":
        value = (
            np.trunc(a.value).astype(np.int64)
            if a.value.dtype != bool
            else a.value.astype(np.int64)
        )
        jump = 0.0 if a.value.dtype.kind in "biu" else np.where(a.doubt > 0, 1.0, 0.0)
        return _jumped(value, a.doubt + jump, a.proven)
    wide = Tracked(a.value.astype(np.float64), a.magnitude, a.quantum, a.bound, a.proven)
    if PRECISION.get(new.name, 0) >= bits and a.value.dtype.kind == "f":
        return wide
    if a.value.dtype.kind == "f":
        return rounded_to(wide, new, PRECISION.get(new.name, 1))
    return settled(wide.value, wide.magnitude, wide.quantum, wide.bound, 1, bits, wide.proven)


# Rules that serve several primitives learn which one from its name.
_FUNCTIONS: Mapping[str, Mapping[str, Any]] = {
    "max": {"largest": True},
    "min": {"largest": False},
    "floor": {"function": np.floor},
    "ceil": {"function": np.ceil},
    "round": {"function": np.rint},
    "and": {"function": np.bitwise_and},
    "or": {"function": np.bitwise_or},
    "xor": {"function": np.bitwise_xor},
    "not": {"function": np.invert},
    "reduce_max": {"function": np.maximum},
    "reduce_min": {"function": np.minimum},
    "reduce_and": {"function": np.logical_and},
    "reduce_or": {"function": np.logical_or},
    "argmax": {"function": np.argmax},
    "argmin": {"function": np.argmin},
}


def apply(
    name: str, bits: int, operands: Sequence[Tracked], params: Mapping[str, Any]
) -> list[Tracked]:
    """What a primitive with a rule makes of tracked operands."""
    result = RULES[name](bits, *operands, **{**params, **_FUNCTIONS.get(name, {})})
    return result if isinstance(result, list) else [result]
