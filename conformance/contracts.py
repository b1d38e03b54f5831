"""What a strategy promises, stated once and attached to the function that promises it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from conformance.collective import Collective
from conformance.errors import ContractError
from conformance.expressions import Expression
from conformance.notation import (
    ITEM_BYTES,
    ArraySpec,
    Operand,
    Signature,
    parse_operand,
    parse_signature,
)

AxisTypes = Literal["auto", "explicit"]
_AXIS_TYPES: tuple[AxisTypes, ...] = ("auto", "explicit")
FLOATS = ("f64", "f32", "bf16", "f16")

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A failure that is not the strategy's: of which check, where, and whose it is.

    Only problems in which the regular expression `shows` is found, in cases where the constraint
    `where` holds, are counted as known; `why` names the culprit and its versions. In `where`,
    `idle` is the number of devices along axes that the contract does not name.
    """

    check: str
    where: Expression
    shows: str
    why: str


def known_failure(check: str, *, where: str, shows: str, why: str) -> KnownFailure:
    """States a known failure, such as one of XLA's, for the `known` of a contract."""
    return KnownFailure(check, Expression(where), shows, why)


@dataclass(frozen=True, slots=True)
class Contract:
    """A strategy's promise: signature, reference, collectives, and where it holds.

    Built by `contract`; raises `ContractError` where two parts of it contradict each other.
    """

    signature: Signature
    reference: Callable[..., Any]
    collectives: tuple[Collective, ...]
    gradient: tuple[Collective, ...] | None
    differentiable: tuple[str, ...]
    axis_types: tuple[AxisTypes, ...]
    where: tuple[Expression, ...]
    dtypes: tuple[str, ...]
    ints: Mapping[str, tuple[Expression, Expression]] = field(hash=False)
    known: tuple[KnownFailure, ...] = ()
    refuses: tuple[tuple[Expression, str], ...] = ()
    accumulates: str | None = None
    memory: tuple[Operand, ...] = ()
    sizes: str | None = None

    def __post_init__(self) -> None:
        known = {*self.signature.axes, *self.signature.symbols}
        for collective in (*self.collectives, *(self.gradient or ())):
            names = {*collective.axes, *collective.operand.spec.axes}
            names |= {s for dim in collective.operand.spec.dims for s in dim.symbols}
            names |= collective.times.names if collective.times else set()
            _refuse_unknown(f"collective '{collective}'", names, known, self.signature)
            if stray := set(collective.axes) - set(self.signature.axes):
                raise ContractError(
                    f"collective '{collective}' runs over {_quoted(stray)}, which "
                    f"'{self.signature}' does not use as a mesh axis"
                )
        for expression in self.where:
            _refuse_unknown(f"where {expression.text!r}", expression.names, known, self.signature)
        for expression, _ in self.refuses:
            place = f"refuses {expression.text!r}"
            _refuse_unknown(place, expression.names, known, self.signature)
        if self.accumulates not in (None, *FLOATS):
            raise ContractError(f"accumulates: {self.accumulates!r} is none of {', '.join(FLOATS)}")
        if bool(self.memory) != (self.sizes is not None):
            raise ContractError("memory and sizes: give both, the ceiling and the case it holds on")
        for one in self.known:
            place = f"known {one.where.text!r}"
            _refuse_unknown(place, one.where.names, {*known, "idle"}, self.signature)
        for name, (low, high) in self.ints.items():
            _refuse_unknown(f"ints[{name!r}]", low.names | high.names, known, self.signature)
        _refuse_unknown("ints", self.ints.keys(), self.input_names, self.signature)
        _refuse_unknown("differentiable", self.differentiable, self.input_names, self.signature)
        for dtype in self.dtypes:
            if dtype not in ITEM_BYTES:
                raise ContractError(f"dtypes: {dtype!r} is none of {', '.join(ITEM_BYTES)}")
        _check_parameters("reference", self.reference, self.signature)

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that the strategy needs."""
        return self.signature.axes

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(spec.name for spec in self.signature.inputs)

    def refused(self, sizes: Mapping[str, int]) -> str | None:
        """The name of the error that the function raises on these sizes, None if it raises none."""
        return next((error for where, error in self.refuses if where.evaluate(sizes)), None)

    def travels_as(self, operand: ArraySpec, drawn: str) -> str:
        """The dtype of a collective's operand: its own, that of sums, or that of its array."""
        if operand.dtype is not None:
            return operand.dtype
        if drawn in FLOATS and operand.name in {spec.name for spec in self.signature.outputs}:
            return self.accumulates or self.dtype_of(operand.name, drawn)
        return self.dtype_of(operand.name, drawn)

    def dtype_of(self, name: str, drawn: str) -> str:
        """The dtype of the array `name`: what the signature fixes, else the one drawn."""
        for spec in self.signature.arrays:
            if spec.name == name and spec.dtype is not None:
                return spec.dtype
        return drawn


