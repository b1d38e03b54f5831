"""`shard_map`: each device sees its own shard as a whole array, and collectives are written out.

Each device takes the first four elements of its shard; their mean over all devices is one
all-reduce of four elements, however long the array is.

Source: Scaling Book, "Programming TPUs in JAX", manual sharding.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from conformance import all_reduce, contract


def first_four_averaged(x: jax.Array, *, X: int, Y: int) -> jax.Array:
    """`x[S] -> out[4]`: the mean over X * Y pieces of the first four elements of each."""
    return jnp.mean(x.reshape(X * Y, -1)[:, :4], axis=0)


@contract(
    "x: i32[S_{X,Y}] -> out[4]",
    reference=first_four_averaged,
    collectives=[all_reduce(("X", "Y"), "first: i32[4]")],
    differentiable=(),
    where="S >= 4*X*Y",
    dtypes=("i32",),
)
@partial(jax.jit, static_argnames=("X", "Y"))
def slice_and_average(x: jax.Array, *, X: str = "X", Y: str = "Y") -> jax.Array:
    """`x: i32[S_{X,Y}] -> out[4]`, replicated: the sum is one of integers, and then divided."""

    axes = tuple(jax.tree.leaves((X, Y)))  # each of them may be several axes of the mesh

    @partial(jax.shard_map, in_specs=P(axes), out_specs=P())
    def local(x: jax.Array) -> jax.Array:
        return jax.lax.pmean(x[:4], axes)

    return local(x)
