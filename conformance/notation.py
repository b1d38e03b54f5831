"""The book's notation: `x[B_dp, D], w: i32[D, F_tp] -> out[B_dp, F_tp]`, from text to plain data.

One name space holds the sizes of dimensions and of mesh axes, since a dimension that is named
like an axis has that axis's size (`means[X_X, D]`). Every size here is a number of elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from conformance.errors import CaseError, ContractError

ITEM_BYTES: Mapping[str, int] = {
    "f64": 8,
    "f32": 4,
    "bf16": 2,
    "f16": 2,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
    "u32": 4,
    "u16": 2,
    "u8": 1,
    "bool": 1,
}
"""Bytes of one element, for each dtype that the notation can name."""

_SYMBOL = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension: a product of an integer and symbols, sharded as a whole over axes."""

    coefficient: int
    symbols: tuple[str, ...]
    axes: tuple[str, ...]

    def size(self, sizes: Mapping[str, int]) -> int:
        """The global size."""
        return self.coefficient * math.prod(sizes[symbol] for symbol in self.symbols)

    def shards(self, sizes: Mapping[str, int]) -> int:
        """Into how many blocks the dimension is cut."""
        return math.prod(sizes[axis] for axis in self.axes)

    def __str__(self) -> str:
        factors = [str(self.coefficient)] if self.coefficient != 1 or not self.symbols else []
        return "*".join([*factors, *self.symbols]) + _subscript(self.axes)


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape, sharding and perhaps dtype of one array, such as `x[B_dp, D]` or `C[I, K]{U_Y}`."""

    name: str
    dims: tuple[Dim, ...]
    dtype: str | None = None
    unreduced: tuple[str, ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that the array names, in order of appearance."""
        return tuple(axis for dim in self.dims for axis in dim.axes) + self.unreduced

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The global shape."""
        return tuple(dim.size(sizes) for dim in self.dims)

    def local_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of one shard; raises `CaseError` where axes do not divide a dimension."""
        for dim in self.dims:
            if dim.size(sizes) % dim.shards(sizes):
                raise CaseError(
                    f"{self}: dimension {dim} has {dim.size(sizes)} elements, which "
                    f"{' x '.join(f'{axis}={sizes[axis]}' for axis in dim.axes)} do not divide; "
                    f"give a multiple of {dim.shards(sizes)}"
                )
        return tuple(dim.size(sizes) // dim.shards(sizes) for dim in self.dims)

    def __str__(self) -> str:
        dtype = f": {self.dtype}" if self.dtype else ""
        unreduced = f"{{U{_subscript(self.unreduced)}}}" if self.unreduced else ""
        return f"{self.name}{dtype}[{', '.join(map(str, self.dims))}]{unreduced}"


@dataclass(frozen=True, slots=True)
class Operand:
    """What a collective takes on each device: the shard of a spec, times a factor."""

    spec: ArraySpec
    factor: Fraction = Fraction(1)

    def local_bytes(self, sizes: Mapping[str, int], dtype: str) -> Fraction:
        """Bytes on one device, for elements of `dtype`."""
        return self.factor * math.prod(self.spec.local_shape(sizes)) * ITEM_BYTES[dtype]

    def __str__(self) -> str:
        above = f"*{self.factor.numerator}" if self.factor.numerator != 1 else ""
        below = f"/{self.factor.denominator}" if self.factor.denominator != 1 else ""
        return f"{self.spec}{above}{below}"


@dataclass(frozen=True, slots=True)
class Signature:
    """Shapes and shardings of a strategy's inputs and outputs."""

    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that the signature names, in order of appearance."""
        return tuple(dict.fromkeys(axis for spec in self.arrays for axis in spec.axes))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The dimension symbols that are no axis, in order of appearance."""
        axes = self.axes
        symbols = (s for spec in self.arrays for dim in spec.dims for s in dim.symbols)
        return tuple(dict.fromkeys(symbol for symbol in symbols if symbol not in axes))

    def multiple_of(self, symbol: str, sizes: Mapping[str, int]) -> int:
        """The least number that `symbol` must be a multiple of, on axes of these sizes.

        In a product of several symbols the first one carries the divisor.
        """
        multiple = 1
        for dim in (dim for spec in self.arrays for dim in spec.dims):
            if next((s for s in dim.symbols if s not in self.axes), None) == symbol:
                shards = dim.shards(sizes)
                multiple = math.lcm(multiple, shards // math.gcd(shards, dim.coefficient))
        return multiple

    def __str__(self) -> str:
        sides = (", ".join(map(str, side)) for side in (self.inputs, self.outputs))
        return " -> ".join(sides)


def parse_signature(text: str) -> Signature:
    """Reads `x[B_dp, D], w[D, F_tp] -> out[B_dp, F_tp]`.

    Raises `ContractError`, pointing at the character, for wrong notation.
    """
    scanner = _Scanner(text)
    inputs = tuple(scanner.specs())
    scanner.expect("->", "',' and another input, or '->' and the outputs")
    outputs = tuple(scanner.specs())
    scanner.end("',' and another output, or the end")
    return Signature(inputs, outputs)


def parse_operand(text: str) -> Operand:
    """Reads a collective's operand, such as `lhs[B_X, D_Y]/2`.

    Raises `ContractError`, pointing at the character, for wrong notation.
    """
    scanner = _Scanner(text)
    spec = scanner.spec()
    factor = Fraction(1)
    while (sign := scanner.take("*") or scanner.take("/")) is not None:
        number = scanner.integer("a positive integer factor")
        factor = factor * number if sign == "*" else factor / number
    scanner.end("'*' or '/' and a factor, or the end")
    return Operand(spec, factor)


def _subscript(axes: tuple[str, ...]) -> str:
    if not axes:
        return ""
    return f"_{axes[0]}" if len(axes) == 1 else f"_{{{','.join(axes)}}}"


class _Scanner:
    """Reads notation left to right; each method takes one construct or says what was expected."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.names: set[str] = set()

    def fail(self, expected: str, at: int | None = None) -> ContractError:
        at = self.at if at is None else at
        found = f"found {self.text[at]!r}" if at < len(self.text) else "found the end of the text"
        return ContractError(f"expected {expected}; {found}", self.text, at)

    def skip_spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, token: str) -> str | None:
        self.skip_spaces()
        if not self.text.startswith(token, self.at):
            return None
        self.at += len(token)
        return token

    def expect(self, token: str, expected: str) -> None:
        if self.take(token) is None:
            raise self.fail(expected)

    def end(self, expected: str) -> None:
        self.skip_spaces()
        if self.at < len(self.text):
            raise self.fail(expected)

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        self.skip_spaces()
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.fail(expected)
        self.at = found.end()
        return found.group()

    def integer(self, expected: str) -> int:
        self.skip_spaces()
        start = self.at
        number = int(self.match(_INTEGER, expected))
        if number == 0:
            raise self.fail(expected, start)
        return number

    def specs(self) -> Iterator[ArraySpec]:
        while True:
            self.skip_spaces()
            start = self.at
            spec = self.spec()
            # An output may bear an input's name (`w[K, D] -> w[K, D]`), two inputs may not.
            if spec.name in self.names:
                raise ContractError(f"two arrays are named {spec.name!r}", self.text, start)
            self.names.add(spec.name)
            yield spec
            if self.take(",") is None:
                self.names.clear()
                return

    def spec(self) -> ArraySpec:
        name = self.match(_NAME, "the name of an array, such as 'x[B, D]'")
        dtype = self.dtype() if self.take(":") else None
        self.expect("[", f"'[' and the dimensions of {name!r}")
        used: set[str] = set()
        dims: list[Dim] = []
        if self.take("]") is None:
            dims.append(self.dim(used))
            while self.take("]") is None:
                self.expect(",", f"',' or ']' after dimension '{dims[-1]}'")
                dims.append(self.dim(used))
        return ArraySpec(name, tuple(dims), dtype, self.unreduced(used))

    def dtype(self) -> str:
        self.skip_spaces()
        start = self.at
        expected = f"a dtype, one of {', '.join(ITEM_BYTES)}"
        dtype = self.match(_NAME, expected)
        if dtype not in ITEM_BYTES:
            raise ContractError(f"expected {expected}; found {dtype!r}", self.text, start)
        return dtype

    def dim(self, used: set[str]) -> Dim:
        coefficient, symbols = 1, []
        while True:
            self.skip_spaces()
            if self.at < len(self.text) and self.text[self.at].isdigit():
                coefficient *= self.integer("a positive size")
            else:
                symbols.append(self.match(_SYMBOL, "a dimension: a symbol or a positive integer"))
            if self.take("*") is None:
                break
        axes = self.axes(used) if self.text.startswith("_", self.at) else ()
        return Dim(coefficient, tuple(symbols), axes)

    def axes(self, used: set[str]) -> tuple[str, ...]:
        self.at += len("_")
        braced = self.text.startswith("{", self.at) and self.take("{")
        axes = [self.axis(used)]
        while braced and self.take("}") is None:
            self.expect(",", f"',' or '}}' after axis {axes[-1]!r}")
            axes.append(self.axis(used))
        return tuple(axes)

    def axis(self, used: set[str]) -> str:
        self.skip_spaces()
        start = self.at
        axis = self.match(_NAME, "the name of a mesh axis")
        if axis in used:
            raise ContractError(
                f"axis {axis!r} stands twice in one array; an axis shards one dimension at most",
                self.text,
                start,
            )
        used.add(axis)
        return axis

    def unreduced(self, used: set[str]) -> tuple[str, ...]:
        if self.take("{") is None:
            return ()
        self.expect("U_", "'U_' and the axes over which the array is unreduced")
        self.at -= len("_")
        axes = self.axes(used)
        self.expect("}", "'}' after the unreduced axes")
        return axes