def contract(
    signature: str,
    *,
    reference: Callable[..., Any],
    collectives: Sequence[Collective] = (),
    gradient: Sequence[Collective] | None = None,
    differentiable: Sequence[str] | None = None,
    axis_types: AxisTypes | Sequence[AxisTypes] = _AXIS_TYPES,
    where: str | Sequence[str] = (),
    dtypes: Sequence[str] = ("f32", "bf16"),
    ints: Mapping[str, str] | None = None,
    known: Sequence[KnownFailure] = (),
    refuses: Mapping[str, str] | None = None,
    accumulates: str | None = None,
    memory: Sequence[str] = (),
    sizes: str | None = None,
) -> Callable[[Function], Function]:
    """States what the decorated function promises, and returns the same function.

    The function takes one array a signature input, by position, and one keyword for each mesh
    axis that the signature names (or none: then its axis names are fixed). Afterwards it has
    `.contract`.

    `signature`: shapes and shardings, in the book's notation.
    `reference`: the same computation without sharding; it may take axis sizes as keywords.
    `collectives`: what the forward program sends; what is not listed may not happen.
    `gradient`: the same for the gradient program; None leaves its collectives unjudged.
    `differentiable`: inputs that have a gradient, None for every float input, () for none.
    `axis_types`: the axis types of the meshes that the function serves.
    `where`: constraints among sizes, such as "S >= 4".
    `dtypes`: what inputs without a dtype are drawn from.
    `ints`: ranges of integer inputs, end excluded, such as {"ids": "0..E"}.
    `known`: failures that are not the strategy's own, each a `known_failure`.
    `refuses`: constraints under which the function raises, each with the error's name.
    `accumulates`: dtype of sums, "f32" for bf16 inputs: partial outputs travel in it too.
    `memory`: operands whose bytes together bound the forward's temporary memory, at `sizes`.
    `sizes`: the large case for `memory`, as a case id such as "dp=2,tp=4/B=64,D=64,F=128".

    Raises `ContractError` for malformed notation, for names that the signature does not know and
    for a function or reference whose parameters do not fit.
    """
    _require("signature", signature, str)
    parsed = parse_signature(signature)
    for keyword, given in (("collectives", collectives), ("gradient", gradient or ())):
        _require(keyword, given, Sequence, "a list of collectives")
        for one in given:
            _require(keyword, one, Collective, "a list of collectives, such as [all_reduce(...)]")
    for keyword, text in (
        ("where", where),
        ("dtypes", dtypes),
        ("differentiable", differentiable or ()),
    ):
        for part in (text,) if isinstance(text, str) else text:
            _require(keyword, part, str)
    if isinstance(differentiable, str):
        differentiable = (differentiable,)
    if isinstance(dtypes, str):
        dtypes = (dtypes,)
    if not dtypes:
        raise ContractError("dtypes: give at least one, such as ('f32', 'bf16')")
    if isinstance(axis_types, str):
        axis_types = (axis_types,)
    if not axis_types or not set(axis_types) <= set(_AXIS_TYPES):
        raise ContractError(f"axis_types: {axis_types!r} is none of {', '.join(_AXIS_TYPES)}")
    if differentiable is None:
        differentiable = [s.name for s in parsed.inputs if s.dtype is None or s.dtype in FLOATS]
    stated = Contract(
        signature=parsed,
        reference=reference,
        collectives=tuple(collectives),
        gradient=None if gradient is None else tuple(gradient),
        differentiable=tuple(differentiable),
        axis_types=tuple(axis_types),
        where=tuple(map(Expression, (where,) if isinstance(where, str) else where)),
        dtypes=tuple(dtypes),
        known=tuple(known),
        refuses=tuple((Expression(text), error) for text, error in (refuses or {}).items()),
        accumulates=accumulates,
        memory=tuple(map(parse_operand, memory)),
        sizes=sizes,
        ints=MappingProxyType({name: _range(text) for name, text in (ints or {}).items()}),
    )

    def attach(function: Function) -> Function:
        axis_keywords(function, stated)
        function.contract = stated  # type: ignore[attr-defined]
        return function

    return attach


