"""Tensor-parallel MLP: the first matmul is split by columns, the second by rows.

Each device of tp computes F/tp columns of the hidden layer, applies the nonlinearity to them, and
multiplies by the matching rows of `w_down`. Only then do partial sums meet, in one all-reduce of
the output: 2V / W for V = 4BD/dp bytes in float32. The hidden layer never travels.

One signature, one reference and one list of collectives serve three spellings: automatic (the
compiler places the all-reduce), explicit (the type of the result asks for it) and `shard_map`
(it is written out).

Source: Scaling Book, "Programming TPUs in JAX"; Shoeybi et al. 2019, "Megatron-LM".
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from conformance import all_reduce, contract


def mlp_reference(x: jax.Array, w_up: jax.Array, w_down: jax.Array) -> jax.Array:
    """`x[B, D], w_up[D, F], w_down[F, D] -> out[B, D]` on one device."""
    return jax.nn.relu(x @ w_up) @ w_down


mlp_contract = partial(
    contract,
    "x[B_dp, D], w_up[D, F_tp], w_down[F_tp, D] -> out[B_dp, D]",
    reference=mlp_reference,
    collectives=[all_reduce("tp", "out[B_dp, D]")],
    gradient=[
        all_reduce("tp", "x[B_dp, D]"),
        all_reduce("dp", "w_up[D, F_tp]"),
        all_reduce("dp", "w_down[F_tp, D]"),
    ],
    dtypes=("f32", "bf16", "i32"),
    memory=["hidden[B_dp, F_tp]", "out[B_dp, D]"],
    sizes="dp=2,tp=4/B=64,D=128,F=256",
)


@mlp_contract(axis_types="auto")
@partial(jax.jit, static_argnames=("dp", "tp"))
def mlp(
    x: jax.Array, w_up: jax.Array, w_down: jax.Array, *, dp: str = "dp", tp: str = "tp"
) -> jax.Array:
    """The compiler finds the all-reduce, since the output is pinned and replicated over tp."""
    hidden = jax.nn.relu(x @ w_up)
    return jax.lax.with_sharding_constraint(hidden @ w_down, P(dp, None))


@mlp_contract(axis_types="explicit")
@partial(jax.jit, static_argnames=("dp", "tp"))
def mlp_explicit(
    x: jax.Array, w_up: jax.Array, w_down: jax.Array, *, dp: str = "dp", tp: str = "tp"
) -> jax.Array:
    """The contraction over `F_tp` has to say what becomes of tp: replicated, so all-reduced."""
    hidden = jax.nn.relu(x @ w_up)
    return jnp.einsum("bf,fd->bd", hidden, w_down, out_sharding=P(dp, None))


@mlp_contract(axis_types=("auto", "explicit"))
@partial(jax.jit, static_argnames=("dp", "tp"))
def mlp_shard_map(
    x: jax.Array, w_up: jax.Array, w_down: jax.Array, *, dp: str = "dp", tp: str = "tp"
) -> jax.Array:
    """Each device multiplies its own blocks, and the all-reduce is written out."""

    @partial(
        jax.shard_map,
        in_specs=(P(dp, None), P(None, tp), P(tp, None)),
        out_specs=P(dp, None),
    )
    def local(x: jax.Array, w_up: jax.Array, w_down: jax.Array) -> jax.Array:
        return jax.lax.psum(jax.nn.relu(x @ w_up) @ w_down, tp)

    return local(x, w_up, w_down)
