"""Each rule on a real text, and the near misses that it must refuse: the same text, edited."""

from fractions import Fraction
from pathlib import Path

import pytest

from conformance.hlo import Written, parse
from conformance.lowerings import Reading, read
from conformance.traffic import Flow

DATA = Path(__file__).parent / "data" / "hlo"
CPU = sorted(path.name for path in DATA.iterdir() if path.name.startswith("cpu"))
MESH = (("X", 2), ("Y", 4))
ROW = 4 * 4 * 16  # bytes of f32[4, 16]


def text_of(program: str, folder: str = "cpu-0.12.0.1") -> str:
    return (DATA / folder / f"{program}.hlo").read_text()


def flow(kind: str, axes: str, size: int, dtype: str = "f32", group: int = 0) -> Flow:
    names = tuple(axes)
    group = group or {"X": 2, "Y": 4, "XY": 8}[axes]
    op = "sum" if "reduce" in kind else None
    return Flow(kind, names, group, dtype, op, Fraction(size))  # type: ignore[arg-type]


def reading(text: str, *expected: Flow, backend: str = "cpu") -> Reading:
    return read(parse(text), MESH, expected, backend)


def flows(found: Reading) -> list[Flow]:
    return [entry.flow for entry in found.entries]


def edited(text: str, *changes: tuple[str, str]) -> str:
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return text


SCATTER = flow("reduce-scatter", "Y", ROW)
REDUCE = flow("all-reduce", "Y", ROW)


@pytest.mark.parametrize("folder", CPU)
def test_an_all_reduce_that_is_only_sliced_by_position_is_a_reduce_scatter(folder: str) -> None:
    found = reading(text_of("matmul_reduce_scatter", folder), SCATTER)
    assert flows(found) == [SCATTER]
    assert found.lowerings == ("reduce-scatter over Y, as all-reduce + slice: 2.0x the bytes",)
    assert found.entries[0].source.startswith("make_hlo.py:")


def test_a_literal_reading_that_agrees_needs_no_lowering() -> None:
    found = reading(text_of("matmul_reduce_scatter"), REDUCE)
    assert (flows(found), found.lowerings) == ([REDUCE], ())


TABLE = "constant({0, 1, 2, 3, 0, 1, 2, 3})"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([(TABLE, "constant({0, 0, 0, 0, 1, 1, 1, 1})")], id="along another axis"),
        pytest.param([(TABLE, "constant({1, 0, 2, 3, 1, 0, 2, 3})")], id="blocks permuted"),
        pytest.param([(TABLE, "constant({0, 1, 2, 3, 1, 2, 3, 0})")], id="permuted on one row"),
        pytest.param([(TABLE, "constant({...})")], id="table unknown"),
        pytest.param([("constant({4})", "constant({3})")], id="offsets off by one"),
        pytest.param(
            [("replica_groups=[2,4]<=[8]", "replica_groups=[4,2]<=[2,4]T(1,0)")],
            id="other groups",
        ),
        pytest.param(
            [
                (
                    "  ROOT %bitcast_d",
                    "  %other = f32[4,16]{1,0} negate(%all-reduce)\n  ROOT %bitcast_d",
                )
            ],
            id="a second use",
        ),
        pytest.param(
            [("dynamic-slice(%param_0.1, %constant.16, %bit", "dynamic-slice(%param_0.1, %bit")]
            + [("%bitcast.1), dynamic_slice_sizes={4,4}", "%bitcast.1, %constant.16), x={4,4}")],
            id="along another dimension",
        ),
        pytest.param(
            [("ROOT %dynamic-slice.5", "%dynamic-slice.5")]
            + [
                (
                    "dynamic_slice_sizes={4,4}",
                    "dynamic_slice_sizes={4,4}\n  ROOT %n = f32[4,4]{1,0} negate(%param_0.1)",
                )
            ],
            id="sliced and used whole",
        ),
    ],
)
def test_what_only_looks_like_a_reduce_scatter_is_refused(changes: list[tuple[str, str]]) -> None:
    text = text_of("matmul_reduce_scatter")
    text = "\n".join(line.partition(", metadata=")[0] for line in text.split("\n"))
    found = reading(edited(text, *changes), SCATTER)
    assert [one.kind for one in flows(found)] == ["all-reduce"]
    assert found.lowerings == ()


@pytest.mark.parametrize("folder", CPU)
def test_merged_all_reduces_are_one_flow_an_operand(folder: str) -> None:
    expected = [
        flow("all-reduce", "Y", 4 * 4 * 4),
        flow("all-reduce", "Y", 4 * 4),
        flow("all-reduce", "X", 4 * 4 * 4),
    ]
    found = reading(text_of("two_sums", folder), *expected)
    assert sorted(flows(found), key=str) == sorted(expected, key=str)


