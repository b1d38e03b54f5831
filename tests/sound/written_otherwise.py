"""Sound programs, written in other ways than ours: none may raise an alarm."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from conformance import all_reduce, contract, permute
from conformance.evidence import sound
from strategies.automatic import matmul_reduce_scatter
from strategies.data_parallel import step, step_shard_map
from strategies.tensor_parallel import mlp, mlp_shard_map

AUTO = replace(mlp.contract, memory=(), sizes=None)
BOTH = replace(mlp_shard_map.contract, memory=(), sizes=None)
# The order of an all-reduce and of what is recomputed is the compiler's in these.
FREE = replace(BOTH, gradient=None)


def specs(dp: Any, tp: Any) -> Any:
    return (P(dp, None), P(None, tp), P(tp, None))


def per_device(dp: Any, tp: Any, check_vma: bool = True) -> Any:
    return partial(
        jax.shard_map, in_specs=specs(dp, tp), out_specs=P(dp, None), check_vma=check_vma
    )


@sound(AUTO)
def einsums(x, w_up, w_down, *, dp="dp", tp="tp"):
    hidden = jnp.maximum(jnp.einsum("bd,df->bf", x, w_up), jnp.zeros((), x.dtype))
    out = jnp.einsum("bf,fd->bd", hidden, w_down)
    return jax.lax.with_sharding_constraint(out, P(dp, None))


@sound(AUTO)
def rows_by_vmap(x, w_up, w_down, *, dp="dp", tp="tp"):
    out = jax.vmap(lambda row: jax.nn.relu(row @ w_up) @ w_down)(x)
    return jax.lax.with_sharding_constraint(out, P(dp, None))


@sound(AUTO)
def hidden_layer_pinned_too(x, w_up, w_down, *, dp="dp", tp="tp"):
    hidden = jax.lax.with_sharding_constraint(jax.nn.relu(x @ w_up), P(dp, tp))
    return jax.lax.with_sharding_constraint(hidden @ w_down, P(dp, None))


@sound(AUTO)
def jit_within_jit(x, w_up, w_down, *, dp="dp", tp="tp"):
    out = jax.jit(lambda x, u, d: jax.nn.relu(x @ u) @ d)(x, w_up, w_down)
    return jax.lax.with_sharding_constraint(out, P(dp, None))


@sound(AUTO)
def transposed_all_the_way(x, w_up, w_down, *, dp="dp", tp="tp"):
    out = (w_down.T @ jax.nn.relu(w_up.T @ x.T)).T
    return jax.lax.with_sharding_constraint(out, P(dp, None))


@sound(FREE)
def without_the_check_of_varying_axes(x, w_up, w_down, *, dp="dp", tp="tp"):
    def local(x, w_up, w_down):
        return jax.lax.psum(jax.nn.relu(x @ w_up) @ w_down, tp)

    return per_device(dp, tp, check_vma=False)(local)(x, w_up, w_down)


@sound(FREE)
def summed_in_two_halves(x, w_up, w_down, *, dp="dp", tp="tp"):
    @per_device(dp, tp)
    def local(x, w_up, w_down):
        out = jax.nn.relu(x @ w_up) @ w_down
        half = out.shape[1] // 2
        parts = [jax.lax.psum(part, tp) for part in (out[:, :half], out[:, half:])]
        return jnp.concatenate(parts, 1)

    return local(x, w_up, w_down)


@sound(FREE)
def hidden_columns_one_by_one(x, w_up, w_down, *, dp="dp", tp="tp"):
    @per_device(dp, tp)
    def local(x, w_up, w_down):
        columns = range(w_up.shape[1])
        terms = [jax.nn.relu(x @ w_up[:, i : i + 1]) * w_down[i : i + 1] for i in columns]
        return jax.lax.psum(sum(terms[1:], terms[0]), tp)

    return local(x, w_up, w_down)


@sound(FREE)
def hidden_columns_in_a_scan(x, w_up, w_down, *, dp="dp", tp="tp"):
    @per_device(dp, tp, check_vma=False)
    def local(x, w_up, w_down):
        def column(total, weights):
            up, down = weights
            return total + jax.nn.relu(x @ up)[:, None] * down[None, :], None

        start = jnp.zeros((x.shape[0], w_down.shape[1]), x.dtype)
        total, _ = jax.lax.scan(column, start, (w_up.T, w_down))
        return jax.lax.psum(total, tp)

    return local(x, w_up, w_down)


@sound(FREE)
def recomputed_in_the_gradient(x, w_up, w_down, *, dp="dp", tp="tp"):
    @per_device(dp, tp)
    @jax.checkpoint
    def local(x, w_up, w_down):
        return jax.lax.psum(jax.nn.relu(x @ w_up) @ w_down, tp)

    return local(x, w_up, w_down)


@sound(BOTH)
def relu_with_a_gradient_of_its_own(x, w_up, w_down, *, dp="dp", tp="tp"):
    @jax.custom_vjp
    def rectified(h):
        return jnp.maximum(h, jnp.zeros((), h.dtype))

    rectified.defvjp(
        lambda h: (rectified(h), h > 0), lambda positive, c: (jnp.where(positive, c, 0 * c),)
    )

    @per_device(dp, tp)
    def local(x, w_up, w_down):
        return jax.lax.psum(rectified(x @ w_up) @ w_down, tp)

    return local(x, w_up, w_down)


def _ring(form: str) -> Any:
    def local(lhs: Any, rhs: Any, Y: Any) -> Any:
        n = jax.lax.axis_size(Y)
        block = rhs.shape[0] // n
        around = [(j, (j - 1) % n) for j in range(n)]
        start = jnp.zeros((lhs.shape[0], rhs.shape[1]), lhs.dtype)

        def hop(index: Any, lhs: Any, out: Any) -> Any:
            at = (jax.lax.axis_index(Y) + index) % n * block
            return out + lhs @ jax.lax.dynamic_slice_in_dim(rhs, at, block, 0)

        def moved(index: Any, state: Any) -> Any:
            lhs, out = state
            return jax.lax.ppermute(lhs, Y, around), hop(index, lhs, out)

        if form == "loop":
            lhs, out = jax.lax.fori_loop(0, n - 1, moved, (lhs, start))
        elif form == "scan":
            (lhs, out), _ = jax.lax.scan(
                lambda state, index: (moved(index, state), None), (lhs, start), jnp.arange(n - 1)
            )
        else:
            state = lhs, start
            for index in range(n - 1):
                state = moved(index, state)
            lhs, out = state
        return hop(n - 1, lhs, out)

    def candidate(lhs: Any, rhs: Any, *, X: Any = "X", Y: Any = "Y") -> Any:
        return jax.shard_map(
            partial(local, Y=Y),
            in_specs=(P(X, Y), P(None, Y)),
            out_specs=P(X, Y),
            check_vma=False,
        )(lhs, rhs)

    candidate.__name__ = f"ring_as_{form}"
    return candidate


_ring_contract = contract(
    "lhs[B_X, D_Y], rhs[D, F_Y] -> out[B_X, F_Y]",
    reference=lambda lhs, rhs: lhs @ rhs,
    collectives=[permute("Y", "lhs[B_X, D_Y]", shift=-1, times="Y-1")],
    dtypes=("f32", "bf16", "i32"),
)(_ring("stated")).contract  # type: ignore[attr-defined]

ring_in_a_loop = sound(_ring_contract)(_ring("loop"))
ring_in_a_scan = sound(_ring_contract)(_ring("scan"))
ring_unrolled = sound(_ring_contract)(_ring("unrolled"))


@sound(replace(matmul_reduce_scatter.contract, axis_types=("auto", "explicit"), gradient=None))
def scattered_by_hand(x, w, *, X="X", Y="Y"):
    def local(x, w):
        return jax.lax.psum_scatter(jnp.square(x) @ w, Y, scatter_dimension=1, tiled=True)

    return jax.shard_map(local, in_specs=(P(X, Y), P(Y, None)), out_specs=P(X, Y))(x, w)


@sound(replace(matmul_reduce_scatter.contract, axis_types=("auto", "explicit"), gradient=None))
def summed_and_sliced_by_hand(x, w, *, X="X", Y="Y"):
    def local(x, w):
        total = jax.lax.psum(jnp.square(x) @ w, Y)
        width = total.shape[1] // jax.lax.axis_size(Y)
        return jax.lax.dynamic_slice_in_dim(total, jax.lax.axis_index(Y) * width, width, 1)

    return jax.shard_map(local, in_specs=(P(X, Y), P(Y, None)), out_specs=P(X, Y), check_vma=False)(
        x, w
    )


@sound(replace(step.contract, axis_types=("auto",)))
def step_from_the_mean_error(w, x, y, *, dp="dp"):
    def mean_error(w):
        return jnp.mean(jnp.square(jnp.einsum("bd,kd->bk", x, w) - y))

    loss, gradient = jax.value_and_grad(mean_error)(w)
    return jax.lax.with_sharding_constraint((w - gradient / 8, loss), P())


@sound(step_shard_map.contract)
def step_from_means_of_equal_parts(w, x, y, *, dp="dp"):
    def local(w, x, y):
        own = jax.lax.pcast(w, dp, to="varying")
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.square(x @ w.T - y)))(own)
        loss, gradient = jax.lax.pmean((loss, gradient), dp)
        return w - gradient / 8, loss

    mapped = partial(jax.shard_map, out_specs=(P(), P()))
    return mapped(local, in_specs=(P(), P(dp, None), P(dp, None)))(w, x, y)


_total = contract(
    "x[B_X, D_Y] -> total[]",
    reference=lambda x: jnp.sum(x),
    collectives=[all_reduce(("X", "Y"), "total[]")],
    dtypes=("f32", "i32"),
    gradient=[],
)


def _of_total(function: Any) -> Any:
    return sound(_total(function).contract)(function)


@_of_total
def summed_over_both_axes_at_once(x, *, X="X", Y="Y"):
    both = tuple(jax.tree.leaves((X, Y)))
    return jax.shard_map(lambda x: jax.lax.psum(jnp.sum(x), both), in_specs=P(X, Y), out_specs=P())(
        x
    )


@_of_total
def summed_over_one_axis_after_the_other(x, *, X="X", Y="Y"):
    return jax.shard_map(
        lambda x: jax.lax.psum(jax.lax.psum(jnp.sum(x), X), Y), in_specs=P(X, Y), out_specs=P()
    )(x)
