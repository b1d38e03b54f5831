"""Faults of rings, of biases and means, of precision and of training steps."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from conformance import all_gather, all_reduce, contract, permute, reduce_scatter
from conformance.evidence import fault
from strategies.automatic import matmul_reduce_scatter
from strategies.data_parallel import RATE, squared_error, step_shard_map, training_step
from strategies.slice_and_average import slice_and_average


def stated(signature: str, **keywords: Any) -> Any:
    """A contract by itself."""

    def holder(*arrays: Any) -> Any:
        raise AssertionError("it only holds a contract")

    return contract(signature, **keywords)(holder).contract  # type: ignore[attr-defined]


def mapped(body: Callable[..., Any], specs: Callable[..., Any], names: tuple[str, ...]) -> Any:
    """A candidate with this body on each device; `specs` gives those of inputs and outputs."""

    def candidate(*arrays: Any, **axes: Any) -> Any:
        inside, out = specs(**axes)
        local = partial(body, **axes)
        return jax.shard_map(local, in_specs=inside, out_specs=out, check_vma=False)(*arrays)

    namespace: dict[str, Any] = {"candidate": candidate}
    keywords = ", ".join(f"{name}={name!r}" for name in names)
    passed = ", ".join(f"{name}={name}" for name in names)
    exec(f"def named(*arrays, {keywords}): return candidate(*arrays, {passed})", namespace)
    named = namespace["named"]
    named.__name__ = body.__name__
    return named


RING = stated(
    "lhs[B_X, D_Y], rhs[D, F_Y] -> out[B_X, F_Y]",
    reference=lambda lhs, rhs: lhs @ rhs,
    collectives=[permute("Y", "lhs[B_X, D_Y]", shift=-1, times="Y-1")],
    differentiable=(),
)
ring_of = partial(mapped, specs=lambda X, Y: ((P(X, Y), P(None, Y)), P(X, Y)), names=("X", "Y"))


def ring(lhs, rhs, *, Y, hops=None, shift=-1, step=1, first=0):
    """Multiplies block after block of lhs as they come round."""
    n = jax.lax.axis_size(Y)
    block = rhs.shape[0] // n
    out = jnp.zeros((lhs.shape[0], rhs.shape[1]), lhs.dtype)
    for hop in range(n):
        index = (jax.lax.axis_index(Y) + step * hop + first) % n
        rows = jax.lax.dynamic_slice_in_dim(rhs, index * block, block, 0)
        out = out + lhs @ rows
        if hop < (n - 1 if hops is None else n + hops):
            lhs = jax.lax.ppermute(lhs, Y, [(j, (j + shift) % n) for j in range(n)])
    return out, lhs


def define_ring(check: str, also: Any = ("collectives",)) -> Any:
    return lambda body: fault("rings", check, RING, also=also)(ring_of(body))


@define_ring("values")
def ring_flipped(lhs, rhs, *, X, Y):
    return ring(lhs, rhs, Y=Y, shift=+1)[0]


@define_ring("collectives", also=())
def ring_the_other_way_with_the_right_numbers(lhs, rhs, *, X, Y):
    return ring(lhs, rhs, Y=Y, shift=+1, step=-1)[0]


@define_ring("values")
def ring_one_hop_short(lhs, rhs, *, X, Y):
    return ring(lhs, rhs, Y=Y, hops=-2)[0]


@define_ring("collectives", also=())
def ring_one_hop_long(lhs, rhs, *, X, Y):
    out, last = ring(lhs, rhs, Y=Y, hops=0)
    return out + (0 * last[:, :1]).astype(out.dtype)


@define_ring("values", also=())
def blocks_off_by_one(lhs, rhs, *, X, Y):
    return ring(lhs, rhs, Y=Y, first=1)[0]


@define_ring("collectives", also=())
def gathered_in_place_of_a_ring(lhs, rhs, *, X, Y):
    return jax.lax.all_gather(lhs, Y, axis=1, tiled=True) @ rhs


@define_ring("collectives", also=())
def blocks_sent_in_halves_of_columns(lhs, rhs, *, X, Y):
    n = jax.lax.axis_size(Y)
    around = [(j, (j - 1) % n) for j in range(n)]
    half = -(-lhs.shape[0] // 2)
    out, block = jnp.zeros((lhs.shape[0], rhs.shape[1]), lhs.dtype), rhs.shape[0] // n
    for hop in range(n):
        index = (jax.lax.axis_index(Y) + hop) % n
        out = out + lhs @ jax.lax.dynamic_slice_in_dim(rhs, index * block, block, 0)
        if hop < n - 1:
            parts = [jax.lax.ppermute(part, Y, around) for part in (lhs[:half], lhs[half:])]
            lhs = jnp.concatenate(parts)
    return out


SCATTER = replace(matmul_reduce_scatter.contract, axis_types=("auto", "explicit"), gradient=None)
EQUAL_AXES = stated(
    "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F_Y]",
    reference=lambda x, w: x @ w,
    collectives=[reduce_scatter("Y", "out[B_X, F]")],
    where=["X == Y", "X >= 2"],
    differentiable=(),
)
scatter_of = partial(mapped, specs=lambda X, Y: ((P(X, Y), P(Y, None)), P(X, Y)), names=("X", "Y"))


def define_scatter(family: str, check: str, stated: Any = SCATTER, also: Any = ()) -> Any:
    return lambda body: fault(family, check, stated, also=also)(scatter_of(body))


@define_scatter("wrong axis", "collectives", EQUAL_AXES, also=("values",))
def scattered_over_an_axis_of_equal_size(x, w, *, X, Y):
    return jax.lax.psum_scatter(x @ w, X, scatter_dimension=1, tiled=True)


@define_scatter("blocks", "values", also=("collectives", "gradients"))
def the_neighbours_block_is_kept(x, w, *, X, Y):
    total = jax.lax.psum(jnp.square(x) @ w, Y)
    width = total.shape[1] // jax.lax.axis_size(Y)
    index = (jax.lax.axis_index(Y) + 1) % jax.lax.axis_size(Y)
    return jax.lax.dynamic_slice_in_dim(total, index * width, width, 1)


@define_scatter("doubled reduction", "collectives", also=("gradients",))
def summed_gathered_and_scattered(x, w, *, X, Y):
    part = jax.lax.psum_scatter(jnp.square(x) @ w, Y, scatter_dimension=1, tiled=True)
    whole, width = jax.lax.all_gather(part, Y, axis=1, tiled=True), part.shape[1]
    return jax.lax.dynamic_slice_in_dim(whole, jax.lax.axis_index(Y) * width, width, 1)


BIASED = stated(
    "x[B_dp, F_tp], w[F_tp, D], b[D] -> out[B_dp, D]",
    reference=lambda x, w, b: x @ w + b,
    collectives=[all_reduce("tp", "out[B_dp, D]")],
    differentiable=(),
)


@partial(fault, "misplaced reduction", "values", BIASED)()
@partial(
    mapped,
    specs=lambda dp, tp: ((P(dp, tp), P(tp, None), P(None)), P(dp, None)),
    names=("dp", "tp"),
)
def bias_added_before_the_sum(x, w, b, *, dp, tp):
    return jax.lax.psum(x @ w + b, tp)


MASKED = stated(
    "x[S_X], mask: bool[S_X] -> mean[]",
    reference=lambda x, mask: jnp.where(mask, x, 0).sum() / jnp.maximum(mask.sum(), 1),
    collectives=[all_reduce("X", "mean[]"), all_reduce("X", "count: i32[]")],
    differentiable=(),
    where="S >= 2*X",
)


@partial(fault, "misplaced reduction", "values", MASKED)(also=("collectives",))
@partial(mapped, specs=lambda X: ((P(X), P(X)), P()), names=("X",))
def mean_of_means(x, mask, *, X):
    mean = jnp.where(mask, x, 0).sum() / jnp.maximum(mask.sum(), 1).astype(x.dtype)
    return jax.lax.pmean(mean, X)


NARROW = stated(
    "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F]",
    reference=lambda x, w: x @ w,
    collectives=[all_reduce("Y", "out[B_X, F]")],
    accumulates="f32",
    dtypes=("bf16",),
    differentiable=(),
)
sum_of = partial(mapped, specs=lambda X, Y: ((P(X, Y), P(Y, None)), P(X, None)), names=("X", "Y"))


def product(x, w):
    return jnp.matmul(x, w, preferred_element_type=jnp.float32)


@partial(fault, "narrow accumulation", "collectives", NARROW)(also=("values",))
@sum_of
def partial_sums_rounded_before_they_travel(x, w, *, X, Y):
    return jax.lax.psum(product(x, w).astype(jnp.bfloat16), Y)


@partial(fault, "narrow accumulation", "values", NARROW)(also=("values",))
@sum_of
def partial_sums_rounded_and_widened_again(x, w, *, X, Y):
    rounded = jax.lax.reduce_precision(product(x, w), 8, 7)
    return jax.lax.psum(rounded, Y).astype(x.dtype)


@partial(fault, "narrow accumulation", "values", NARROW)(also=("collectives",))
@sum_of
def terms_added_up_in_bfloat16(x, w, *, X, Y):
    total = jnp.zeros((x.shape[0], w.shape[1]), jnp.bfloat16)
    for index in range(x.shape[1]):
        total = jax.lax.reduce_precision(
            total + x[:, index : index + 1] * w[index : index + 1], 8, 7
        )
    return jax.lax.psum(total.astype(jnp.float32), Y).astype(x.dtype)


WIRE = stated(
    "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F]",
    reference=lambda x, w: x @ w,
    collectives=[all_reduce("Y", "out[B_X, F]")],
    dtypes=("bf16",),
    differentiable=(),
)


@partial(fault, "wide wire", "collectives", WIRE)()
@sum_of
def summed_in_float32(x, w, *, X, Y):
    return jax.lax.psum(product(x, w), Y).astype(x.dtype)


GATHERED = stated(
    "x[B_X, D] -> out[B, D]",
    reference=lambda x: x,
    collectives=[all_gather("X", "x[B_X, D]")],
    dtypes=("bf16",),
    differentiable=(),
)


@partial(fault, "wide wire", "collectives", GATHERED)()
@partial(mapped, specs=lambda X: (P(X, None), P(None, None)), names=("X",))
def gathered_in_float32(x, *, X):
    return jax.lax.all_gather(x.astype(jnp.float32), X, tiled=True).astype(x.dtype)


STEP = step_shard_map.contract
step_of = partial(
    mapped, specs=lambda dp: ((P(), P(dp, None), P(dp, None)), (P(), P())), names=("dp",)
)


@partial(fault, "missing reduction", "replicas", STEP)(also=("values", "collectives"))
@step_of
def gradients_not_summed(w, x, y, *, dp):
    error, gradient = jax.value_and_grad(squared_error)(w, x, y)
    size = y.size * jax.lax.axis_size(dp)
    return w - gradient * (RATE / size), jax.lax.psum(error, dp) / size


@partial(fault, "missing reduction", "values", STEP)(also=("replicas", "collectives"))
@step_of
def loss_not_summed(w, x, y, *, dp):
    error, gradient = jax.value_and_grad(squared_error)(w, x, y)
    size = y.size * jax.lax.axis_size(dp)
    return w - jax.lax.psum(gradient, dp) * (RATE / size), error / size


@partial(fault, "gradient scaled", "values", STEP)()
@step_of
def step_too_small_by_the_axis(w, x, y, *, dp):
    error, gradient = jax.value_and_grad(squared_error)(w, x, y)
    n = jax.lax.axis_size(dp)
    error, gradient = jax.lax.psum((error, gradient), dp)
    return w - gradient * (RATE / (y.size * n * n)), error / (y.size * n)


@partial(fault, "hidden gather", "collectives", STEP)(also=("values",))
@step_of
def batch_gathered_and_trained_everywhere(w, x, y, *, dp):
    x = jax.lax.all_gather(x, dp, tiled=True)
    y = jax.lax.all_gather(y, dp, tiled=True)
    return training_step(w, x, y)


ORDER = slice_and_average.contract


@partial(fault, "specs swapped", "out_sharding", stated(
    "x[S_{X,Y}] -> out[S_{X,Y}]", reference=lambda x: 2 * x, differentiable=()
))(also=("collectives",))  # fmt: skip
def axes_of_a_dimension_swapped(x, *, X="X", Y="Y"):
    names = tuple(jax.tree.leaves((Y, X)))
    return jax.jit(
        lambda x: (
            jax.lax.with_sharding_constraint(2 * x, P(names))
            if jax.typeof(x).sharding.mesh.are_all_axes_auto
            else jax.reshard(2 * x, P(names))
        )
    )(x)


@partial(fault, "wrong axis", "collectives", ORDER)(also=("values", "replicas"))
def averaged_over_one_axis_of_two(x, *, X="X", Y="Y"):
    both = tuple(jax.tree.leaves((X, Y)))
    return jax.shard_map(
        lambda x: jax.lax.pmean(x[:4], X), in_specs=P(both), out_specs=P(), check_vma=False
    )(x)


class NeverEqual:
    """A static option that is not equal to itself, as one that holds a NaN is not."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


class TracedAgain:
    """Looks like a jitted function, and hands a new option to one at every call."""

    __name__ = __qualname__ = "traced_again_at_every_call"

    def __init__(self) -> None:
        self.jitted = jax.jit(
            lambda lhs, rhs, X, Y, option: ring_of(lambda a, b, X, Y: ring(a, b, Y=Y)[0])(
                lhs, rhs, X=X, Y=Y
            ),
            static_argnames=("X", "Y", "option"),
        )

    def __call__(self, lhs: Any, rhs: Any, *, X: Any = "X", Y: Any = "Y") -> Any:
        return self.jitted(lhs, rhs, X=X, Y=Y, option=NeverEqual())

    def trace(self, *arguments: Any, **keywords: Any) -> Any:
        return self.jitted.trace(*arguments, **keywords, option=NeverEqual())


traced_again = fault("retraces", "retraces", RING)(TracedAgain())
