"""How each JAX primitive acts on tracked arrays: its value, what it can reach, what it can lose."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.tracked import Array, Tracked, exactly, settled

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


def jumped(value: Array, doubt: Array, known: bool) -> Tracked:
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
    return jumped(value, np.where(unsure, 2.0, 0.0), a.proven)


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
        return jumped(value, np.where(unsure, 1.0, 0.0), proven(a, b))

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
    return jumped(value, np.broadcast_to(bound, value.shape), proven(*operands))


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
    return jumped(value, a.doubt.max(axis, initial=0.0), a.proven)


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
        _with_proof(moved(one, lambda x: np.take_along_axis(x, order, dimension)), decided)
        for one in operands
    ]


@rule("top_k")
def _top_k(bits: int, a: Tracked, *, k: int, **_: Any) -> list[Tracked]:
    order = np.argsort(-a.value, axis=-1, kind="stable")[..., :k]
    values = moved(a, lambda x: np.take_along_axis(x, order, -1))
    return [_with_proof(values, a.exact), _with_proof(exactly(order), a.exact)]


def moved(one: Tracked, move: Callable[[Array], Array]) -> Tracked:
    """The same data in other places, with the same proof."""
    return Tracked(move(one.value), move(one.magnitude), one.quantum, move(one.bound), one.proven)


def _with_proof(one: Tracked, decided: bool) -> Tracked:
    return Tracked(one.value, one.magnitude, one.quantum, one.bound, one.proven and decided)


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
