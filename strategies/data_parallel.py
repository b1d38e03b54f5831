"""Data-parallel training: parameters on every device, the batch split over dp.

Each device has the gradient of its own part of the batch; one all-reduce over dp adds them up,
after which every device takes the same step and the copies of the parameters stay bit-equal. The
loss of the whole batch is a second all-reduce, of one number: 2V / W for V bytes of parameters.

Source: Scaling Book, "Programming TPUs in JAX"; "Training", data parallelism.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from conformance import all_reduce, contract

RATE = 0.125


def squared_error(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """`w[K, D], x[B, D], y[B, K] -> error[]`, summed over the batch."""
    return jnp.sum(jnp.square(x @ w.T - y))


def training_step(w: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One step of gradient descent on the mean squared error, on one device."""
    error, gradient = jax.value_and_grad(squared_error)(w, x, y)
    return w - gradient * (RATE / y.size), error / y.size


step_contract = partial(
    contract,
    "w[K, D], x[B_dp, D], y[B_dp, K] -> w[K, D], loss[]",
    reference=training_step,
    collectives=[all_reduce("dp", "w[K, D]"), all_reduce("dp", "loss[]")],
    differentiable=(),
)


@step_contract(axis_types="auto")
@partial(jax.jit, static_argnames="dp")
def step(
    w: jax.Array, x: jax.Array, y: jax.Array, *, dp: str = "dp"
) -> tuple[jax.Array, jax.Array]:
    """The compiler adds up the gradients, since the parameters are pinned as replicated."""
    w, loss = training_step(w, x, y)
    return jax.lax.with_sharding_constraint((w, loss), P())


@step_contract(axis_types=("auto", "explicit"))
@partial(jax.jit, static_argnames="dp")
def step_shard_map(
    w: jax.Array, x: jax.Array, y: jax.Array, *, dp: str = "dp"
) -> tuple[jax.Array, jax.Array]:
    """The gradients of the local error are summed by hand, and so is the loss."""

    @partial(jax.shard_map, in_specs=(P(), P(dp, None), P(dp, None)), out_specs=(P(), P()))
    def local(w: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        size = y.size * jax.lax.axis_size(dp)
        # A copy of its own on each device: otherwise JAX sums the gradient of what all share.
        own = jax.lax.pcast(w, dp, to="varying")
        error, gradient = jax.value_and_grad(squared_error)(own, x, y)
        error, gradient = jax.lax.psum((error, gradient), dp)
        return w - gradient * (RATE / size), error / size

    return local(w, x, y)
