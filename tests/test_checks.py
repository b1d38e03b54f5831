"""Each law on arrays made by hand, one fault at a time."""

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from conformance import parse_case
from conformance.checks import (
    check_collectives,
    check_gradients,
    check_out_sharding,
    check_replicas,
    check_values,
)
from conformance.lowerings import Entry, Reading
from conformance.meshes import build_mesh
from conformance.notation import parse_signature
from conformance.reference import Expected
from conformance.traffic import Flow

CASE = parse_case("X=2,Y=3/B=4,F=6")
SPECS = parse_signature("x[B_X, F] -> out[B_X, F]").outputs
TWO = parse_signature("x[B_X, F] -> out[B_X, F], total[]").outputs
VALUE = np.arange(24, dtype=np.float64).reshape(4, 6) - 7


def expected(
    value: Any = VALUE, bound: float | None = 0.0, exact: bool = True, kink: bool = False
) -> Expected:
    value = np.asarray(value)
    bounds = None if bound is None else np.full(value.shape, bound)
    return Expected(value, np.dtype(np.float32), exact, bounds, kink)


BOUNDED = expected(bound=0.5, exact=False)
UNPROVEN = expected(bound=None, exact=False)


def mesh() -> jax.sharding.Mesh:
    return build_mesh(CASE, jax.devices())


ROWS = P("X", None)


def array(value: Any = VALUE, spec: P = ROWS, dtype: Any = jnp.float32) -> jax.Array:
    return jax.device_put(jnp.asarray(value, dtype), NamedSharding(mesh(), spec))


def test_equal_values_pass_and_are_counted_by_their_proof() -> None:
    assert check_values(SPECS, [expected()], array()).numbers == {"exact": 1}
    near = array(VALUE + 0.25)
    rounded = check_values(SPECS, [expected(bound=0.5)], near)
    assert (rounded.problems, rounded.numbers) == ((), {"rounded": 1})
    bounded = check_values(SPECS, [expected(bound=0.5, exact=False)], near)
    assert (bounded.problems, bounded.numbers) == ((), {"bounded": 1})
    unproven = check_values(SPECS, [expected(bound=None, exact=False)], array())
    assert (unproven.problems, unproven.numbers) == ((), {"unproven": 1})


def test_plus_and_minus_zero_are_alike_and_so_are_nans() -> None:
    value = np.array([[0.0, np.nan, np.inf]] * 4)
    got = np.array([[-0.0, np.nan, np.inf]] * 4)
    assert check_values(SPECS, [expected(value)], array(got)).problems == ()
    assert check_values(SPECS, [expected(value)], array(-got)).problems


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        (VALUE + np.eye(4, 6), expected(), "-6.0, expected -7.0 (exact); 4 of 24 elements differ"),
        (VALUE * 3, expected(), "-21.0, expected -7.0 (exact); 23 of 24 elements differ"),
        (VALUE + 1, BOUNDED, "-6.0, expected -7.0 (bounded"),
        (VALUE + 1, UNPROVEN, "-6.0, expected -7.0 (unproven"),
    ],
)
def test_other_values_fail(got: Any, want: Expected, message: str) -> None:
    (problem,) = check_values(SPECS, [want], array(got)).problems
    assert problem.startswith(f"out[0, 0] is {message}")


def test_integers_are_never_near() -> None:
    want = Expected(VALUE.astype(np.int64), np.dtype(np.int32), True, np.full((4, 6), 9.0), False)
    got = array(VALUE + np.eye(4, 6), dtype=jnp.int32)
    assert check_values(SPECS, [want], got).problems
    assert check_values(SPECS, [want], array(dtype=jnp.int32)).numbers == {"exact": 1}


def test_a_constant_ratio_is_told() -> None:
    (problem,) = check_values(SPECS, [expected()], array(VALUE * 3)).problems
    assert problem.endswith("all by the factor 3")
    (problem,) = check_values(SPECS, [expected()], array(VALUE / 2)).problems
    assert problem.endswith("all by the factor 1/2")


def test_another_shape_or_dtype_fails() -> None:
    (problem,) = check_values(SPECS, [expected()], array(VALUE[:2])).problems
    assert problem == "out is float32[2, 6], expected float32[4, 6]"
    (problem,) = check_values(SPECS, [expected()], array(dtype=jnp.int32)).problems
    assert problem == "out is int32[4, 6], expected float32[4, 6]"


@pytest.mark.parametrize(
    ("specs", "returned", "message"),
    [
        (SPECS, lambda: (array(), array()), "expected one array; returned a tuple of 2"),
        (SPECS, lambda: (array(),), "expected one array; returned a tuple of 1"),
        (SPECS, lambda: {"out": array()}, "expected one array; returned PyTreeDef({'out': *})"),
        (SPECS, lambda: None, "expected one array; returned PyTreeDef(None)"),
        (TWO, array, "expected 2 arrays; returned one"),
        (TWO, lambda: (array(),), "expected 2 arrays; returned a tuple of 1"),
    ],
)
def test_another_structure_fails_the_values_and_leaves_nothing_else_to_compare(
    specs: Any, returned: Any, message: str
) -> None:
    output = returned()
    assert check_values(specs, [expected()] * len(specs), output).problems == (message,)
    for finding in (
        check_out_sharding(specs, CASE, mesh(), output),
        check_replicas(specs, output),
    ):
        assert (finding.compared, finding.problems) == (0, ())
        assert finding.reason == "the outputs have another structure"


