"""Automatic sharding: the compiler partitions a plain matmul, and only its output is pinned.

Contracting a dimension that is sharded over Y leaves each device with a partial sum. To end at
`Out[B_X, F]` the partial sums are all-reduced over Y; to end at `Out[B_X, F_Y]` a reduce-scatter
is enough, which costs half as much: V / W instead of 2V / W for an output of V bytes.

The output is pinned in three ways: by a constraint inside the function, which holds in a caller's
`jit` and under `grad` too; by `jit(out_shardings=...)`, which holds at the outermost `jit` only;
and ahead of time, for shapes that no array has yet.

Needs a mesh of automatic axes. With explicit axes the same contraction is ambiguous, and refused.

Source: Scaling Book, "Programming TPUs in JAX", automatic sharding; "Sharded Matrices", case 3.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from conformance import all_gather, all_reduce, contract, reduce_scatter
from strategies.known import GATHERED_TWICE, SCATTERED_OVER_AN_IDLE_AXIS


def squared_matmul(x: jax.Array, w: jax.Array) -> jax.Array:
    """`x[B, D], w[D, F] -> out[B, F]`, squaring `x` first, with no word about devices."""
    return jnp.square(x) @ w


to_all_reduce = partial(
    contract,
    "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F]",
    reference=squared_matmul,
    collectives=[all_reduce("Y", "out[B_X, F]")],
    gradient=[all_reduce("X", "w[D_Y, F]")],
    axis_types="auto",
    dtypes=("f32", "bf16", "i32"),
)

to_reduce_scatter = partial(
    contract,
    "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F_Y]",
    reference=squared_matmul,
    collectives=[reduce_scatter("Y", "out[B_X, F]")],
    gradient=[all_gather("Y", "out[B_X, F_Y]"), all_reduce("X", "w[D_Y, F]")],
    known=[GATHERED_TWICE, SCATTERED_OVER_AN_IDLE_AXIS],
    axis_types="auto",
    dtypes=("f32", "bf16", "i32"),
)


@to_all_reduce()
@partial(jax.jit, static_argnames=("X", "Y"))
def matmul_all_reduce(x: jax.Array, w: jax.Array, *, X: str = "X", Y: str = "Y") -> jax.Array:
    """`x[B_X, D_Y], w[D_Y, F] -> out[B_X, F]`: every device of Y gets the whole sum."""
    return jax.lax.with_sharding_constraint(squared_matmul(x, w), P(X, None))


@to_reduce_scatter()
@partial(jax.jit, static_argnames=("X", "Y"))
def matmul_reduce_scatter(x: jax.Array, w: jax.Array, *, X: str = "X", Y: str = "Y") -> jax.Array:
    """`x[B_X, D_Y], w[D_Y, F] -> out[B_X, F_Y]`: every device of Y gets its block of the sum."""
    return jax.lax.with_sharding_constraint(squared_matmul(x, w), P(X, Y))


matmul_out_all_reduce = to_all_reduce()(jax.jit(squared_matmul, out_shardings=P("X", None)))
matmul_out_reduce_scatter = to_reduce_scatter()(jax.jit(squared_matmul, out_shardings=P("X", "Y")))


def ahead_of_time(
    mesh: jax.sharding.Mesh, *, B: int = 8, D: int = 2048, F: int = 8192
) -> jax.stages.Compiled:
    """Compiles `x: bf16[B_X, D_Y], w: bf16[D_Y, F] -> out[B_X, F_Y]` before any array is there.

    The result is called with arrays of these shapes and shardings, and of no others.
    """

    def placed(shape: tuple[int, int], spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))

    jitted = jax.jit(squared_matmul, out_shardings=NamedSharding(mesh, P("X", "Y")))
    return jitted.lower(placed((B, D), P("X", "Y")), placed((D, F), P("Y", None))).compile()
