"""Explicit mode: the sharding is part of an array's type, and every operation has to give one.

Contracting a dimension that is sharded on both sides has two answers, so JAX refuses to guess:
`out_sharding` says which one is meant. To `[B_X, F]` the partial sums are all-reduced over Y, to
`[B_X, F_Y]` they are reduce-scattered, which moves half as much. The type of the result then
carries the sharding: `jax.typeof(out)` prints `float32[8@X,4@Y]`.

Source: Scaling Book, "Programming TPUs in JAX", explicit sharding.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from conformance import all_gather, all_reduce, contract, reduce_scatter
from strategies.known import GATHERED_TWICE, SCATTERED_OVER_AN_IDLE_AXIS


@contract(
    "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F]",
    reference=lambda x, w: x @ w,
    differentiable=(),
    axis_types="explicit",
    refuses={"Y >= 1": "ShardingTypeError"},
)
@partial(jax.jit, static_argnames=("X", "Y"))
def ambiguous_matmul(x: jax.Array, w: jax.Array, *, X: str = "X", Y: str = "Y") -> jax.Array:
    """Refused: nothing says whether the sums over Y are gathered, scattered or left apart."""
    return x @ w


@contract(
    "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F]",
    reference=lambda x, w: x @ w,
    collectives=[all_reduce("Y", "out[B_X, F]")],
    gradient=[all_reduce("X", "w[D_Y, F]")],
    axis_types="explicit",
    dtypes=("f32", "bf16", "i32"),
)
@partial(jax.jit, static_argnames=("X", "Y"))
def matmul_all_reduce(x: jax.Array, w: jax.Array, *, X: str = "X", Y: str = "Y") -> jax.Array:
    """`x[B_X, D_Y], w[D_Y, F] -> out[B_X, F]`: the type says replicated over Y."""
    return jnp.einsum("bd,df->bf", x, w, out_sharding=P(X, None))


@contract(
    "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F_Y]",
    reference=lambda x, w: x @ w,
    collectives=[reduce_scatter("Y", "out[B_X, F]")],
    gradient=[all_gather("Y", "out[B_X, F_Y]"), all_reduce("X", "w[D_Y, F]")],
    axis_types="explicit",
    dtypes=("f32", "bf16", "i32"),
    known=[GATHERED_TWICE, SCATTERED_OVER_AN_IDLE_AXIS],
)
@partial(jax.jit, static_argnames=("X", "Y"))
def matmul_reduce_scatter(x: jax.Array, w: jax.Array, *, X: str = "X", Y: str = "Y") -> jax.Array:
    """`x[B_X, D_Y], w[D_Y, F] -> out[B_X, F_Y]`: the type says sharded over Y."""
    return jnp.einsum("bd,df->bf", x, w, out_sharding=P(X, Y))
