from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings

from conformance import Case, contract
from conformance.candidate import load
from conformance.generators import cases, drawn_cases, fixed_cases

MLP = load("tensor_parallel.mlp_shard_map").contract


def stated(signature: str, **keywords: Any) -> Any:
    axes = signature.count("_X")
    assert axes

    @contract(signature, reference=lambda x: x, **keywords)
    def function(x: Any) -> Any:
        return x

    return function.contract  # type: ignore[attr-defined]


def test_every_profile_opens_with_two_cases() -> None:
    first, second = fixed_cases(MLP, "explicit", 12, True)
    assert str(first) == "dp=2,tp=3/B=2,D=3,F=15/f32/explicit"
    assert str(second) == "dp=4,tp=2/B=8,D=3,F=2/bf16/explicit/order=7/names=1"
    (_, second) = fixed_cases(MLP, "auto", 12, False)
    assert second.names == 0


@pytest.mark.parametrize("devices", [1, 2, 3, 6])
def test_fewer_devices_give_smaller_meshes(devices: int) -> None:
    for case in (
        *fixed_cases(MLP, "auto", devices, True),
        *drawn_cases(MLP, "auto", devices, True, 10, 0),
    ):
        assert case.devices <= devices
        case.check(MLP)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(MLP, "auto", 12, True))
def test_every_case_fits_its_contract_and_the_devices(case: Case) -> None:
    case.check(MLP)
    assert case.devices <= 12


def test_what_hides_faults_is_varied() -> None:
    drawn = drawn_cases(MLP, "auto", 12, True, 200, 0)
    assert len(set(drawn)) == 200
    meshes = [tuple(axis.size for axis in case.mesh if not axis.extra) for case in drawn]
    assert sum(1 not in mesh for mesh in meshes) > 200 * 0.55
    assert any(1 in mesh for mesh in meshes)
    sizes = {size for mesh in meshes for size in mesh}
    assert {1, 2, 3, 4, 5, 6} <= sizes
    assert {1, 2, 12} <= {case.devices for case in drawn}
    assert (1, 1) in meshes
    assert {(2, 2), (2, 3), (3, 2), (2, 5), (5, 2), (3, 3), (4, 3)} <= set(meshes)
    assert any(axis.extra for case in drawn for axis in case.mesh)
    assert any(len(axis.parts) > 1 for case in drawn for axis in case.mesh)
    assert {bool(case.order) for case in drawn} == {True, False}
    assert {case.names for case in drawn} == {0, 1}
    assert {case.dtype for case in drawn} == {"f32", "bf16", "i32"}
    names = Counter(tuple(axis.name for axis in case.mesh if not axis.extra) for case in drawn)
    assert set(names) == {("dp", "tp"), ("tp", "dp")}
    assert sum(len({n for _, n in case.dims}) == 3 for case in drawn) > 150


def test_a_candidate_with_fixed_names_is_given_no_others() -> None:
    for case in drawn_cases(MLP, "auto", 12, False, 50, 0):
        assert case.names == 0
        assert all(len(axis.parts) == 1 for axis in case.mesh)


def test_a_seed_gives_the_same_cases() -> None:
    assert drawn_cases(MLP, "auto", 12, True, 20, 3) == drawn_cases(MLP, "auto", 12, True, 20, 3)
    assert drawn_cases(MLP, "auto", 12, True, 20, 3) != drawn_cases(MLP, "auto", 12, True, 20, 4)


def test_constraints_among_sizes_hold() -> None:
    bounded = stated("x[S_X, D] -> out[S_X, D]", where="S >= 4*X")
    drawn = drawn_cases(bounded, "auto", 12, True, 20, 0)
    assert len(drawn) == 20
    assert all(case.sizes["S"] >= 4 * case.sizes["X"] for case in drawn)


def test_a_fixed_case_that_breaks_a_constraint_is_made_to_fit_or_left_out() -> None:
    bounded = stated("x[S_X, D] -> out[S_X, D]", where="S >= 4*X")
    for case in fixed_cases(bounded, "auto", 12, True):
        case.check(bounded)


def test_a_failing_case_shrinks_to_the_smallest_mesh() -> None:
    smallest = find(
        cases(MLP, "auto", 12, True),
        lambda case: case.sizes["tp"] >= 2,
        settings=settings(database=None, suppress_health_check=list(HealthCheck)),
    )
    assert smallest.devices == 4
    assert not any(axis.extra for axis in smallest.mesh)
    assert replace(smallest, dims=()) == replace(smallest, dims=(), order=0, names=0, seed=0)


def test_a_product_is_sized_as_a_whole() -> None:
    product = stated("x[2*S_X, D] -> out[2*S_X, D]")
    for case in drawn_cases(product, "auto", 12, True, 20, 0):
        assert 2 * case.sizes["S"] % case.sizes["X"] == 0
