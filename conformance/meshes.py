"""The mesh that a case asks for, and partition specs over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from conformance.case import Case
from conformance.notation import ArraySpec

if TYPE_CHECKING:
    import jax


def build_mesh(case: Case, devices: Sequence[jax.Device]) -> jax.sharding.Mesh:
    """The mesh of the case over the first of `devices`, in the order that the case asks for."""
    import jax

    names = tuple(name for name, _ in case.mesh_axes)
    shape = tuple(size for _, size in case.mesh_axes)
    chosen = np.empty(case.devices, dtype=object)
    # The legacy generator: its stream is frozen, so an id means the same order for ever.
    order = np.random.RandomState(case.order).permutation(case.devices) if case.order else None
    for position in range(case.devices):
        chosen[position] = devices[position if order is None else int(order[position])]
    kind = {"auto": jax.sharding.AxisType.Auto, "explicit": jax.sharding.AxisType.Explicit}
    return jax.sharding.Mesh(
        chosen.reshape(shape), names, axis_types=(kind[case.axis_types],) * len(names)
    )


def partition_spec(
    spec: ArraySpec, bindings: Mapping[str, str | tuple[str, ...]]
) -> jax.sharding.PartitionSpec:
    """The `PartitionSpec` of an array, with the mesh axes bound to the contract's axes."""
    import jax

    def entry(axes: tuple[str, ...]) -> str | tuple[str, ...] | None:
        names = [name for axis in axes for name in _as_tuple(bindings[axis])]
        return None if not names else names[0] if len(names) == 1 else tuple(names)

    entries = [entry(dim.axes) for dim in spec.dims]
    if spec.unreduced:
        over = {name for axis in spec.unreduced for name in _as_tuple(bindings[axis])}
        return jax.sharding.PartitionSpec(*entries, unreduced=over)
    return jax.sharding.PartitionSpec(*entries)


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
