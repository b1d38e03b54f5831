"""Faults of a tensor-parallel MLP in `shard_map`."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from conformance.evidence import fault
from strategies.tensor_parallel import mlp, mlp_reference, mlp_shard_map

MLP = mlp_shard_map.contract
# Under `check_vma=False` JAX sums cotangents once more; what the gradient sends is not judged then.
LOOSE = replace(MLP, gradient=None, memory=(), sizes=None)
AUTO = replace(mlp.contract, memory=(), sizes=None)
NUMBERS = ("values", "gradients", "replicas", "collectives", "out_sharding")


def local(
    body: Callable[..., Any],
    *,
    out: Callable[[Any, Any], P] = lambda dp, tp: P(dp, None),
    vma: bool = False,
    inputs: Callable[[Any, Any], Any] = lambda dp, tp: (P(dp, None), P(None, tp), P(tp, None)),
) -> Any:
    """A candidate with this body on each device."""

    def candidate(x: Any, w_up: Any, w_down: Any, *, dp: Any = "dp", tp: Any = "tp") -> Any:
        return jax.shard_map(
            partial(body, dp=dp, tp=tp),
            in_specs=inputs(dp, tp),
            out_specs=out(dp, tp),
            check_vma=vma,
        )(x, w_up, w_down)

    candidate.__name__ = body.__name__
    return candidate


def size(axis: Any) -> Any:
    return jax.lax.axis_size(axis)


def define(
    family: str, check: str, contract: Any = LOOSE, also: Any = NUMBERS, **keywords: Any
) -> Any:
    """Makes a body into a fault."""
    return lambda body: fault(family, check, contract, also=also)(local(body, **keywords))


@define("wrong axis", "collectives")
def summed_over_the_batch_axis(x, w_up, w_down, *, dp, tp):
    return jax.lax.psum(mlp_reference(x, w_up, w_down), dp)


@define("wrong axis", "collectives")
def summed_over_both_axes(x, w_up, w_down, *, dp, tp):
    return jax.lax.psum(jax.lax.psum(mlp_reference(x, w_up, w_down), tp), dp)


@define("wrong axis", "collectives")
def maximum_over_the_batch_axis(x, w_up, w_down, *, dp, tp):
    return jax.lax.pmax(jax.lax.psum(mlp_reference(x, w_up, w_down), tp), dp)


@define("wrong reducer", "collectives")
def maximum_for_a_sum(x, w_up, w_down, *, dp, tp):
    return jax.lax.pmax(mlp_reference(x, w_up, w_down), tp)


@define("missing reduction", "values")
def not_summed(x, w_up, w_down, *, dp, tp):
    return mlp_reference(x, w_up, w_down)


@define("missing reduction", "values")
def first_half_summed(x, w_up, w_down, *, dp, tp):
    out = mlp_reference(x, w_up, w_down)
    half = -(-out.shape[1] // 2)
    return jnp.concatenate([jax.lax.psum(out[:, :half], tp), out[:, half:]], 1)


@define("doubled reduction", "collectives")
def summed_twice(x, w_up, w_down, *, dp, tp):
    return jax.lax.psum(jax.lax.psum(mlp_reference(x, w_up, w_down), tp), tp)


@define("doubled reduction", "collectives", also=("values", "gradients"))
def summed_twice_and_divided(x, w_up, w_down, *, dp, tp):
    out = jax.lax.psum(mlp_reference(x, w_up, w_down), tp)
    total = jax.lax.psum(out, tp)
    return (total / size(tp)).astype(out.dtype) if out.dtype != jnp.int32 else total // size(tp)


@define("misplaced reduction", "values")
def nonlinearity_after_partial_sums(x, w_up, w_down, *, dp, tp):
    return jax.lax.psum(jax.nn.relu((x @ w_up) @ w_down), tp)


@define("misplaced reduction", "values")
def averaged_for_summed(x, w_up, w_down, *, dp, tp):
    return jax.lax.pmean(mlp_reference(x, w_up, w_down), tp).astype(x.dtype)


@define("hidden gather", "collectives", also=("gradients",))
def operand_gathered_and_sliced_back(x, w_up, w_down, *, dp, tp):
    whole, width = jax.lax.all_gather(w_up, tp, axis=1, tiled=True), w_up.shape[1]
    w_up = jax.lax.dynamic_slice_in_dim(whole, jax.lax.axis_index(tp) * width, width, 1)
    return jax.lax.psum(mlp_reference(x, w_up, w_down), tp)


@define("hidden gather", "collectives", also=("gradients",))
def everything_gathered_and_computed_everywhere(x, w_up, w_down, *, dp, tp):
    w_up = jax.lax.all_gather(w_up, tp, axis=1, tiled=True)
    w_down = jax.lax.all_gather(w_down, tp, axis=0, tiled=True)
    return mlp_reference(x, w_up, w_down)


@define("hidden gather", "collectives", also=("gradients",))
def gathered_in_a_loop(x, w_up, w_down, *, dp, tp):
    def step(_, total):
        rows = jax.lax.all_gather(total, dp, axis=0, tiled=True)
        here = jax.lax.axis_index(dp) * total.shape[0]
        return jax.lax.dynamic_slice_in_dim(rows, here, total.shape[0], 0)

    return jax.lax.fori_loop(0, 3, step, jax.lax.psum(mlp_reference(x, w_up, w_down), tp))


@define("hidden gather", "collectives", also=("gradients", "values"))
def gathered_in_a_branch(x, w_up, w_down, *, dp, tp):
    def far(w):
        whole = jax.lax.all_gather(w, tp, axis=1, tiled=True)
        here = jax.lax.axis_index(tp) * w.shape[1]
        return jax.lax.dynamic_slice_in_dim(whole, here, w.shape[1], 1)

    positive = jax.lax.pmax(jnp.abs(x).max(), (dp, tp) if isinstance(dp, str) else dp) > 0
    w_up = jax.lax.cond(positive, far, lambda w: w, w_up)
    return jax.lax.psum(mlp_reference(x, w_up, w_down), tp)


@define(
    "hidden gather",
    "collectives",
    also=("gradients", "out_sharding"),
    inputs=lambda dp, tp: (P(dp, None), P(None, None), P(tp, None)),
)
def gathered_at_the_boundary(x, w_up, w_down, *, dp, tp):
    width = w_down.shape[0]
    w_up = jax.lax.dynamic_slice_in_dim(w_up, jax.lax.axis_index(tp) * width, width, 1)
    return jax.lax.psum(mlp_reference(x, w_up, w_down), tp)


@define(
    "replication for sharding",
    "out_sharding",
    also=("collectives", "gradients"),
    out=lambda dp, tp: P(None, None),
)
def output_replicated(x, w_up, w_down, *, dp, tp):
    out = jax.lax.psum(mlp_reference(x, w_up, w_down), tp)
    return jax.lax.all_gather(out, dp, axis=0, tiled=True)


@define("copies that differ", "replicas", also=("values", "gradients"))
def one_copy_is_off(x, w_up, w_down, *, dp, tp):
    out = jax.lax.psum(mlp_reference(x, w_up, w_down), tp)
    last = jax.lax.axis_index(tp) == size(tp) - 1
    return jnp.where(last, out + jnp.ones_like(out), out)


@define("copies that differ", "replicas", also=("values", "gradients"))
def the_sign_of_zero_differs(x, w_up, w_down, *, dp, tp):
    out = jax.lax.psum(mlp_reference(x, w_up, w_down), tp)
    sign = jnp.where(jax.lax.axis_index(tp) == 0, 1, -1).astype(out.dtype)
    return jnp.where(jnp.abs(out) > 40, out, sign * jnp.abs(out))


def scaled(factor: Callable[[Any], Any]) -> Any:
    """The identity, whose cotangent is multiplied by a factor of the axis size."""

    def apply(x: Any, axis: Any) -> Any:
        n = size(axis)

        @jax.custom_vjp
        def same(x):
            return x

        same.defvjp(lambda x: (x, None), lambda _, c: ((c * factor(n)).astype(c.dtype),))
        return same(x)

    return apply


GRADIENT = {"vma": True, "contract": replace(MLP, memory=(), sizes=None), "also": ()}


@define("gradient scaled", "gradients", **GRADIENT)
def gradient_divided_by_the_axis(x, w_up, w_down, *, dp, tp):
    x = scaled(lambda n: 1 / n)(x, tp)
    return jax.lax.psum(mlp_reference(x, w_up, w_down), tp)


@define("gradient scaled", "gradients", **GRADIENT)
def gradient_times_the_axis(x, w_up, w_down, *, dp, tp):
    w_up = scaled(lambda n: n)(w_up, tp)
    return jax.lax.psum(mlp_reference(x, w_up, w_down), tp)


@define("gradient scaled", "gradients", **GRADIENT)
def gradient_times_the_square(x, w_up, w_down, *, dp, tp):
    w_down = scaled(lambda n: n * n)(w_down, tp)
    return jax.lax.psum(mlp_reference(x, w_up, w_down), tp)


@define("gradient dropped", "gradients", **(GRADIENT | {"also": ("collectives",)}))
def gradient_dropped_for_one_input(x, w_up, w_down, *, dp, tp):
    return jax.lax.psum(mlp_reference(x, jax.lax.stop_gradient(w_up), w_down), tp)


@define("gradient dropped", "gradients", **(GRADIENT | {"also": ("collectives",)}))
def gradient_of_all_dropped(x, w_up, w_down, *, dp, tp):
    return jax.lax.stop_gradient(jax.lax.psum(mlp_reference(x, w_up, w_down), tp))


def automatic(function: Callable[..., Any]) -> Any:
    return jax.jit(function, static_argnames=("dp", "tp"))


@fault("replication for sharding", "collectives", AUTO, also=("out_sharding", "gradients"))
@automatic
def hidden_layer_replicated(x, w_up, w_down, *, dp="dp", tp="tp"):
    hidden = jax.lax.with_sharding_constraint(jax.nn.relu(x @ w_up), P(dp, None))
    return jax.lax.with_sharding_constraint(hidden @ w_down, P(dp, None))


@fault("replication for sharding", "out_sharding", AUTO, also=("collectives", "gradients"))
@automatic
def output_pinned_as_replicated(x, w_up, w_down, *, dp="dp", tp="tp"):
    return jax.lax.with_sharding_constraint(mlp_reference(x, w_up, w_down), P(None, None))


@fault("specs swapped", "out_sharding", AUTO, also=("collectives", "gradients"))
@automatic
def output_split_over_the_other_axis(x, w_up, w_down, *, dp="dp", tp="tp"):
    return jax.lax.with_sharding_constraint(mlp_reference(x, w_up, w_down), P(None, dp))


@fault("hard-wired", "runs", AUTO, also=())
def axis_names_hard_wired(x, w_up, w_down, *, dp="dp", tp="tp"):
    return jax.lax.with_sharding_constraint(mlp_reference(x, w_up, w_down), P("dp", None))


@define("hard-wired", "values", also=("gradients", "collectives"))
def axis_size_hard_wired(x, w_up, w_down, *, dp, tp):
    out = jax.lax.pmean(mlp_reference(x, w_up, w_down).astype(jnp.float32), tp)
    return (out * 4).astype(x.dtype)


@define("blocks", "values", also=("gradients",))
def rows_reversed_beyond_the_first_device(x, w_up, w_down, *, dp, tp):
    out = jax.lax.psum(mlp_reference(x, w_up, w_down), tp)
    return jnp.where(jax.lax.axis_index(dp) == 0, out, out[::-1])


@define("odd sizes", "values", also=("gradients", "collectives"))
def last_odd_row_dropped(x, w_up, w_down, *, dp, tp):
    out = jax.lax.psum(mlp_reference(x, w_up, w_down), tp)
    even = out.shape[0] // 2 * 2
    return jnp.concatenate([out[:even], jnp.zeros_like(out[even:])])


@define("odd sizes", "values", also=("gradients", "replicas", "collectives"))
def only_right_on_two_devices(x, w_up, w_down, *, dp, tp):
    out = mlp_reference(x, w_up, w_down)
    n = size(tp)
    return out + jax.lax.ppermute(out, tp, [(j, (j + 1) % n) for j in range(n)])


@define("odd sizes", "values", also=("gradients", "runs"))
def wrong_on_three_devices(x, w_up, w_down, *, dp, tp):
    out = jax.lax.psum(mlp_reference(x, w_up, w_down), tp)
    return out * 2 if size(tp) == 3 else out


@define("odd sizes", "values", also=("gradients", "collectives"))
def wrong_on_unit_axes(x, w_up, w_down, *, dp, tp):
    out = jax.lax.psum(mlp_reference(x, w_up, w_down), tp)
    return out * 2 if size(tp) == 1 else out


@define("odd sizes", "values", also=("gradients",))
def wrong_for_negative_values(x, w_up, w_down, *, dp, tp):
    return jax.lax.psum(mlp_reference(jnp.abs(x), w_up, w_down), tp)
