"""The reference, evaluated in NumPy: traced in 64-bit, never compiled, so no XLA stands between.

Each result says what a right candidate must return: exactly this value, or this one within an
error bound, or, after a primitive without a rule, this value without any proof.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance import primitives
from conformance.case import Case
from conformance.contracts import Contract
from conformance.movement import RULES
from conformance.tracked import PRECISION, Array, Tracked, exactly, rounded_to, settled

if TYPE_CHECKING:
    import jax

_MOST_TRIPS = 10_000
# Which operands are data; the others say where it goes.
_MOVES = {
    "gather": (0,),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
    "pad": (0, 1),
    "scatter": (0, 2),
}
_KINKS = frozenset({"max", "min", "lt", "le", "gt", "ge"})
_JUMPS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "sign"})
_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")


@dataclass(frozen=True, slots=True)
class Expected:
    """One result of the reference: value, dtype, and how near a right candidate must come.

    `bound` is the tolerance of each element, None where nothing is proven. `exact` means that no
    order of summation rounds: then only a candidate that scales before it sums may not be equal.
    `kink` says that rounding could have turned a comparison, or that a gradient was taken at a tie,
    and then the value is none to compare with.
    """

    value: Array
    dtype: np.dtype[Any]
    exact: bool
    bound: Array | None
    kink: bool


def evaluate(
    function: Callable[..., Any],
    arguments: Sequence[Array],
    accumulates: np.dtype[Any] | None = None,
    **static: Any,
) -> tuple[Expected, ...]:
    """What `function(*arguments, **static)` is, for arguments in the dtypes under test.

    `accumulates`: the dtype in which all is computed, and rounded once at the end; None for that
    of the arguments.
    """
    return _evaluate(function, arguments, static, False, accumulates)


def evaluate_vjp(
    function: Callable[..., Any],
    arguments: Sequence[Array],
    cotangents: Sequence[Array],
    differentiable: Sequence[int],
    **static: Any,
) -> tuple[Expected, ...]:
    """The cotangents of the `differentiable` arguments, for cotangents of all float outputs."""
    program = _vector_jacobian(
        function, len(arguments), tuple(differentiable), tuple(sorted(static.items()))
    )
    return _evaluate(program, (*arguments, *cotangents), {}, True, None)


def reference_keywords(contract: Contract, case: Case) -> dict[str, int]:
    """The sizes that the contract's reference takes as keywords."""
    names = inspect.signature(contract.reference).parameters.keys() & case.sizes.keys()
    return {name: case.sizes[name] for name in names - set(contract.input_names)}


@functools.lru_cache(maxsize=256)
def _vector_jacobian(
    function: Callable[..., Any],
    count: int,
    wanted: tuple[int, ...],
    static: tuple[tuple[str, Any], ...],
) -> Callable[..., Any]:
    def program(*values: Any) -> Any:
        import jax

        arguments, cotangents = values[:count], values[count:]

        def floats(*some: Any) -> Any:
            replaced = dict(zip(wanted, some, strict=True))
            outputs = function(
                *(replaced.get(index, one) for index, one in enumerate(arguments)), **dict(static)
            )
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            return tuple(o for o in outputs if jax.numpy.issubdtype(o.dtype, jax.numpy.inexact))

        outputs, pull_back = jax.vjp(floats, *(arguments[index] for index in wanted))
        pairs = zip(cotangents, outputs, strict=True)
        return pull_back(tuple(cotangent.astype(output.dtype) for cotangent, output in pairs))

    return program


@dataclass(frozen=True, slots=True)
class _Traced:
    jaxpr: Any
    constants: tuple[Any, ...]
    dtypes: tuple[np.dtype[Any], ...]


@functools.lru_cache(maxsize=1024)
def _trace(
    function: Callable[..., Any],
    shapes: tuple[tuple[tuple[int, ...], str], ...],
    static: tuple[tuple[str, Any], ...],
) -> _Traced:
    """The jaxpr in 64-bit, and the dtypes of its results in 32-bit."""
    import jax

    bound = functools.partial(function, **dict(static))

    def abstract(wide: bool) -> list[jax.ShapeDtypeStruct]:
        return [
            jax.ShapeDtypeStruct(shape, np.float64 if wide and _is_float(name) else np.dtype(name))
            for shape, name in shapes
        ]

    with jax.numpy_dtype_promotion("standard"):
        narrow = jax.eval_shape(bound, *abstract(False))
        with jax.enable_x64(True):
            closed = jax.make_jaxpr(bound)(*abstract(True))
    dtypes = tuple(np.dtype(leaf.dtype) for leaf in jax.tree.leaves(narrow))
    return _Traced(closed.jaxpr, tuple(closed.consts), dtypes)


