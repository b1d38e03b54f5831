"""Where a value goes and where it comes from, through the hops that leave it as it is."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from conformance.hlo.text import Instruction, Module

_PLAIN_HOPS = frozenset({"bitcast", "copy", "convert", "reshape", "optimization-barrier"})
_CALLS = frozenset({"fusion", "call"})
_LARGEST_TABLE = 65_536


class Use(NamedTuple):
    """The first instruction that does something with a value, and as which operand.

    `dtypes` are the element types that the value had on its way there, its own first.
    """

    instruction: Instruction
    operand: int
    dtypes: tuple[str, ...]


class Dataflow:
    """Uses, producers and position-dependent integers of a module."""

    def __init__(self, module: Module) -> None:
        self.module = module

    @functools.cached_property
    def _users(self) -> Mapping[tuple[str, str], Sequence[tuple[Instruction, int]]]:
        users = defaultdict(list)
        for instruction in self._instructions():
            if instruction.opcode != "constant":
                for index, name in enumerate(instruction.operands):
                    users[instruction.computation, name].append((instruction, index))
        return users

    @functools.cached_property
    def _callers(self) -> Mapping[str, Sequence[Instruction]]:
        callers = defaultdict(list)
        for instruction in self._instructions():
            if instruction.opcode in _CALLS:
                for callee in itertools.chain(*instruction.called.values()):
                    callers[callee].append(instruction)
        return callers

    def _instructions(self) -> Iterator[Instruction]:
        for computation in self.module.computations.values():
            yield from computation.instructions.values()

    def uses(self, instruction: Instruction, element: int | None = None) -> tuple[Use, ...]:
        """What is done with a result (or with one element of a tuple), past all plain hops.

        Hops are bitcast, copy, convert, reshape, barriers, tuples and their elements, `-done`, and
        the ways into and out of fusions. A root that leaves the program or a loop body is a use.
        """
        shape = instruction.shape
        if element is not None:
            shape = shape.elements[element]
        return tuple(self._uses(instruction, element, (shape.dtype,)))

    def origin(self, at: Instruction) -> tuple[Instruction, tuple[str, ...]]:
        """What computes a value, past all plain hops, and its dtypes on the way, its own last."""
        dtypes = [at.shape.dtype]
        while (before := self._before(at)) is not None:
            at = before
            dtypes.append(at.shape.dtype)
        return at, tuple(reversed(dtypes))

    def position_value(self, instruction: Instruction, position: int) -> int | None:
        """A one-element integer as it is on the device at `position`; None if data decide it."""
        values = self._values(instruction, position)
        return values[0] if values is not None and len(values) == 1 else None

    def _uses(
        self, value: Instruction, element: int | None, dtypes: tuple[str, ...]
    ) -> Iterator[Use]:
        if value.is_root:
            callers = self._callers.get(value.computation, [])
            if not callers:
                yield Use(value, 0, dtypes)
            for caller in callers:
                yield from self._uses(caller, element, dtypes)
        for user, index in self._users.get((value.computation, value.name), ()):
            if user.opcode == "get-tuple-element" and element is not None:
                if user.attribute("index") == str(element):
                    yield from self._uses(user, None, dtypes)
            elif user.opcode in _PLAIN_HOPS or user.opcode.endswith("-done"):
                kept = user.shape.dtype
                seen = dtypes if kept in (dtypes[-1], "tuple") else (*dtypes, kept)
                yield from self._uses(user, element if kept == "tuple" else None, seen)
            elif user.opcode == "tuple" and element is None:
                yield from self._uses(user, index, dtypes)
            elif user.opcode in _CALLS:
                for parameter in self._parameters(user, index):
                    yield from self._uses(parameter, element, dtypes)
            else:
                yield Use(user, index, dtypes)

    def _parameters(self, caller: Instruction, index: int) -> Iterator[Instruction]:
        for name in itertools.chain(*caller.called.values()):
            for inner in self.module.computation(name, caller).instructions.values():
                if inner.opcode == "parameter" and inner.operand_text == str(index):
                    yield inner

    def _before(self, at: Instruction) -> Instruction | None:
        """The instruction that gives the same value one plain hop earlier."""
        if at.opcode in _PLAIN_HOPS and at.shape.dtype != "tuple":
            return self.module.operand(at, 0)
        if at.opcode == "get-tuple-element":
            source = self.module.operand(at, 0)
            if source.opcode == "tuple":
                return self.module.operand(source, int(at.attribute("index") or 0))
            return None
        if at.opcode in _CALLS:
            (name,) = itertools.chain(*at.called.values())
            root = self.module.computation(name, at).root
            return None if root.opcode == "tuple" else root
        if at.opcode == "parameter":
            callers = self._callers.get(at.computation, [])
            if len(callers) == 1:
                return self.module.operand(callers[0], int(at.operand_text))
        return None

    def _values(self, at: Instruction, position: int) -> list[int] | None:
        if at.shape.dtype == "tuple" or at.shape.size > _LARGEST_TABLE:
            return None
        match at.opcode:
            case "partition-id":
                return [position]
            case "replica-id":
                return [0]
            case "constant":
                return _literal(at.operand_text)
            case "convert" if not at.shape.dtype.startswith(("s", "u", "pred")):
                return None
        earlier = self._before(at)
        if earlier is not None:
            return self._values(earlier, position)
        if at.opcode in ("parameter", "get-tuple-element", "while", "conditional"):
            return None
        operands = []
        for operand in self.module.operands(at):
            values = self._values(operand, position)
            if values is None:
                return None
            operands.append(values)
        return self._combined(at, operands)

    def _combined(self, at: Instruction, operands: list[list[int]]) -> list[int] | None:
        size = at.shape.size
        if at.opcode == "broadcast":
            return operands[0] * size if len(operands[0]) == 1 else None
        if at.opcode == "dynamic-slice":
            dims = self.module.operand(at, 0).shape.dims
            starts = [
                max(0, min(start[0], whole - part))
                for start, whole, part in zip(operands[1:], dims, at.shape.dims, strict=True)
            ]
            return _block(operands[0], dims, starts, at.shape.dims)
        if at.opcode == "slice":
            limits = re.findall(r"(\d+):(\d+)(?::(\d+))?", at.attribute("slice") or "")
            if any(step not in ("", "1") for _, _, step in limits):
                return None
            starts = [int(low) for low, _, _ in limits]
            return _block(operands[0], self.module.operand(at, 0).shape.dims, starts, at.shape.dims)
        if at.opcode == "compare":
            compare = _COMPARISONS[at.attribute("direction") or ""]
            return [int(compare(*pair)) for pair in zip(*operands, strict=True)]
        rule = _ELEMENTWISE.get(at.opcode)
        if rule is None or any(len(operand) not in (1, size) for operand in operands):
            return None
        wide = [operand * size if len(operand) == 1 else operand for operand in operands]
        values = [rule(*row) for row in zip(*wide, strict=True)]
        return values if at.shape.dtype != "pred" else [int(bool(value)) for value in values]


def _divide(a: int, b: int) -> int:
    return int(math.copysign(abs(a) // abs(b), a * b)) if b else 0


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}

_ELEMENTWISE: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": _divide,
    "remainder": lambda a, b: a - b * _divide(a, b),
    "negate": lambda a: -a,
    "maximum": max,
    "minimum": min,
    "clamp": lambda low, value, high: max(low, min(value, high)),
    "select": lambda choice, yes, no: yes if choice else no,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: 1 - a if a in (0, 1) else ~a,
    "shift-left": lambda a, b: a << b,
    "shift-right-logical": lambda a, b: a >> b,
    "shift-right-arithmetic": lambda a, b: a >> b,
}


def _literal(text: str) -> list[int] | None:
    words = re.findall(r"true|false|-?\d+(?:\.\d+|[eE.][\d+-]*)?|[^\s{},]+", text)
    if not all(re.fullmatch(r"true|false|-?\d+", word) for word in words):
        return None
    return [int(word == "true") if word in ("true", "false") else int(word) for word in words]


def _block(
    flat: Sequence[int], dims: Sequence[int], starts: Sequence[int], sizes: Sequence[int]
) -> list[int]:
    strides = [math.prod(dims[index + 1 :]) for index in range(len(dims))]
    return [
        flat[sum((s + i) * stride for s, i, stride in zip(starts, indices, strides, strict=True))]
        for indices in itertools.product(*map(range, sizes))
    ]