def test_a_merged_operand_over_another_axis_is_not_taken_for_the_expected_one() -> None:
    text = edited(text_of("two_sums"), ("{'Y'}", "{'X'}"))
    expected = flow("all-reduce", "Y", 4 * 4 * 4)
    assert expected not in flows(reading(text, expected))


BOTH = flow("all-reduce", "XY", 4)


@pytest.mark.parametrize("folder", CPU)
def test_an_all_reduce_over_two_axes_may_be_split(folder: str) -> None:
    found = reading(text_of("sum_over_both_axes", folder), BOTH)
    assert flows(found) == [BOTH]
    # 2V(3/4 + 1/2) against 2V(7/8).
    assert found.lowerings == (
        "all-reduce over X, Y, as all-reduces over Y, then X: 1.4x the bytes",
    )


def test_where_two_all_reduces_are_expected_they_are_not_merged() -> None:
    expected = [flow("all-reduce", "Y", 4), flow("all-reduce", "X", 4)]
    found = reading(text_of("sum_over_both_axes"), *expected)
    assert (flows(found), found.lowerings) == (expected, ())


SECOND = "all-reduce(%all-reduce)"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            [("  ROOT %all-reduce.1", "  %n = f32[] negate(%all-reduce)\n  ROOT %all-reduce.1")],
            id="a second use between",
        ),
        pytest.param(
            [
                (
                    "  ROOT %all-reduce.1",
                    "  %n = f32[] exponential(%all-reduce)\n  ROOT %all-reduce.1",
                )
            ]
            + [(SECOND, "all-reduce(%n)")],
            id="something nonlinear between",
        ),
        pytest.param(
            [("ROOT %reduce_sum.13 = f32[] add", "ROOT %reduce_sum.13 = f32[] maximum")],
            id="another reducer",
        ),
        pytest.param([("{'X'}", "{'Y'}")], id="the same axis twice"),
    ],
)
def test_what_only_looks_like_a_split_all_reduce_is_refused(
    changes: list[tuple[str, str]],
) -> None:
    found = reading(edited(text_of("sum_over_both_axes"), *changes), BOTH)
    assert len(flows(found)) == 2
    assert found.lowerings == ()


HALF = flow("reduce-scatter", "Y", ROW // 2, "bf16")


@pytest.mark.parametrize("folder", CPU)
def test_a_narrow_float_may_be_widened_and_sliced(folder: str) -> None:
    found = reading(text_of("matmul_reduce_scatter_bf16", folder), HALF)
    assert flows(found) == [HALF]
    assert found.lowerings == (
        "reduce-scatter over Y, as all-reduce + slice: 2.0x the bytes",
        "reduce-scatter of bf16 over Y, as f32: 2.0x the bytes",
    )


def test_a_narrow_float_is_widened_on_no_other_backend() -> None:
    found = reading(text_of("matmul_reduce_scatter_bf16"), HALF, backend="tpu:v5e:2x4")
    assert [one.dtype for one in flows(found)] == ["f32"]


def test_partial_sums_in_float32_that_are_used_as_such_are_not_narrow() -> None:
    narrow = flow("all-reduce", "Y", ROW // 2, "bf16")
    found = reading(text_of("matmul_all_reduce"), narrow)
    assert (flows(found), found.lowerings) == ([REDUCE], ())


WIDE = """\
HloModule wide, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4]) -> bf16[4] {
  %x = f32[4]{0} parameter(0)
  %r = f32[4]{0} all-reduce(%x), replica_groups=[2,4]<=[8], to_apply=%add
  ROOT %c = bf16[4]{0} convert(%r)
}
"""


USED_AS_F32 = ("ROOT %c = bf16[4]{0} convert", "ROOT %c = f32[4]{0} negate")
ALSO_USED_AS_F32 = ("  ROOT %c", "  %n = f32[4]{0} negate(%r)\n  ROOT %c")
PROMOTED = ("%add", "%add.clone_promoted")
FROM_BF16 = (
    "%x = f32[4]{0} parameter(0)",
    "%y = bf16[4]{0} parameter(0)\n  %x = f32[4]{0} convert(%y)",
)


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        pytest.param([], "bf16", id="every use converts to bf16"),
        pytest.param([USED_AS_F32, PROMOTED], "bf16", id="made by the promotion pass"),
        pytest.param([USED_AS_F32, FROM_BF16], "bf16", id="converted from bf16"),
        pytest.param([USED_AS_F32], "f32", id="used as f32"),
        pytest.param([ALSO_USED_AS_F32], "f32", id="also used as f32"),
        pytest.param([("bf16", "f16")], "f32", id="converted to another type"),
    ],
)
def test_a_widened_float_has_its_proof(changes: list[tuple[str, str]], dtype: str) -> None:
    expected = flow("all-reduce", "Y", 8, "bf16")
    (found,) = flows(reading(edited(WIDE, *changes), expected))
    assert found.dtype == dtype


