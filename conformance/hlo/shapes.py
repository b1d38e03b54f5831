"""Shapes as HLO prints them: `f32[2,3]{1,0}`, `(f32[2], s32[])`."""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple

from conformance.hlo.error import HloError

_BITS = {
    "pred": 8,
    "s2": 2, "u2": 2, "s4": 4, "u4": 4,
    "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64,
    "f4e2m1fn": 4, "f8e3m4": 8, "f8e4m3": 8, "f8e4m3b11fnuz": 8, "f8e4m3fn": 8, "f8e4m3fnuz": 8,
    "f8e5m2": 8, "f8e5m2fnuz": 8, "f8e8m0fnu": 8,
    "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
    "token": 0, "opaque": 0,
}  # fmt: skip

# After the dims: a layout, with tiling and memory space, which has no bearing on what is sent.
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\](?:\{[^}]*\})?")
_COMMENT = re.compile(r"/\*.*?\*/")


class Shape(NamedTuple):
    """An array's dtype and dims, or a tuple's elements (and then the dtype is "tuple")."""

    dtype: str
    dims: tuple[int, ...] = ()
    elements: tuple[Shape, ...] = ()

    @property
    def size(self) -> int:
        """The number of elements of an array."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes of the array, or of all the tuple's arrays."""
        if self.dtype == "tuple":
            return sum(element.bytes for element in self.elements)
        return -(-self.size * _BITS[self.dtype] // 8)

    def __str__(self) -> str:
        if self.dtype == "tuple":
            return f"({', '.join(map(str, self.elements))})"
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@functools.lru_cache(maxsize=4096)
def parse_shape(text: str) -> Shape:
    """Reads a shape; raises `HloError` for an unknown dtype or other text."""
    text = _COMMENT.sub("", text).strip()
    shape, end = _shape(text, 0)
    if end != len(text):
        raise HloError("expected the end of a shape", line=text)
    return shape


def _shape(text: str, at: int) -> tuple[Shape, int]:
    if text.startswith("(", at):
        elements: list[Shape] = []
        at += 1
        while not text.startswith(")", at):
            element, at = _shape(text, at)
            elements.append(element)
            while text[at : at + 1] in (",", " "):
                at += 1
            if at >= len(text):
                raise HloError("expected ')' at the end of a tuple shape", line=text)
        return Shape("tuple", (), tuple(elements)), at + 1
    found = _ARRAY.match(text, at)
    if found is None or found[1] not in _BITS:
        raise HloError("expected a shape of a known dtype, such as f32[2,3]", line=text)
    dims = tuple(int(dim.strip().removeprefix("<=")) for dim in found[2].split(",") if dim)
    return Shape(found[1], dims), found.end()
