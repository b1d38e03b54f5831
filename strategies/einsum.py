"""A compiled einsum: traced and compiled at the first call, and reused at every other one.

No dimension is sharded, so nothing is sent; on a mesh every device computes the whole result.

Source: Scaling Book, "Programming TPUs in JAX", the opening example.
"""

import jax
import jax.numpy as jnp

from conformance import contract


@contract(
    "x[B, F], y[F, D] -> out[B, D]",
    reference=lambda x, y: x @ y,
    gradient=[],
    dtypes=("f32", "bf16", "i32"),
)
@jax.jit
def einsum(x: jax.Array, y: jax.Array) -> jax.Array:
    """`x[B, F], y[F, D] -> out[B, D]`: the contraction over F that the string names."""
    return jnp.einsum("bf,fd->bd", x, y)
