"""Cases and their ids."""

from typing import Any

import pytest

from conformance import Case, CaseError, contract, parse_case
from conformance.case import Axis, parse_dims, parse_mesh


@contract(
    "x[B_dp, D], w[D, F_tp] -> out[B_dp, F_tp]",
    reference=lambda x, w: x @ w,
    axis_types="explicit",
    where="D >= 2",
)
def matmul(x: Any, w: Any, *, dp: str = "dp", tp: str = "tp") -> Any:
    return x @ w


CONTRACT = matmul.contract  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "dp=2,tp=3/B=4,D=6,F=9/f32/explicit",
        "dp=2,tp=3,+z=1/B=4,D=6,F=9/bf16/explicit/order=7/names=1/data=real/seed=5",
        "tp=2*3,dp=1/B=4/i32/auto",
        "X=2//f32/auto",
    ],
)
def test_an_id_reads_back(text: str) -> None:
    assert str(parse_case(text)) == text


def test_defaults_may_be_left_out() -> None:
    short = parse_case("dp=2,tp=3/B=4,D=6,F=9")
    assert short == parse_case("dp=2,tp=3/B=4,D=6,F=9/f32/auto/order=0/names=0/data=exact/seed=0")


def test_an_axis_of_several_parts_is_a_tuple_of_mesh_axes() -> None:
    case = parse_case("dp=2,tp=2*3,+z=1/")
    assert case.devices == 12
    assert case.sizes == {"dp": 2, "tp": 6, "z": 1}
    assert case.mesh_axes == (("dp", 2), ("tp_0", 2), ("tp_1", 3), ("z", 1))
    assert case.bindings == {"dp": "dp", "tp": ("tp_0", "tp_1")}


def test_names_rename_every_mesh_axis() -> None:
    case = parse_case("dp=2,tp=3/B=2/names=1")
    assert case.bindings == {"dp": "renamed0", "tp": "renamed1"}
    assert case.sizes == {"B": 2, "dp": 2, "tp": 3}


def test_data_do_not_change_the_program() -> None:
    assert parse_case("dp=2/B=2/data=real/seed=3").program == parse_case("dp=2/B=2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp=2", "case 'dp=2': expected MESH/DIMS/..., such as 'dp=2,tp=3,+z=1/B=4,"),
        ("dp=2/B=2/f32/colour=3", "case 'dp=2/B=2/f32/colour=3': unexpected 'colour=3'"),
        ("dp=2/B=2/seed=1/seed=2", "unexpected 'seed=2'"),
        ("dp/B=2", "mesh 'dp': expected NAME=SIZE; found 'dp'"),
        ("dp=two/B=2", "'dp=two': dp is a whole number; found 'two'"),
        ("dp=2/B=2/fast", "axis types 'fast' are none of auto, explicit"),
        ("dp=2/B=2/data=all", "data 'all' is none of exact, real"),
    ],
)
def test_a_wrong_id_is_refused(text: str, message: str) -> None:
    with pytest.raises(CaseError) as error:
        parse_case(text)
    assert message in str(error.value)


def test_a_symbol_bound_to_two_sizes_is_refused() -> None:
    with pytest.raises(CaseError, match=r"^dimension 'B' is given twice; give it one size$"):
        Case((), parse_dims("B=8,B=16"))
    with pytest.raises(CaseError, match=r"^mesh axis 'X' is given twice"):
        Case(parse_mesh("X=2,X=4"), ())


def test_sizes_are_positive() -> None:
    with pytest.raises(CaseError, match=r"^X=0: a size is a positive integer$"):
        Case((Axis("X", (0,)),), ())


def test_unknown_dtypes_are_refused() -> None:
    with pytest.raises(CaseError, match=r"^dtype 'f33' is none of f64, f32, "):
        Case((), (), dtype="f33")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp=2/B=2,D=2,F=3", "the mesh dp=2 lacks axis 'tp' of 'x[B_dp, D], w[D, F_tp]"),
        ("dp=2,+tp=3/B=2,D=2,F=3", "the mesh dp=2,+tp=3 lacks axis 'tp'"),
        ("dp=2,tp=3,z=2/B=2,D=2,F=3", "does not name axis 'z'; write +z=2 to add one that"),
        ("dp=2,tp=3/B=2,D=2", "no size for 'F' of 'x[B_dp, D], w[D, F_tp] -> "),
        ("dp=2,tp=3/B=2,D=2,F=3,G=1", "has no dimension 'G'; its dimensions are B, D, F"),
        ("dp=2,tp=3/B=3,D=2,F=3", "x[B_dp, D]: dimension B_dp has 3 elements, which dp=2 do not"),
        ("dp=2,tp=3/B=2,D=1,F=3", "the contract holds where D >= 2; given D=1"),
        ("dp=2,tp=3/B=2,D=2,F=3/auto", "axis types 'auto': the contract admits explicit"),
        ("dp=2,tp=3/B=2,D=2,F=3/i32", "dtype 'i32': the contract admits f32, bf16"),
    ],
)
def test_a_case_that_does_not_fit_its_contract_is_refused(text: str, message: str) -> None:
    mesh, dims, *rest = text.split("/")
    case = parse_case(
        "/".join([mesh, dims, *(rest or []), *([] if "auto" in rest else ["explicit"])])
    )
    with pytest.raises(CaseError) as error:
        case.check(CONTRACT)
    assert message in str(error.value)


def test_a_case_that_fits_is_accepted() -> None:
    parse_case("tp=3,+z=2,dp=2/B=4,D=2,F=9/explicit").check(CONTRACT)
