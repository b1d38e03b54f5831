import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conformance import contract, parse_case
from conformance.candidate import Candidate, load, strategies
from conformance.generators import fixed_cases
from conformance.inputs import draw, numpy_dtype, place
from conformance.meshes import build_mesh

MLP = load("tensor_parallel.mlp").contract
CASE = "dp=2,tp=3/B=2,D=5,F=9"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("f32", np.float32),
        ("bf16", jnp.bfloat16),
        ("i32", np.int32),
        ("u8", np.uint8),
        ("bool", np.bool_),
    ],
)
def test_a_dtype_of_the_notation_is_numpys(name: str, dtype: object) -> None:
    assert numpy_dtype(name) == np.dtype(dtype)  # type: ignore[call-overload]


CANDIDATES = [one for one in strategies() if not one.contract.refuses]


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda one: one.name)
def test_exact_data_are_proven_exact_and_hide_nothing(candidate: Candidate) -> None:
    contract = candidate.contract
    # A mean over a batch whose size is no power of two is rounded.
    exact = not candidate.name.startswith(("data_parallel.", "slice_and_average."))
    for case in fixed_cases(contract, contract.axis_types[0], 12, True):
        drawn = draw(contract, case)
        assert not any(one.kink for one in (*drawn.expected, *drawn.gradients))
        for one in (*drawn.expected, *drawn.gradients) if exact else ():
            assert one.exact
        for one in drawn.expected:
            assert one.value.size == 1 or len(np.unique(one.value)) > 1
        arrays = [array.astype(float) for array in drawn.arrays]
        assert all(
            len(np.unique(array)) >= min(3 if exact else 2, array.size - 1) for array in arrays
        )
        assert min(array.min() for array in arrays) < 0


def test_real_data_have_a_bound() -> None:
    drawn = draw(MLP, parse_case(f"{CASE}/data=real"))
    (expected,) = drawn.expected
    assert not expected.exact
    assert expected.bound is not None
    assert 0 < expected.bound.max() < np.abs(expected.value).max() / 1000
    assert drawn.arrays[0].dtype == np.float32


def test_a_seed_gives_the_same_data_for_ever() -> None:
    first, again = (draw(MLP, parse_case(f"{CASE}/seed=5")).arrays[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first[0].tolist() == [1.0, -13.0, 1.0, -13.0, 11.0]
    other = draw(MLP, parse_case(f"{CASE}/seed=6")).arrays[0]
    assert (first != other).any()


def test_integers_keep_to_their_range_and_fixed_dtypes_stay() -> None:
    stated = contract(
        "ids: i32[S_X], mask: bool[S_X], n: u8[S_X] -> out[S_X]",
        reference=lambda ids, mask, n: jnp.where(mask, ids, -ids),
        ints={"ids": "2..S"},
    )(lambda ids, mask, n: ids)
    drawn = draw(stated.contract, parse_case("X=2/S=64"))  # type: ignore[attr-defined]
    ids, mask, count = drawn.arrays
    assert (ids.dtype, mask.dtype, count.dtype) == (np.int32, np.bool_, np.uint8)
    assert ids.min() >= 2
    assert ids.max() < 64


def test_arrays_are_placed_as_their_specs_say() -> None:
    case = parse_case(f"{CASE}/explicit/names=1")
    mesh = build_mesh(case, jax.devices())
    drawn = draw(MLP, case)
    placed = place(drawn.arrays, MLP.signature.inputs, mesh, case)
    for array, spec, one in zip(drawn.arrays, MLP.signature.inputs, placed, strict=True):
        np.testing.assert_array_equal(array, one)
        assert one.addressable_shards[0].data.shape == spec.local_shape(case.sizes)


def test_cancelling_data_count_what_a_narrow_sum_loses() -> None:
    stated = contract(
        "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F]",
        reference=lambda x, w: x @ w,
        accumulates="f32",
        dtypes="bf16",
    )(lambda x, w: x)
    case = parse_case("X=2,Y=2/B=2,D=10,F=3/bf16/data=cancelling")
    drawn = draw(stated.contract, case)  # type: ignore[attr-defined]
    x, w = (array.astype(float) for array in drawn.arrays)
    assert x[0].tolist() == [256, *[1] * 8, -256]
    assert (w == 1).all()
    (expected,) = drawn.expected
    assert (expected.value == 8).all()
    assert expected.bound is not None
    # Far nearer than what a sum kept in bfloat16 gives, which is 0.
    assert (expected.bound < 0.1).all()
    assert drawn.gradients == ()