def _evaluate(
    function: Callable[..., Any],
    arguments: Sequence[Array],
    static: Mapping[str, Any],
    ties: bool,
    accumulates: np.dtype[Any] | None,
) -> tuple[Expected, ...]:
    shapes = tuple((one.shape, one.dtype.name) for one in arguments)
    traced = _trace(function, shapes, tuple(sorted(static.items())))
    names = [one.dtype.name for one in arguments] + [dtype.name for dtype in traced.dtypes]
    precision = min((PRECISION[name] for name in names if _is_float(name)), default=24)
    if accumulates is not None:
        precision = PRECISION[accumulates.name]
    evaluator = _Evaluator(precision, ties)
    tracked = evaluator.run(
        traced.jaxpr, list(map(exactly, traced.constants)), list(map(exactly, arguments))
    )
    if accumulates is not None:
        tracked = [
            rounded_to(one, dtype, PRECISION[dtype.name]) if _is_float(dtype.name) else one
            for one, dtype in zip(tracked, traced.dtypes, strict=True)
        ]
    return tuple(
        Expected(
            one.value,
            dtype,
            one.exact,
            one.bound if one.proven else None,
            evaluator.kink,
        )
        for one, dtype in zip(tracked, traced.dtypes, strict=True)
    )


@dataclass(slots=True)
class _Evaluator:
    """Runs jaxprs on tracked arrays; remembers whether a kink was met."""

    precision: int
    ties: bool
    kink: bool = field(default=False)

    def run(
        self, jaxpr: Any, constants: Sequence[Tracked], arguments: Sequence[Tracked]
    ) -> list[Tracked]:
        values: dict[Any, Tracked] = {}
        values.update(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Tracked:
            return exactly(atom.val) if hasattr(atom, "val") else values[atom]

        for equation in _needed(jaxpr):
            results = self.apply(equation, [read(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def apply(self, equation: Any, operands: list[Tracked]) -> list[Tracked]:
        name, params = equation.primitive.name, equation.params
        if name in RULES:
            precision = self.precision_of(equation)
            results = primitives.apply(name, precision, operands, params)
            self.look_for_kinks(name, operands, results)
            return results
        if name == "scan":
            return self.scan(equation, operands)
        if name == "while":
            return self.loop(params, operands)
        if name == "cond":
            index, *rest = operands
            self.kink |= bool(index.doubt.any())
            branches = params["branches"]
            return self.closed(branches[int(np.clip(index.value, 0, len(branches) - 1))], rest)
        for key in _CALLED:
            if key in params:
                return self.closed(params[key], operands)
        if name in _MOVES:
            return [self.moved(equation, operands, _MOVES[name])]
        if name == "scatter-add":
            return [self.scattered(equation, operands)]
        return [
            Tracked(value, np.abs(1.0 * value), None, np.zeros(value.shape), proven=False)
            for value in map(_wide, _bind(equation, [one.value for one in operands]))
        ]

    def precision_of(self, equation: Any) -> int:
        dtype = np.dtype(equation.outvars[0].aval.dtype)
        if dtype.kind in "iu":
            return min(PRECISION["int32"], 8 * dtype.itemsize - (dtype.kind == "i"))
        return min(self.precision, PRECISION.get(dtype.name, 1)) if _is_float(dtype.name) else 53

    def look_for_kinks(
        self, name: str, operands: Sequence[Tracked], results: Sequence[Tracked]
    ) -> None:
        if name in _JUMPS:
            self.kink |= any(bool(result.doubt.any()) for result in results)
        if self.ties and name in _KINKS and operands[0].value.dtype.kind == "f":
            self.kink |= bool(np.any(operands[0].value == operands[1].value))

    def closed(self, jaxpr: Any, operands: Sequence[Tracked]) -> list[Tracked]:
        constants = getattr(jaxpr, "consts", ())
        return self.run(getattr(jaxpr, "jaxpr", jaxpr), list(map(exactly, constants)), operands)

    def scan(self, equation: Any, operands: list[Tracked]) -> list[Tracked]:
        params, body = equation.params, equation.params["jaxpr"]
        inner = getattr(body, "jaxpr", body)
        # What is carried and what is scanned over shows in the ranks, in every version of JAX.
        carried = sum(map(_same_rank, inner.outvars, equation.outvars))
        scanned = len(operands) - sum(map(_same_rank, inner.invars, equation.invars))
        fixed = len(operands) - scanned - carried
        constants, carry = operands[:fixed], operands[fixed : fixed + carried]
        sequences = operands[fixed + carried :]
        steps = range(params["length"])
        rows: list[list[Tracked]] = []
        for step in reversed(steps) if params["reverse"] else steps:
            here = [_row(one, step) for one in sequences]
            results = self.closed(body, [*constants, *carry, *here])
            carry = results[:carried]
            rows.append(results[carried:])
        if params["reverse"]:
            rows.reverse()
        return [*carry, *(_stack(column) for column in zip(*rows, strict=True))]

    def loop(self, params: Mapping[str, Any], operands: list[Tracked]) -> list[Tracked]:
        for_condition, for_body = params["cond_nconsts"], params["body_nconsts"]
        condition = operands[:for_condition]
        body = operands[for_condition : for_condition + for_body]
        carry = operands[for_condition + for_body :]
        for _ in range(_MOST_TRIPS):
            (more,) = self.closed(params["cond_jaxpr"], [*condition, *carry])
            self.kink |= bool(more.doubt.any())
            if not more.value:
                return carry
            carry = self.closed(params["body_jaxpr"], [*body, *carry])
        raise ValueError(f"reference: a while loop runs more than {_MOST_TRIPS} times")

    def moved(self, equation: Any, operands: Sequence[Tracked], data: Sequence[int]) -> Tracked:
        """Moves value, magnitude and bound alike, all by JAX itself, unsharded."""

        def move(part: Callable[[Tracked], Array]) -> Array:
            return _wide(
                _bind(
                    equation,
                    [
                        part(one).astype(one.value.dtype) if index in data else one.value
                        for index, one in enumerate(operands)
                    ],
                )[0]
            )

        places = [one for index, one in enumerate(operands) if index not in data]
        return Tracked(
            move(lambda one: one.value),
            move(lambda one: one.magnitude).astype(float),
            primitives.lowest(*(operands[index].quantum for index in data)),
            move(lambda one: one.bound).astype(float),
            primitives.proven(*operands) and all(place.exact for place in places),
        )

    def scattered(self, equation: Any, operands: Sequence[Tracked]) -> Tracked:
        operand, indices, updates = operands

        def add(part: Callable[[Tracked], Array]) -> Array:
            dtype = operand.value.dtype
            taken = [part(operand).astype(dtype), indices.value, part(updates).astype(dtype)]
            return _wide(_bind(equation, taken)[0])

        known = primitives.proven(operand, updates) and indices.exact
        return settled(
            add(lambda one: one.value),
            add(lambda one: one.magnitude),
            primitives.lowest(operand.quantum, updates.quantum),
            add(lambda one: one.bound),
            float(np.max(add(lambda one: np.ones(one.value.shape)), initial=1.0)),
            self.precision_of(equation),
            known,
        )


def _same_rank(inner: Any, outer: Any) -> bool:
    return len(inner.aval.shape) == len(outer.aval.shape)


def _needed(jaxpr: Any) -> list[Any]:
    """The equations that a result depends on: a kink in a dead one is none."""
    wanted = {id(atom) for atom in jaxpr.outvars}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(variable) in wanted for variable in equation.outvars):
            wanted.update(id(atom) for atom in equation.invars)
            kept.append(equation)
    return kept[::-1]


def _bind(equation: Any, values: Sequence[Array]) -> list[Any]:
    import jax

    with jax.enable_x64(True):
        typed = [
            jax.numpy.asarray(value, atom.aval.dtype)
            for value, atom in zip(values, equation.invars, strict=True)
        ]
        results = equation.primitive.bind(*typed, **equation.params)
    return list(results) if equation.primitive.multiple_results else [results]


def _wide(value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype == bool or array.dtype.kind in "iu":
        return array if array.dtype == bool else array.astype(np.int64)
    return array.astype(np.float64)


def _row(one: Tracked, step: int) -> Tracked:
    return Tracked(one.value[step], one.magnitude[step], one.quantum, one.bound[step], one.proven)


def _stack(rows: Sequence[Tracked]) -> Tracked:
    return Tracked(
        np.stack([row.value for row in rows]),
        np.stack([row.magnitude for row in rows]),
        primitives.lowest(*(row.quantum for row in rows)),
        np.stack([row.bound for row in rows]),
        primitives.proven(*rows),
    )


def _is_float(name: str) -> bool:
    return "float" in name