def axis_keywords(function: Callable[..., Any], contract: Contract) -> tuple[str, ...]:
    """The contract's axes that `function` takes as keywords: all of them, or none.

    Raises `ContractError` where the function's parameters do not fit the contract.
    """
    name = getattr(function, "__name__", "function")
    parameters = _check_parameters(name, function, contract.signature)
    taken = tuple(axis for axis in contract.axes if axis in parameters)
    if taken and len(taken) < len(contract.axes):
        missing = [axis for axis in contract.axes if axis not in taken]
        raise ContractError(
            f"{name} takes {_quoted(taken)} as keywords but not {_quoted(missing)}; "
            f"take every axis of '{contract.signature}' as a keyword, or none"
        )
    return taken


def _check_parameters(
    name: str, function: Callable[..., Any], signature: Signature
) -> Mapping[str, inspect.Parameter]:
    """The parameters of `function` beyond the arrays, once the arrays are seen to bind."""
    if not callable(function):
        raise ContractError(f"{name}: expected a function; given {function!r}")
    parameters = inspect.signature(function).parameters
    positional = [
        p.name
        for p in parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        and not (p.default is not p.empty and p.name in signature.axes)
    ]
    required = [p for p in positional if parameters[p].default is inspect.Parameter.empty]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    wanted = len(signature.inputs)
    if len(required) > wanted or (len(positional) < wanted and not variadic):
        raise ContractError(
            f"{name} takes {len(positional)} arrays ({', '.join(positional)}); "
            f"'{signature}' has {wanted} inputs: give one parameter for each"
        )
    return {key: p for key, p in parameters.items() if key not in positional[:wanted]}


def _require(keyword: str, given: object, kind: type, wanted: str = "") -> None:
    """Raises `ContractError` unless `given` is of the kind that a keyword takes."""
    if not isinstance(given, kind) or (kind is Sequence and isinstance(given, str)):
        raise ContractError(
            f"{keyword}: expected {wanted or f'a {kind.__name__}'}; given {given!r}"
        )


def _range(text: str) -> tuple[Expression, Expression]:
    low, dots, high = text.partition("..")
    if not dots:
        raise ContractError("ints: expected a range, such as '0..E', end excluded", text, 0)
    return Expression(low.strip()), Expression(high.strip())


def _refuse_unknown(
    place: str, names: Sequence[str] | set[str] | frozenset[str] | Any, known: Any, signature: Any
) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise ContractError(f"{place} names {_quoted(unknown)}, which '{signature}' does not have")


def _quoted(names: Sequence[str] | set[str]) -> str:
    return ", ".join(repr(name) for name in names)