@pytest.mark.parametrize(
    ("written", "dtype"),
    [
        ([], "bf16"),
        ([Written("all-reduce", "bf16", 4)], "bf16"),
        ([Written("all-reduce", "f32", 4)], "f32"),
        ([Written("all-reduce", "f32", 4), Written("all-reduce", "bf16", 4)], "bf16"),
        ([Written("all-reduce", "f32", 5), Written("all-gather", "f32", 4)], "bf16"),
    ],
)
def test_what_is_written_out_in_the_wide_type_is_meant_so(
    written: list[Written], dtype: str
) -> None:
    expected = flow("all-reduce", "Y", 8, "bf16")
    found = read(parse(WIDE), MESH, [expected], "cpu", frozenset(written))
    assert [one.dtype for one in flows(found)] == [dtype]


def test_what_is_written_out_in_the_narrow_type_is_read_so_whatever_is_expected() -> None:
    written = frozenset({Written("all-reduce", "bf16", 4)})
    text = edited(WIDE, USED_AS_F32)
    (found,) = flows(read(parse(text), MESH, [flow("all-reduce", "Y", 16)], "cpu", written))
    assert found == flow("all-reduce", "Y", 8, "bf16")
    other = read(parse(text), MESH, [flow("all-reduce", "Y", 8, "bf16")], "cpu", written)
    assert other.lowerings == ("all-reduce of bf16 over Y, as f32: 2.0x the bytes",)


def test_a_group_of_one_moves_nothing() -> None:
    text = WIDE.replace("[2,4]<=[8]", "{{0},{1},{2},{3},{4},{5},{6},{7}}")
    found = reading(text)
    assert (found.entries, found.idle, found.unknown) == ((), 1, ())


def test_groups_that_are_no_axes_are_shown_as_positions() -> None:
    text = WIDE.replace("[2,4]<=[8]", "{{0,1},{2,3},{4,5},{6,7}}")
    (found,) = flows(reading(text, REDUCE))
    assert (found.axes, found.detail) == (None, "[0, 1] [2, 3] [4, 5] [6, 7]")


def test_pairs_that_are_no_ring_are_shown_as_positions() -> None:
    text = WIDE.replace(
        "all-reduce(%x), replica_groups=[2,4]<=[8], to_apply=%add",
        "collective-permute(%x), source_target_pairs={{0,1},{1,0}}",
    )
    (found,) = flows(reading(text, REDUCE))
    assert (found.axes, found.detail) == (None, "0>1 1>0")


def test_a_loop_of_unknown_length_cannot_be_judged() -> None:
    found = reading(text_of("until_small"))
    assert len(found.unknown) == 2
    assert found.unknown[0].endswith("an unknown number of times, in a loop that data end")
    (branch,) = reading(text_of("branch"), flow("all-reduce", "XY", 4)).unknown
    assert branch.endswith("an unknown number of times, in one branch of a conditional")


def test_what_no_contract_can_list_cannot_be_judged() -> None:
    text = WIDE.replace("all-reduce(%x)", "collective-broadcast(%x)")
    assert "no collective that a contract can list" in reading(text).unknown[0]


def test_many_collectives_of_one_key_are_told_apart_quickly() -> None:
    # 40 all-reduces, each of which could be narrow; the contract wants half of them so.
    lines = "\n".join(
        f"  %r{i} = f32[4]{{0}} all-reduce(%x), replica_groups=[2,4]<=[8], to_apply=%add\n"
        f"  %c{i} = bf16[4]{{0}} convert(%r{i})"
        for i in range(40)
    )
    results = ", ".join(f"%c{i}" for i in range(40))
    root = f"  ROOT %t = ({', '.join(['bf16[4]'] * 40)}) tuple({results})"
    body = f"{WIDE[: WIDE.index('  %r =')]}{lines}\n{root}\n}}\n"
    expected = [flow("all-reduce", "Y", 20 * 8, "bf16"), flow("all-reduce", "Y", 20 * 16)]
    found = reading(body, *expected)
    assert sum(one.bytes for one in flows(found) if one.dtype == "bf16") == 20 * 8
    assert sum(one.bytes for one in flows(found) if one.dtype == "f32") == 20 * 16
