"""The text of a compiled module, read into computations and instructions.

Every instruction's head is read, by one anchored pattern; what follows the opcode stays text until
somebody asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from conformance.hlo.error import HloError
from conformance.hlo.opcodes import is_known
from conformance.hlo.shapes import Shape, parse_shape

_HEAD = re.compile(r"  (ROOT )?%?([^\s=]+) = (\S.*?) ([a-z][a-z0-9\-]*)\((.*)", re.DOTALL)
_HEADER = re.compile(r"(ENTRY )?%?(\S+) \(.*\) -> .* \{$")
_FIRST = re.compile(r"\n(?=(?:ENTRY |%).*\{$)", re.MULTILINE)
_MODULE = re.compile(r"HloModule ([^\s,]+)(.*)")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|branch_computations|true_computation|false_computation"
    r"|called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_FILE = re.compile(r'^(\d+) "(.*)"$', re.MULTILINE)
_LOCATION = re.compile(r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)", re.MULTILINE)
_FRAME = re.compile(r"^(\d+) \{file_location_id=(\d+)", re.MULTILINE)
_CALLEE = re.compile(r"[\w.\-]+")


class Instruction(NamedTuple):
    """One instruction; operands and attributes are read from `rest` when asked for."""

    name: str
    opcode: str
    shape_text: str
    rest: str
    computation: str
    is_root: bool
    line_number: int

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return parse_shape(self.shape_text)

    @property
    def operand_text(self) -> str:
        """What stands between the parentheses: operands, or the literal of a constant."""
        return self.rest[: self._operands_end()]

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(_NAME.findall(self.operand_text))

    @property
    def attributes(self) -> str:
        """The text after the operands."""
        return self.rest[self._operands_end() + 1 :]

    @property
    def called(self) -> Mapping[str, tuple[str, ...]]:
        """The computations that it calls, by the name of the attribute."""
        # Metadata, which may hold any text of the user's, comes after them.
        before, _, _ = self.rest.partition(", metadata=")
        return {key: tuple(_CALLEE.findall(v)) for key, v in _CALLED.findall(before)}

    def attribute(self, name: str) -> str | None:
        """The text of an attribute's value up to the next comma that is not in brackets."""
        found = re.search(rf"(?:^|[ ,]){name}=", self.attributes)
        if found is None:
            return None
        text = self.attributes[found.end() :]
        depth = 0
        for index, character in enumerate(text):
            if character in "{[(":
                depth += 1
            elif character in "}])":
                depth -= 1
            elif character == "," and depth == 0:
                return text[:index]
        return text.rstrip()

    def error(self, message: str) -> HloError:
        """An error that points at this instruction."""
        head = f"%{self.name} = {self.shape_text} {self.opcode}({self.rest}"
        return HloError(message, self.line_number, head)

    def _operands_end(self) -> int:
        first = self.rest.find(")")
        if first >= 0 and "(" not in self.rest[:first]:
            return first
        depth = 1
        for found in re.finditer(r"[()]", self.rest):
            depth += 1 if found.group() == "(" else -1
            if depth == 0:
                return found.start()
        raise self.error("expected ')' after the operands; the text is cut off")


@dataclass(frozen=True, slots=True)
class Computation:
    """Instructions by name, in the order of the text, which is the order of the schedule."""

    name: str
    instructions: Mapping[str, Instruction]
    root: Instruction


