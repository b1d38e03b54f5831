"""Placements on a mesh of dp and tp: which device holds which part of an array.

Source: Scaling Book, "Programming TPUs in JAX", sharding of arrays; "Sharded Matrices".
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from conformance import procedure

ROWS, COLUMNS = 8, 16
SHARDS = {
    P("dp", "tp"): (4, 4),
    P("dp", None): (4, 16),
    P(None, "tp"): (8, 4),
    P(): (8, 16),
}
"""For each spec, the shape that each device of a 2 x 4 mesh holds of an array of 8 x 16."""


def mesh_of(kind: AxisType) -> jax.sharding.Mesh:
    """The mesh of 2 x 4; the axis types are always named, since defaults have changed."""
    return jax.make_mesh((2, 4), ("dp", "tp"), (kind, kind))


def ways_to_place(spec: P) -> dict[str, jax.Array]:
    """The array 0, 1, 2, ... of 8 x 16, placed by `spec` in every way that JAX has."""
    values = jnp.arange(ROWS * COLUMNS, dtype=jnp.float32).reshape(ROWS, COLUMNS)
    mesh = mesh_of(AxisType.Auto)
    sharding = NamedSharding(mesh, spec)
    zeros = jnp.zeros((ROWS, COLUMNS), jnp.float32, device=sharding)
    placed = {
        "device_put to a NamedSharding": jax.device_put(values, sharding),
        "device= at creation": zeros + jax.device_put(values, sharding),
    }
    with jax.set_mesh(mesh):
        placed["device_put to a bare P under set_mesh"] = jax.device_put(values, spec)
    with jax.set_mesh(mesh_of(AxisType.Explicit)):
        zeros = jnp.zeros((ROWS, COLUMNS), jnp.float32, out_sharding=spec)
        placed["out_sharding= at creation"] = zeros + jax.device_put(values, spec)
    return placed


@procedure
def placements() -> Iterator[str]:
    """Four specs, each placed in four ways: local shapes, slices, copies, bytes on a device."""
    for spec, shape in SHARDS.items():
        for way, array in ways_to_place(spec).items():
            shards = array.addressable_shards
            assert {shard.data.shape for shard in shards} == {shape}, f"{spec} by {way}: shapes"
            yield f"{spec} by {way}: every device holds {shape}"

            for position, shard in enumerate(shards):
                dp, tp = divmod(position, 4)
                row = dp * shape[0] if shape[0] < ROWS else 0
                column = tp * shape[1] if shape[1] < COLUMNS else 0
                first = float(shard.data[0, 0])
                assert first == row * COLUMNS + column, f"{spec} by {way}: slices"
            yield f"{spec} by {way}: device (dp, tp) holds the block of its coordinates"

            copies: dict[str, list[bytes]] = {}
            for shard in shards:
                copies.setdefault(str(shard.index), []).append(bytes(shard.data))
            assert all(len(set(same)) == 1 for same in copies.values()), f"{spec} by {way}: copies"
            yield f"{spec} by {way}: {8 // len(copies)} copies of each block, all equal"

            assert {shard.data.nbytes for shard in shards} == {4 * shape[0] * shape[1]}
            yield f"{spec} by {way}: {4 * shape[0] * shape[1]} B on each device"
