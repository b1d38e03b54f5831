"""The tables that XLA leaves out of its text, from the same module in protobuf form.

A constant of more than ten elements prints as `constant({...})`. On meshes of more than ten
devices the tables that map a device to its coordinate are among them, and no slice could be proven
without them. Field numbers are those of XLA's `hlo.proto` and `xla_data.proto`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ELIDED = re.compile(
    r"%?([\w.\-]+) = ([su](?:8|16|32|64))\[\d+\](?:\{[^}]*\})? constant\((\{\.\.\.\})\)"
)
_COMPUTATIONS, _INSTRUCTIONS, _NAME, _LITERAL = 3, 2, 1, 8
# s8, u8 and 16-bit tables are raw bytes in the proto; XLA makes none of them for positions.
_ELEMENTS = {"s32": 4, "s64": 5, "u32": 6, "u64": 7}
_WIDTH = {1: 8, 5: 4}


def with_tables(text: str, proto: bytes) -> str:
    """The text with every one-dimensional integer table written out, `constant({0,1,2})`."""
    wanted = {found[1]: found[2] for found in _ELIDED.finditer(text)}
    if not wanted:
        return text
    tables = dict(_tables(proto, wanted))

    def written_out(found: re.Match[str]) -> str:
        table = tables.get(found[1])
        if table is None:
            return found[0]
        return found[0].replace("{...}", f"{{{', '.join(map(str, table))}}}")

    return _ELIDED.sub(written_out, text)


def _tables(proto: bytes, wanted: dict[str, str]) -> Iterator[tuple[str, list[int]]]:
    for computation in _messages(proto, _COMPUTATIONS):
        for instruction in _messages(computation, _INSTRUCTIONS):
            name = next(_messages(instruction, _NAME), b"").decode()
            dtype = wanted.get(name)
            if dtype in _ELEMENTS:
                for literal in _messages(instruction, _LITERAL):
                    packed = b"".join(_messages(literal, _ELEMENTS[dtype]))
                    yield name, [_signed(n, dtype) for n in _varints(packed)]


def _messages(buffer: bytes, field: int) -> Iterator[bytes]:
    """Each length-delimited value of one field of a message."""
    at = 0
    while at < len(buffer):
        tag, at = _varint(buffer, at)
        match tag & 7:
            case 0:
                _, at = _varint(buffer, at)
            case 2:
                length, at = _varint(buffer, at)
                if tag >> 3 == field:
                    yield buffer[at : at + length]
                at += length
            case width:
                at += _WIDTH[width]


def _varints(buffer: bytes) -> Iterator[int]:
    at = 0
    while at < len(buffer):
        number, at = _varint(buffer, at)
        yield number


def _varint(buffer: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def _signed(number: int, dtype: str) -> int:
    return number - (1 << 64) if dtype.startswith("s") and number >> 63 else number
