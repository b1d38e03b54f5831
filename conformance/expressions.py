"""Integer arithmetic over sizes, such as `Y//2`, `Y-1` or `E*C >= S`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.errors import CaseError, ContractError

_OPERATORS: dict[type[ast.AST], Callable[[int, int], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """An integer expression over sizes: names, integers, `+ - * // %`, comparisons, parentheses.

    Raises `ContractError`, pointing at the character, for anything else.
    """

    text: str
    names: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        try:
            body = ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            raise ContractError(
                f"expected an expression over sizes, such as 'Y-1': {error.msg}",
                self.text,
                max((error.offset or 1) - 1, 0),
            ) from None
        object.__setattr__(self, "names", frozenset(self._names(body)))

    def _names(self, node: ast.expr) -> list[str]:
        match node:
            case ast.Name(id=name):
                return [name]
            case ast.Constant(value=int()):
                return []
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._names(left) + self._names(right)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return self._names(left) + self._names(right)
            case _:
                raise ContractError(
                    "an expression over sizes has names, integers, + - * // %, "
                    "one comparison and parentheses only",
                    self.text,
                    node.col_offset,
                )

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value where each name has the size given; a comparison is 0 or 1."""

        def value(node: ast.expr) -> int:
            match node:
                case ast.Name(id=name):
                    return sizes[name]
                case ast.Constant(value=int(constant)):
                    return constant
                case ast.BinOp(left=left, op=op, right=right):
                    return int(_OPERATORS[type(op)](value(left), value(right)))
                case ast.Compare(left=left, ops=[op], comparators=[right]):
                    return int(_OPERATORS[type(op)](value(left), value(right)))
            raise AssertionError(f"checked at construction: {ast.dump(node)}")

        try:
            return value(ast.parse(self.text, mode="eval").body)
        except ZeroDivisionError:
            raise CaseError(f"{self.text!r} divides by zero on these sizes") from None

    def __str__(self) -> str:
        return self.text
