"""The evaluator against JAX itself: the bound holds, exact is never claimed wrongly."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import contract, parse_case
from conformance.reference import Expected, evaluate, evaluate_vjp, reference_keywords

FLOATS = {"f32": np.dtype(np.float32), "bf16": np.dtype(jnp.bfloat16)}


def integers(random: np.random.RandomState, shape: tuple[int, ...], largest: int) -> Any:
    return random.randint(-largest, largest + 1, shape)


def summed_in_order(x: Any, w: Any, order: np.ndarray[Any, Any], parts: int) -> Any:
    """x @ w as `parts` partial sums over a permuted contraction, added up in the dtype of x."""
    x, w = x[:, order], w[order]
    step = -(-x.shape[1] // parts)
    total = x[:, :step] @ w[:step]
    for start in range(step, x.shape[1], step):
        total = total + x[:, start : start + step] @ w[start : start + step]
    return total


def assert_holds(expected: Expected, got: Any) -> None:
    assert expected.dtype == got.dtype
    off = np.abs(np.asarray(got).astype(np.float64) - expected.value)
    if expected.exact:
        assert not off.any()
    elif expected.bound is not None:
        assert np.all(off <= expected.bound)


@settings(max_examples=40, deadline=None)
@given(
    dtype=st.sampled_from(sorted(FLOATS)),
    depth=st.sampled_from([1, 2, 7, 33, 90]),
    largest=st.sampled_from([1, 3, 15, 1000, None]),
    parts=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 99),
)
def test_every_order_of_summation_is_within_the_proof(
    dtype: str, depth: int, largest: int | None, parts: int, seed: int
) -> None:
    random = np.random.RandomState(seed)
    shapes = (3, depth), (depth, 2)
    if largest is None:
        x, w = (random.standard_normal(shape).astype(FLOATS[dtype]) for shape in shapes)
    else:
        x, w = (integers(random, shape, largest).astype(FLOATS[dtype]) for shape in shapes)
    (expected,) = evaluate(jnp.matmul, (x, w))
    for _ in range(3):
        got = summed_in_order(jnp.asarray(x), jnp.asarray(w), random.permutation(depth), parts)
        assert_holds(expected, got)


def mlp(x: Any, up: Any, down: Any) -> Any:
    return jax.nn.relu(x @ up) @ down


def residual(x: Any, up: Any, down: Any) -> Any:
    return (x - (x @ up) @ down) / 2 + x.sum(1, keepdims=True) / 4


def attention(x: Any, up: Any, down: Any) -> Any:
    scores = jnp.where(jnp.tril(jnp.ones((x.shape[0],) * 2, bool)), x @ x.T, -jnp.inf)
    return jax.nn.softmax(scores / 8) @ (x @ up @ down)


def recurrent(x: Any, up: Any, down: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        state = jnp.tanh(state) + row @ up @ down
        return state, state

    return jax.lax.scan(step, jnp.zeros_like(x[0]), x)[1]


def moved(x: Any, up: Any, down: Any) -> Any:
    rows = jnp.concatenate([x[::-1], x[1:]]).reshape(-1, 1, x.shape[1])
    taken = rows[jnp.array([2, 0, 1])].at[0].add(jnp.ones_like(rows[0]))
    return jnp.pad(taken.squeeze(1) @ up, ((1, 0), (0, 0)))[:-1] @ down


def normalised(x: Any, up: Any, down: Any) -> Any:
    x = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), 1, keepdims=True) + 1)
    return jax.nn.silu(x @ up) @ down


def until_large(x: Any, up: Any, down: Any) -> Any:
    return jax.lax.while_loop(
        lambda x: jnp.abs(x).max() < 50, lambda x: 2 * x + jnp.ones_like(x), x
    )


def counted(x: Any, up: Any, down: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, x: x + (x @ up) @ down, x)


PROGRAMS = [mlp, residual, attention, recurrent, until_large, moved, normalised, counted]


def drawn(dtype: str, largest: int | None, seed: int) -> list[Any]:
    random = np.random.RandomState(seed)
    shapes = (4, 5), (5, 7), (7, 5)
    if largest is None:
        return [random.standard_normal(shape).astype(FLOATS[dtype]) for shape in shapes]
    return [integers(random, shape, largest).astype(FLOATS[dtype]) for shape in shapes]


@pytest.mark.parametrize("largest", [1, 3, None])
@pytest.mark.parametrize("dtype", sorted(FLOATS))
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_proof_of_a_program_and_of_its_gradient_holds(
    program: Callable[..., Any], dtype: str, largest: int | None
) -> None:
    compiled = jax.jit(program)
    pull_back = jax.jit(lambda c, *a: jax.vjp(program, *a)[1](c))
    with jax.numpy_dtype_promotion("standard"):
        for seed in range(2):
            arrays = drawn(dtype, largest, seed)
            (expected,) = evaluate(program, arrays)
            got = compiled(*arrays)
            assert expected.bound is not None
            assert_holds(expected, got)
            if program is until_large:
                continue
            cotangent = drawn(dtype, largest, seed + 9)[0][: got.shape[0]]
            wanted = evaluate_vjp(program, arrays, [cotangent], (0, 1, 2))
            pulled = pull_back(cotangent, *arrays)
            for want, one in zip(wanted, pulled, strict=True):
                if not want.kink:
                    assert_holds(want, one)


def test_small_integers_are_proven_exact() -> None:
    (expected,) = evaluate(mlp, drawn("f32", 3, 0))
    assert expected.exact
    (expected,) = evaluate(mlp, [a.astype(np.int32) for a in drawn("f32", 1000, 0)])
    assert expected.exact


def test_what_may_be_rounded_is_not_called_exact() -> None:
    (expected,) = evaluate(mlp, drawn("bf16", 15, 0))
    assert not expected.exact
    big = [np.full((2, 2), 2**11, np.int32), np.full((2, 2), 2**20, np.int32)]
    (expected,) = evaluate(jnp.matmul, big)
    assert not expected.exact


def test_division_by_a_power_of_two_keeps_the_proof() -> None:
    x = np.array([3.0, 5.0], np.float32)
    assert evaluate(lambda x: x / 8, [x])[0].exact
    assert not evaluate(lambda x: x / 6, [x])[0].exact


def test_a_tie_in_a_gradient_is_a_kink() -> None:
    x = np.array([1.0, 0.0, -2.0], np.float32)
    (expected,) = evaluate_vjp(jax.nn.relu, [x], [np.ones(3, np.float32)], (0,))
    assert expected.kink
    assert not evaluate(jax.nn.relu, [x])[0].kink
    (expected,) = evaluate_vjp(jax.nn.relu, [x + 4], [np.ones(3, np.float32)], (0,))
    assert not expected.kink


def test_a_comparison_that_rounding_could_turn_is_a_kink() -> None:
    x = np.array([0.1, 0.2], np.float32)
    (expected,) = evaluate(lambda x: jnp.where(x * 3 - x - x - x > 0, 1.0, 2.0), [x])
    assert expected.kink


def test_a_primitive_without_a_rule_loses_the_proof_and_keeps_the_value() -> None:
    x = np.array([0.5, 1.5], np.float32)
    (expected,) = evaluate(jax.lax.lgamma, [x])
    assert (expected.exact, expected.bound) == (False, None)
    assert list(expected.value) == pytest.approx([math.lgamma(0.5), math.lgamma(1.5)])


def test_dtypes_are_those_of_32_bit() -> None:
    x = np.array([1, 2], np.int32)
    outputs = evaluate(lambda x: (x.sum(), x / 2, x > 1, x.astype(jnp.bfloat16)), [x])
    assert [str(one.dtype) for one in outputs] == ["int32", "float32", "bool", "bfloat16"]


def test_integer_arithmetic_truncates_as_xla_does() -> None:
    x = np.array([-7, 7, -8], np.int32)
    with jax.numpy_dtype_promotion("standard"):
        for function in (
            lambda x: jax.lax.div(x, jnp.int32(2)),
            lambda x: jax.lax.rem(x, jnp.int32(3)),
            lambda x: x // 2,
            lambda x: x % 3,
        ):
            (expected,) = evaluate(function, [x])
            assert expected.exact
            np.testing.assert_array_equal(expected.value, function(x))


def test_sizes_are_given_to_a_reference_that_asks_for_them() -> None:
    stated = contract("x[B_X] -> out[B_X]", reference=lambda x, *, X: x * X)

    def function(x: Any, *, X: str = "X") -> Any:
        return x

    case = parse_case("X=3/B=6")
    assert reference_keywords(stated(function).contract, case) == {"X": 3}  # type: ignore[attr-defined]


def test_a_loop_that_does_not_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="a while loop runs more than"):
        evaluate(lambda x: jax.lax.while_loop(lambda x: x < 2, lambda x: x * 0, x), [np.float32(1)])
