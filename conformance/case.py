"""One case: a mesh, sizes, dtype, axis types and data, and the id that can be typed back."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from conformance.contracts import AxisTypes, Contract
from conformance.errors import CaseError
from conformance.notation import ITEM_BYTES

Data = Literal["exact", "real", "cancelling"]
_GRAMMAR = "dp=2,tp=3,+z=1/B=4,D=6,F=9/f32/explicit/order=7/names=1/data=exact/seed=0"
_NUMBERS = 1 << 32
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Axis:
    """One mesh axis of a contract, or an extra one that the contract does not name.

    More than one part means that the contract's axis is a tuple of mesh axes, major first.
    """

    name: str
    parts: tuple[int, ...]
    extra: bool = False

    @property
    def size(self) -> int:
        """The number of devices along the axis."""
        return math.prod(self.parts)

    def __str__(self) -> str:
        return f"{'+' if self.extra else ''}{self.name}={'*'.join(map(str, self.parts))}"


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that one observation depends on; `str(case)` is its id, `parse_case` reads it.

    `order` numbers a shuffle of the devices (0: as they come), `names` a renaming of the mesh
    axes (0: as the contract names them), `seed` the data.
    """

    mesh: tuple[Axis, ...]
    dims: tuple[tuple[str, int], ...]
    dtype: str = "f32"
    axis_types: AxisTypes = "auto"
    order: int = 0
    names: int = 0
    data: Data = "exact"
    seed: int = 0

    def __post_init__(self) -> None:
        for what, names in (
            ("mesh axis", [axis.name for axis in self.mesh]),
            ("dimension", [name for name, _ in self.dims]),
        ):
            for name in names:
                if names.count(name) > 1:
                    raise CaseError(f"{what} {name!r} is given twice; give it one size")
        for name, size in [*((a.name, min(a.parts)) for a in self.mesh), *self.dims]:
            if size < 1:
                raise CaseError(f"{name}={size}: a size is a positive integer")
        for name, number in (("order", self.order), ("names", self.names), ("seed", self.seed)):
            if not 0 <= number < _NUMBERS:
                raise CaseError(f"{name}={number}: expected 0 to {_NUMBERS - 1}")
        if self.dtype not in ITEM_BYTES:
            raise CaseError(f"dtype {self.dtype!r} is none of {', '.join(ITEM_BYTES)}")
        if self.axis_types not in get_args(AxisTypes):
            raise CaseError(f"axis types {self.axis_types!r} are none of auto, explicit")
        if self.data not in get_args(Data):
            raise CaseError(f"data {self.data!r} is none of {', '.join(get_args(Data))}")

    @property
    def devices(self) -> int:
        """How many devices the mesh has."""
        return math.prod(axis.size for axis in self.mesh)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of dimensions and axes, in the one name space of the notation."""
        return {**dict(self.dims), **{axis.name: axis.size for axis in self.mesh}}

    @property
    def mesh_axes(self) -> tuple[tuple[str, int], ...]:
        """Name and size of each axis of the mesh to build, renamed and in mesh order."""
        return tuple(
            (name, size)
            for axis in self.mesh
            for name, size in zip(self._names(axis), axis.parts, strict=True)
        )

    @property
    def bindings(self) -> Mapping[str, str | tuple[str, ...]]:
        """What the candidate is given for each axis of the contract: a name, or several."""
        named = {axis.name: self._names(axis) for axis in self.mesh if not axis.extra}
        return {axis: names[0] if len(names) == 1 else names for axis, names in named.items()}

    def _names(self, axis: Axis) -> tuple[str, ...]:
        stem = f"renamed{self.mesh.index(axis)}" if self.names else axis.name
        if len(axis.parts) == 1:
            return (stem,)
        return tuple(f"{stem}_{part}" for part in range(len(axis.parts)))

    @property
    def program(self) -> Case:
        """The case without its data: two cases with the same program compile to the same text."""
        return dataclasses.replace(self, data="exact", seed=0)

    def check(self, contract: Contract) -> None:
        """Raises `CaseError`, which names what to change, where the case does not fit."""
        given = self.sizes
        for name in contract.axes:
            if name not in {axis.name for axis in self.mesh if not axis.extra}:
                raise CaseError(
                    f"the mesh {_mesh_text(self.mesh)} lacks axis {name!r} of "
                    f"'{contract.signature}'; add {name}=SIZE"
                )
        for axis in self.mesh:
            if not axis.extra and axis.name not in contract.axes:
                raise CaseError(
                    f"'{contract.signature}' does not name axis {axis.name!r}; "
                    f"write +{axis.name}={axis.size} to add one that the strategy does not use"
                )
        for symbol in contract.signature.symbols:
            if symbol not in given:
                raise CaseError(f"no size for {symbol!r} of '{contract.signature}'")
        for name, _ in self.dims:
            if name not in contract.signature.symbols:
                raise CaseError(
                    f"'{contract.signature}' has no dimension {name!r}; its dimensions are "
                    f"{', '.join(contract.signature.symbols) or 'none'}"
                )
        for spec in contract.signature.arrays:
            spec.local_shape(given)
        for expression in contract.where:
            if not expression.evaluate(given):
                sizes = ", ".join(f"{name}={given[name]}" for name in sorted(expression.names))
                raise CaseError(f"the contract holds where {expression}; given {sizes}")
        if self.axis_types not in contract.axis_types:
            raise CaseError(
                f"axis types {self.axis_types!r}: the contract admits "
                f"{', '.join(contract.axis_types)}"
            )
        if self.dtype not in contract.dtypes:
            raise CaseError(
                f"dtype {self.dtype!r}: the contract admits {', '.join(contract.dtypes)}"
            )

    def __str__(self) -> str:
        parts = [
            _mesh_text(self.mesh),
            ",".join(f"{name}={size}" for name, size in self.dims),
            self.dtype,
            self.axis_types,
        ]
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        for name in ("order", "names", "data", "seed"):
            if getattr(self, name) != defaults[name]:
                parts.append(f"{name}={getattr(self, name)}")
        return "/".join(parts)


def parse_case(text: str) -> Case:
    """Reads a case's id, such as `dp=2,tp=3/B=4,D=6,F=9/f32/explicit/order=7`.

    Mesh and dimensions come first and stand always; the rest may be left out, and then means
    f32, auto, and 0. Raises `CaseError`.
    """
    mesh, slash, rest = text.partition("/")
    if not slash:
        raise CaseError(f"case {text!r}: expected MESH/DIMS/..., such as {_GRAMMAR!r}")
    dims, *settings = rest.split("/")
    given: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            name, value = ("dtype" if setting in ITEM_BYTES else "axis_types"), setting
        if name not in ("dtype", "axis_types", "order", "names", "data", "seed") or name in given:
            raise CaseError(f"case {text!r}: unexpected {setting!r}; expected as in {_GRAMMAR!r}")
        given[name] = value
    numbers = {
        name: _integer(given.pop(name), text, name)
        for name in ("order", "names", "seed")
        if name in given
    }
    return Case(
        parse_mesh(mesh),
        parse_dims(dims),
        dtype=given.get("dtype", "f32"),
        axis_types=cast(AxisTypes, given.get("axis_types", "auto")),
        data=cast(Data, given.get("data", "exact")),
        **numbers,
    )


def parse_mesh(text: str) -> tuple[Axis, ...]:
    """Reads `dp=2,tp=2*3,+z=1`; `+` marks an axis that the contract does not name."""
    axes = []
    for part in filter(None, text.split(",")):
        name, sizes = _assignment(part.removeprefix("+"), "mesh", text)
        axes.append(
            Axis(
                name,
                tuple(_integer(size, text, name) for size in sizes.split("*")),
                extra=part.startswith("+"),
            )
        )
    return tuple(axes)


def parse_dims(text: str) -> tuple[tuple[str, int], ...]:
    """Reads `B=4,D=6`; a symbol that is bound to two sizes is a `CaseError`."""
    pairs = [_assignment(part, "dims", text) for part in filter(None, text.split(","))]
    return tuple((name, _integer(size, text, name)) for name, size in pairs)


def _assignment(part: str, what: str, text: str) -> tuple[str, str]:
    name, equals, value = part.strip().partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise CaseError(f"{what} {text!r}: expected NAME=SIZE; found {part!r}")
    return name, value


def _integer(value: str, text: str, name: str) -> int:
    if not value.isdecimal():
        raise CaseError(f"{text!r}: {name} is a whole number; found {value!r}")
    return int(value)


def _mesh_text(mesh: tuple[Axis, ...]) -> str:
    return ",".join(map(str, mesh))