def test_at_a_kink_nothing_is_compared() -> None:
    finding = check_values(SPECS, [expected(kink=True)], array(VALUE + 1))
    assert (finding.compared, finding.problems) == (0, ())
    assert finding.reason == "every output was at a kink"


def test_placement_is_compared_by_equivalence() -> None:
    finding = check_out_sharding(SPECS, CASE, mesh(), array(spec=P("X")))
    assert (finding.compared, finding.problems) == (1, ())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            P(),
            "out: expected out[B_X, F], P('X', None); observed P(), 1 distinct blocks, each [4, 6]",
        ),
        (
            P(None, "X"),
            "out: expected out[B_X, F], P('X', None); observed P(None, 'X'), 2 distinct",
        ),
        (P("X", "Y"), "out: expected out[B_X, F], P('X', None); observed P('X', 'Y'), 6 distinct"),
    ],
)
def test_another_placement_fails(spec: P, message: str) -> None:
    (problem,) = check_out_sharding(SPECS, CASE, mesh(), array(spec=spec)).problems
    assert problem.startswith(message)


def test_another_order_of_devices_fails() -> None:
    other = build_mesh(parse_case("X=2,Y=3/B=4,F=6/order=1"), jax.devices())
    output = jax.device_put(array(), NamedSharding(other, P("X", None)))
    assert check_out_sharding(SPECS, CASE, mesh(), output).problems


def copies(*values: float) -> jax.Array:
    """An array that says it is replicated, with these values on the devices of each row."""
    sharding = NamedSharding(mesh(), P("X", None))
    shards = [
        jax.device_put(jnp.full((2, 6), values[index % 3]), device)
        for index, device in enumerate(mesh().devices.flat)
    ]
    return jax.make_array_from_single_device_arrays((4, 6), sharding, shards)


def test_copies_that_differ_fail() -> None:
    assert check_replicas(SPECS, copies(1, 1, 1)).problems == ()
    (problem,) = check_replicas(SPECS, copies(1, 1, 2)).problems
    assert problem.startswith("out[0:2, 0:6] differs between its copies on ")
    assert problem.endswith("in 12 of 12 elements")


def test_copies_are_compared_bit_by_bit() -> None:
    assert check_replicas(SPECS, copies(0.0, -0.0, 0.0)).problems


def test_cotangents_are_held_to_the_laws_of_outputs() -> None:
    inputs = parse_signature("x[B_X, F] -> out[B_X, F]").inputs

    def found(returned: Any) -> Any:
        return check_gradients(inputs, [expected()], CASE, mesh(), (returned,))

    assert (found(array()).problems, found(array()).compared) == ((), 1)
    (problem,) = found(array(VALUE / 2)).problems
    assert problem.startswith("the cotangent of x[0, 0] is -3.5, expected -7.0 (exact)")
    assert problem.endswith("all by the factor 1/2")
    (problem,) = found(array(spec=P())).problems
    assert problem.startswith("the cotangent of x: expected x[B_X, F], P('X', None); observed P()")


def test_without_replication_there_is_nothing_to_compare() -> None:
    finding = check_replicas(SPECS, array(spec=P("X", "Y")))
    assert (finding.compared, finding.reason) == (0, "nothing is replicated")


def flow(axes: str, size: int, kind: Any = "all-reduce") -> Flow:
    return Flow(kind, tuple(axes), 2, "f32", "sum", Fraction(size))


def reading(*flows: Flow) -> Reading:
    return Reading(tuple(Entry(one, "mlp.py:31, in psum") for one in flows), 0, ())


def test_bytes_are_compared_in_total() -> None:
    assert check_collectives([flow("X", 8)], reading(flow("X", 4), flow("X", 4))).problems == ()
    assert check_collectives([], reading()).compared == 1


@pytest.mark.parametrize(
    ("want", "got", "message"),
    [
        (
            [flow("X", 8)],
            [flow("Y", 8)],
            "expected all-reduce over X, 8 B of f32; "
            "observed all-reduce over Y, 8 B of f32 (mlp.py:31, in psum)",
        ),
        ([flow("X", 8)], [], "expected all-reduce over X, 8 B of f32; observed nothing"),
        (
            [flow("X", 8)],
            [flow("X", 8), flow("Y", 4)],
            "expected nothing else; observed all-reduce over Y, 4 B of f32 (mlp.py:31, in psum)",
        ),
        (
            [flow("X", 8)],
            [flow("X", 16)],
            "expected all-reduce over X, 8 B of f32; "
            "observed all-reduce over X, 16 B of f32 (mlp.py:31, in psum)",
        ),
    ],
)
def test_other_collectives_fail(want: list[Flow], got: list[Flow], message: str) -> None:
    assert check_collectives(want, reading(*got)).problems == (message,)


def test_runs_are_compared_where_the_contract_counts_them() -> None:
    def permute(size: int, runs: int | None) -> Flow:
        return Flow("collective-permute", ("Y",), 3, "f32", 1, Fraction(size), runs)

    assert check_collectives([permute(8, 2)], reading(permute(4, 1), permute(4, 1))).problems == ()
    assert check_collectives([permute(8, None)], reading(permute(8, 5))).problems == ()
    (problem,) = check_collectives([permute(8, 2)], reading(permute(8, 4))).problems
    assert problem == (
        "expected collective-permute by +1 over Y, 8 B of f32 in 2 runs; observed 4 runs"
    )


def test_what_cannot_be_judged_fails() -> None:
    finding = check_collectives([], Reading((), 0, ("all-reduce runs an unknown number of times",)))
    assert finding.problems == ("all-reduce runs an unknown number of times",)
