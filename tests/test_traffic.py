"""Groups of positions matched to the user's axes, and what contracts expect in bytes."""

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from conformance import all_gather, all_reduce, contract, parse_case, permute
from conformance.traffic import (
    Flow,
    expected_flows,
    logical_axes,
    match_groups,
    match_pairs,
    totals,
)

MESHES = [
    tuple(zip("abcd", sizes, strict=False))
    for count in range(1, 5)
    for sizes in itertools.product(range(1, 7), repeat=count)
    if math.prod(sizes) <= 12
]


def groups_over(axes: tuple[str, ...], mesh: Any) -> list[tuple[int, ...]]:
    """What NumPy says: positions with `axes` moved last, in this order."""
    names = [name for name, _ in mesh]
    positions = np.arange(math.prod(size for _, size in mesh)).reshape([size for _, size in mesh])
    others = [index for index, name in enumerate(names) if name not in axes]
    moved = positions.transpose([*others, *(names.index(axis) for axis in axes)])
    group = math.prod(size for name, size in mesh if name in axes)
    return [tuple(map(int, row)) for row in moved.reshape(-1, group)]


@pytest.mark.parametrize("ordered", [True, False])
def test_any_axes_of_any_mesh_are_found_again(ordered: bool) -> None:
    for mesh in MESHES:
        wide = [name for name, size in mesh if size > 1]
        for count in range(1, len(wide) + 1):
            for axes in itertools.permutations(wide, count):
                groups = groups_over(axes, mesh)
                shuffled = random.Random(0).sample(groups, len(groups))
                found = match_groups(shuffled, mesh, ordered)
                assert found == (axes if ordered else tuple(sorted(axes)))


def test_the_order_within_a_group_counts_only_where_it_matters() -> None:
    mesh = (("X", 2), ("Y", 2))
    assert match_groups([(0, 2, 1, 3)], mesh, ordered=True) == ("Y", "X")
    assert match_groups([(0, 2, 1, 3)], mesh, ordered=False) == ("X", "Y")
    assert match_groups([(0, 3, 1, 2)], mesh, ordered=True) is None


def test_groups_that_are_no_product_of_axes_are_not_matched() -> None:
    mesh = (("X", 2), ("Y", 4))
    assert match_groups([(0, 1), (2, 3), (4, 5), (6, 7)], mesh, ordered=False) is None
    assert match_groups([(0, 5, 2, 7), (4, 1, 6, 3)], mesh, ordered=False) is None


def test_permutes_are_matched_by_their_pairs() -> None:
    mesh = (("X", 2), ("Y", 4))
    left = [(x * 4 + y, x * 4 + (y - 1) % 4) for x in range(2) for y in range(4)]
    assert match_pairs(left, mesh) == (("Y",), 4, 3)
    assert match_pairs([(y, x) for x, y in left], mesh) == (("Y",), 4, 1)
    assert match_pairs([((p), (p + 1) % 8) for p in range(8)], mesh) == (("X", "Y"), 8, 1)
    assert match_pairs(left[:-1], mesh) is None


@contract(
    "x[B_dp, D_tp] -> out[B_dp, D_tp]",
    reference=lambda x: x,
    collectives=[
        all_reduce("dp", "x[B_dp, D_tp]"),
        all_gather(("tp", "dp"), "mask: f32[B_dp, D_tp]"),
        permute("tp", "x[B_dp, D_tp]/2", shift=-1, times="tp-1"),
    ],
)
def busy(x: Any, *, dp: str = "dp", tp: str = "tp") -> Any:
    return x


CONTRACT = busy.contract  # type: ignore[attr-defined]


def flows(case: str) -> list[str]:
    return list(map(str, expected_flows(CONTRACT.collectives, CONTRACT, parse_case(case))))


def test_expected_bytes_follow_from_the_notation() -> None:
    assert flows("dp=2,tp=3/B=4,D=6/bf16") == [
        "all-reduce over dp, 8 B of bf16",
        "all-gather over tp, dp, 16 B of f32",
        "collective-permute by -1 over tp, 8 B of bf16",
    ]


def test_axes_of_size_one_expect_nothing() -> None:
    assert flows("dp=1,tp=2/B=1,D=2") == [
        "all-gather over tp, 4 B of f32",
        "collective-permute by +1 over tp, 2 B of f32",
    ]
    assert flows("dp=1,tp=1/B=1,D=2") == []


def test_a_tuple_of_mesh_axes_is_expected_by_its_parts() -> None:
    case = parse_case("dp=2,tp=2*3,+z=1/B=2,D=6")
    assert logical_axes(case) == (("dp", 2), ("tp[0]", 2), ("tp[1]", 3), ("z", 1))
    assert flows(str(case))[1] == "all-gather over tp[0], tp[1], dp, 4 B of f32"


def test_totals_add_bytes_of_equal_keys() -> None:
    case = parse_case("dp=2,tp=3/B=4,D=6")
    some = expected_flows(CONTRACT.collectives, CONTRACT, case)
    assert [flow.bytes for flow in totals([*some, some[0]])] == [32, 16, 16]


def test_groups_without_axes_are_shown_as_positions() -> None:
    flow = Flow("all-reduce", None, 2, "f32", "{0,1},{2,3}", Fraction(8))
    assert str(flow) == "all-reduce over positions {0,1},{2,3}, 8 B of f32"
