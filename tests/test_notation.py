"""The notation: what it says of shapes, and what is said of a wrong one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import CaseError, ContractError
from conformance.notation import ArraySpec, Dim, parse_operand, parse_signature

MLP = "x[B_dp, D], w_up[D, F_tp], w_down[F_tp, D] -> out[B_dp, D]"


@pytest.mark.parametrize(
    "text",
    [
        MLP,
        "x: i32[S_{X,Y}] -> out: i32[4]",
        "W[E_X, D, F_Y], A[S_X, D_Y], B: i32[S_X] -> Out[S_X, F_Y], dropped: i32[]",
        "q[B, 4*D_tp, 2*H*K] -> C[I, K]{U_{Y,Z}}",
        "w[K, D], x[B_dp, D] -> w[K, D], loss[]",
    ],
)
def test_a_signature_prints_as_it_is_written(text: str) -> None:
    assert str(parse_signature(text)) == text


def test_spaces_do_not_count() -> None:
    assert parse_signature("x [ B_{dp , tp} ,D ]->y[D]") == parse_signature(
        "x[B_{dp,tp}, D] -> y[D]"
    )


def test_axes_and_symbols_come_in_order_of_appearance() -> None:
    signature = parse_signature("A[S_X, D_Y] -> means[X_X, D]")
    assert signature.axes == ("X", "Y")
    # X has the size of the axis, so it is no symbol that a case could choose.
    assert signature.symbols == ("S", "D")


def test_shapes_follow_from_sizes() -> None:
    spec = parse_signature("q[B_dp, 4*D_{tp,dp2}, 3] -> o[]").inputs[0]
    sizes = {"B": 6, "D": 3, "dp": 2, "tp": 3, "dp2": 2}
    assert spec.shape(sizes) == (6, 12, 3)
    assert spec.local_shape(sizes) == (3, 2, 3)


def test_sizes_that_do_not_divide_are_refused_with_the_remedy() -> None:
    spec = parse_signature(MLP).inputs[0]
    with pytest.raises(CaseError) as error:
        spec.local_shape({"B": 5, "D": 2, "dp": 2})
    assert str(error.value) == (
        "x[B_dp, D]: dimension B_dp has 5 elements, which dp=2 do not divide; give a multiple of 2"
    )


def test_multiple_of_is_the_least_size_that_divides() -> None:
    signature = parse_signature("x[B_X, 4*D_Y], y[D_{X,Y}] -> z[6*E_Y]")
    sizes = {"X": 2, "Y": 3}
    assert [signature.multiple_of(s, sizes) for s in ("B", "D", "E")] == [2, 6, 1]


def test_the_factor_of_an_operand_scales_its_bytes() -> None:
    sizes = {"B": 4, "D": 6, "X": 2, "Y": 3}
    assert parse_operand("lhs[B_X, D_Y]/2").local_bytes(sizes, "bf16") == 4
    assert parse_operand("lhs[B_X, D_Y]*3/2").local_bytes(sizes, "f32") == 24
    assert str(parse_operand("lhs[B_X, D_Y] * 3 / 2")) == "lhs[B_X, D_Y]*3/2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x[B_dp D] -> o[]", "expected ',' or ']' after dimension 'B_dp'; found 'D'"),
        ("x[B] o[]", "expected ',' and another input, or '->' and the outputs; found 'o'"),
        ("x[B] -> o[] o", "expected ',' and another output, or the end; found 'o'"),
        ("x -> o[]", "expected '[' and the dimensions of 'x'; found '-'"),
        ("", "expected the name of an array, such as 'x[B, D]'; found the end of the text"),
        ("x[B", "expected ',' or ']' after dimension 'B'; found the end of the text"),
        ("x[B, ] -> o[]", "expected a dimension: a symbol or a positive integer; found ']'"),
        ("x[B, 0] -> o[]", "expected a positive size; found '0'"),
        ("x[B_] -> o[]", "expected the name of a mesh axis; found ']'"),
        ("x[B_{X Y}] -> o[]", "expected ',' or '}' after axis 'X'; found 'Y'"),
        ("x[B_X, D_X] -> o[]", "axis 'X' stands twice in one array"),
        ("x[B]{U_X -> o[]", "expected '}' after the unreduced axes; found '-'"),
        ("x[B]{V_X} -> o[]", "expected 'U_' and the axes over which the array is unreduced"),
        ("x[B_X]{U_X} -> o[]", "axis 'X' stands twice in one array"),
        ("x: f99[B] -> o[]", "expected a dtype, one of f64, f32, bf16,"),
        ("x[B], x[D] -> o[]", "two arrays are named 'x'"),
    ],
)
def test_wrong_notation_is_refused_at_the_character(text: str, message: str) -> None:
    with pytest.raises(ContractError) as error:
        parse_signature(text)
    first, *pointed = str(error.value).split("\n")
    assert message in first
    assert pointed[0] == f"  {text}"
    assert set(pointed[1]) <= {" ", "^"}


def test_the_caret_stands_under_the_character() -> None:
    with pytest.raises(ContractError) as error:
        parse_signature("x[B_dp D] -> o[]")
    _, text, caret = str(error.value).split("\n")
    assert text[caret.index("^")] == "D"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lhs[B]/0", "expected a positive integer factor; found '0'"),
        ("lhs[B]/Y", "expected a positive integer factor; found 'Y'"),
        ("lhs[B] lhs[B]", "expected '*' or '/' and a factor, or the end; found 'l'"),
    ],
)
def test_wrong_operands_are_refused(text: str, message: str) -> None:
    with pytest.raises(ContractError, match="^" + message.replace("*", r"\*")):
        parse_operand(text)


_symbols = st.sampled_from(["B", "D", "F", "S2"])
_specs = st.builds(
    ArraySpec,
    name=st.sampled_from(["x", "w_up"]),
    dims=st.lists(
        st.builds(
            Dim,
            coefficient=st.integers(1, 9),
            symbols=st.lists(_symbols, max_size=2).map(tuple),
            axes=st.just(()),
        ),
        max_size=3,
    ).map(tuple),
    dtype=st.sampled_from([None, "f32", "i32"]),
    unreduced=st.sampled_from([(), ("Y",), ("Y", "Z")]),
)


@given(_specs, st.permutations(["a", "b_c", "d"]))
def test_any_spec_reads_back_as_it_prints(spec: ArraySpec, axes: list[str]) -> None:
    dims = tuple(
        Dim(dim.coefficient, dim.symbols, tuple(axes) if index == 0 else ())
        for index, dim in enumerate(spec.dims)
    )
    spec = ArraySpec(spec.name, dims, spec.dtype, spec.unreduced)
    assert parse_operand(str(spec)).spec == spec