@dataclass(frozen=True, slots=True)
class Module:
    """A whole program: its computations, the entry among them, and where its lines come from."""

    name: str
    computations: Mapping[str, Computation]
    entry: Computation
    partitions: int
    instruction_count: int
    frames: Mapping[int, tuple[str, int]]

    def computation(self, name: str, caller: Instruction) -> Computation:
        """The computation called `name`; raises `HloError` where `caller` names none."""
        found = self.computations.get(name)
        if found is None:
            raise caller.error(f"there is no computation {name!r}")
        return found

    def operands(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instructions that give the operands; raises `HloError` where one is not there."""
        known = self.computations[instruction.computation].instructions
        try:
            return tuple([known[name] for name in instruction.operands])
        except KeyError as missing:
            raise instruction.error(f"there is no operand {missing}") from None

    def operand(self, instruction: Instruction, index: int) -> Instruction:
        """The instruction that gives one operand; raises `HloError` where there is none."""
        operands = self.operands(instruction)
        if index >= len(operands):
            raise instruction.error(f"there is no operand {index}")
        return operands[index]


def count_instructions(text: str) -> int:
    """How many instructions the text prints, counted without parsing it."""
    return text.count("\n  %") + text.count("\n  ROOT %")


def parse(text: str) -> Module:
    """Reads the text of a compiled module.

    Raises `HloError`, with the line, for text that is cut off or of an unknown form, and where
    another instruction count says that something was passed over.
    """
    lines = text.split("\n")
    header = _MODULE.match(lines[0])
    if header is None:
        raise HloError("expected 'HloModule NAME'", 1, lines[0])
    computations: dict[str, Computation] = {}
    entry: str | None = None
    name: str | None = None
    instructions: dict[str, Instruction] = {}
    root: Instruction | None = None
    count = 0
    match = _HEAD.match
    known: set[str] = set()
    shapes: set[str] = set()
    # The tables before the first computation have their own reader.
    first = _FIRST.search(text)
    skipped = text.count("\n", 0, first.start()) + 1 if first else len(lines)
    numbered = iter(enumerate(lines[skipped:], skipped + 1))
    for number, line in numbered:
        while line.count('"') % 2:
            line = _joined(number, line, numbered)
        if name is not None and line.startswith("  "):
            found = match(line)
            if found is None:
                raise HloError("expected an instruction '%name = shape opcode(...)'", number, line)
            is_root, inner, shape, opcode, rest = found.groups()
            if opcode not in known:
                if not is_known(opcode):
                    raise HloError(f"unknown opcode {opcode!r}", number, line)
                known.add(opcode)
            if shape not in shapes:
                _check_shape(shape, number, line)
                shapes.add(shape)
            if inner in instructions:
                raise HloError(f"there are two instructions {inner!r}", number, line)
            instructions[inner] = instruction = Instruction(
                inner, opcode, shape, rest, name, is_root is not None, number
            )
            count += 1
            if is_root:
                if root is not None:
                    raise HloError("there are two ROOT instructions", number, line)
                root = instruction
        elif line.startswith("}"):
            if name is None or root is None:
                raise HloError("expected a computation with a ROOT before '}'", number, line)
            computations[name] = Computation(name, instructions, root)
            name, root, instructions = None, None, {}
        elif line.endswith("{") and (opening := _HEADER.match(line)):
            if name is not None:
                raise HloError(f"expected '}}' at the end of {name!r}", number, line)
            name = opening[2]
            if name in computations or (opening[1] and entry is not None):
                raise HloError(
                    "there are two computations of this name, or two ENTRY", number, line
                )
            entry = name if opening[1] else entry
        elif line and (name is not None or computations):
            raise HloError("expected an instruction, a computation, or '}'", number, line)
    if name is not None:
        raise HloError(f"the text is cut off within {name!r}", len(lines), lines[-1])
    if entry is None:
        raise HloError("expected an ENTRY computation", len(lines), lines[-1])
    if (printed := count_instructions(text)) != count:
        raise HloError(f"{printed} instructions are printed and {count} were read")
    partitions = re.search(r"num_partitions=(\d+)", header[2])
    replicas = re.search(r"replica_count=(\d+)", header[2])
    if replicas is not None and replicas[1] != "1":
        raise HloError("replicas beside partitions are not known", 1, lines[0])
    return Module(
        header[1],
        computations,
        computations[entry],
        int(partitions[1]) if partitions else 1,
        count,
        _frames(text),
    )


def _check_shape(text: str, number: int, line: str) -> None:
    try:
        parse_shape(text)
    except HloError as error:
        raise HloError(error.reason, number, line) from None


def _joined(number: int, line: str, following: Iterator[tuple[int, str]]) -> str:
    """A line whose string goes on in the next one, with the next one."""
    _, more = next(following, (0, None))
    if more is None:
        raise HloError("expected a closing quote; the text is cut off", number, line)
    return f"{line}\n{more}"


def _frames(text: str) -> dict[int, tuple[str, int]]:
    """File and line of each stack frame, from the tables that precede the computations."""

    def table(title: str, row: re.Pattern[str]) -> list[Any]:
        _, _, after = text.partition(f"\n{title}\n")
        return row.findall(after.partition("\n\n")[0])

    files = dict(table("FileNames", _FILE))
    places = {number: (file, line) for number, file, line in table("FileLocations", _LOCATION)}
    frames = {}
    for number, location in table("StackFrames", _FRAME):
        file, line = places.get(location, ("", "0"))
        if file in files:
            frames[int(number)] = files[file], int(line)
    return frames
