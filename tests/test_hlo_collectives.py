"""The same programs, compiled by three versions for CPU and for TPU: the same collectives."""

from pathlib import Path

import pytest

from conformance.hlo import CollectiveOp, HloError, collectives, parse

DATA = Path(__file__).parent / "data" / "hlo"
FOLDERS = sorted(path.name for path in DATA.iterdir())
X = ((0, 4), (1, 5), (2, 6), (3, 7))
Y = ((0, 1, 2, 3), (4, 5, 6, 7))
ALL = (tuple(range(8)),)


def read(folder: str, program: str) -> tuple[CollectiveOp, ...]:
    return collectives(parse((DATA / folder / f"{program}.hlo").read_text()))


def by_kind(folder: str, program: str) -> dict[str, CollectiveOp]:
    found = read(folder, program)
    assert len({op.kind for op in found}) == len(found)
    return {op.kind: op for op in found}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_kind_is_found_with_its_groups(folder: str) -> None:
    found = by_kind(folder, "every_kind")
    assert found["all-to-all"].groups == Y
    assert found["all-gather"].groups == ((0, 4, 1, 5, 2, 6, 3, 7),)
    assert found["reduce-scatter"].groups == X
    assert found["all-reduce"].groups == Y
    assert (found["reduce-scatter"].reducer, found["all-reduce"].reducer) == ("sum", "max")
    assert found["collective-permute"].pairs[:4] == ((0, 3), (1, 0), (2, 1), (3, 2))
    d = 4 if folder.startswith("cpu") else 128
    # The operand's bytes, d x d in float32: however many operands it is split into.
    assert {kind: sum(shape.bytes for shape in op.operands) for kind, op in found.items()} == {
        "collective-permute": 4 * d * d,
        "all-to-all": 4 * d * d,
        "all-gather": 4 * d * d,
        "reduce-scatter": 4 * 8 * d * d,
        "all-reduce": 4 * 4 * d * d,
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_loops_are_multiplied_out(folder: str) -> None:
    found = by_kind(folder, "nested_loops")
    assert (found["all-reduce"].times, found["collective-permute"].times) == (5, 15)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_loop_that_data_end_runs_an_unknown_number_of_times(folder: str) -> None:
    found = by_kind(folder, "until_small")
    # The all-reduce stands in the condition, the permute in the body.
    assert (found["all-reduce"].times, found["collective-permute"].times) == (None, None)
    assert found["all-reduce"].groups == ALL


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_collective_in_one_branch_runs_an_unknown_number_of_times(folder: str) -> None:
    first, second = read(folder, "branch")
    assert (first.reducer, first.conditional, first.times) == ("max", False, 1)
    assert (second.reducer, second.conditional, second.times) == ("sum", True, None)


@pytest.mark.parametrize("folder", FOLDERS)
def test_sums_that_are_merged_are_counted_by_operand(folder: str) -> None:
    operands = [
        (op.groups, shape.bytes) for op in read(folder, "two_sums") for shape in op.operands
    ]
    d = 4 if folder.startswith("cpu") else 128
    assert sorted(operands) == sorted([(X, 4 * d * d), (Y, 4 * d * d), (Y, 4 * d)])


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_source_line_is_told(folder: str) -> None:
    (permute,) = (op for op in read(folder, "every_kind") if op.kind == "collective-permute")
    assert permute.source.startswith("make_hlo.py:")
    assert permute.source.endswith(", in ppermute")


@pytest.mark.parametrize("program", [path.stem for path in (DATA / FOLDERS[0]).iterdir()])
def test_all_forms_of_groups_say_the_same(program: str) -> None:
    # 0.12 prints mesh axes, some with invented names, where the older versions print numbers.
    per_version = [
        [
            (op.kind, sorted(map(sorted, op.groups)), sorted(op.pairs), op.operands)
            for op in read(folder, program)
        ]
        for folder in FOLDERS
        if folder.startswith("cpu")
    ]
    assert len(per_version) == 3
    assert per_version[0] == per_version[1] == per_version[2]


def module(instruction: str) -> str:
    return f"""\
HloModule m, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[4]) -> f32[4] {{
  %x = f32[4]{{0}} parameter(0)
  {instruction}
}}
"""


def test_a_start_and_its_done_are_one() -> None:
    text = module(
        "%s = (f32[4], f32[4]) all-reduce-start(%x), replica_groups={}, to_apply=%add\n"
        "  ROOT %d = f32[4] all-reduce-done(%s)"
    )
    (found,) = collectives(parse(text))
    assert (found.kind, found.groups, found.operands[0].bytes) == ("all-reduce", ALL, 16)


def test_the_callee_of_an_async_wrapper_is_read() -> None:
    text = module("ROOT %d = f32[4] async-done(%s)").replace(
        "  ROOT %d",
        "  %s = ((f32[4]), f32[4]) async-start(%x), calls=%wrapped\n  ROOT %d",
    )
    text = text.replace(
        "ENTRY",
        """%wrapped (y: f32[4]) -> f32[4] {
  %y = f32[4]{0} parameter(0)
  ROOT %g = f32[4] all-reduce(%y), replica_groups={{0,1}}, to_apply=%add
}, execution_thread="sparsecore"

ENTRY""",
    )
    (found,) = collectives(parse(text))
    assert found.groups == ((0, 1),)


BRANCHES = """\
HloModule m, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%yes (y: f32[4]) -> f32[4] {
  %y = f32[4]{0} parameter(0)
  ROOT %r1 = f32[4] all-reduce(%y), replica_groups={{0,1}}, to_apply=%add
}

%no (z: f32[4]) -> f32[4] {
  %z = f32[4]{0} parameter(0)
  %n = f32[4]{0} negate(%z)
  ROOT %r2 = f32[4] all-reduce(%n), replica_groups={{0,1}}, to_apply=%add
}

ENTRY %main (p: pred[], x: f32[4]) -> f32[4] {
  %p = pred[] parameter(0)
  %x = f32[4]{0} parameter(1)
  ROOT %c = f32[4] conditional(%p, %x, %x), true_computation=%yes, false_computation=%no
}
"""


def test_branches_that_send_the_same_count_once() -> None:
    (found,) = collectives(parse(BRANCHES))
    assert (found.times, found.conditional) == (1, True)
    other = BRANCHES.replace(
        "all-reduce(%n), replica_groups={{0,1}}", "all-reduce(%n), replica_groups={{0,2}}"
    )
    assert [op.times for op in collectives(parse(other))] == [None, None]


def test_a_loop_counts_by_its_own_state_only() -> None:
    # The counter comes from the result of an inner loop that data end, not from the state.
    text = (DATA / "tpu-v5e-2x4-0.12.0.1" / "nested_loops.hlo").read_text()
    counter = "%get-tuple-element.82 = s32[]{:T(128)} get-tuple-element(%wide.param.4), index=0"
    assert counter in text
    moved = text.replace(counter, counter.replace("(%wide.param.4)", "(%tuple.31)"))
    times = {op.kind: op.times for op in collectives(parse(moved))}
    assert times["all-reduce"] is None


def test_a_computation_that_calls_itself_is_an_error() -> None:
    text = BRANCHES.replace("true_computation=%yes", "true_computation=%main")
    with pytest.raises(HloError, match="a computation calls itself"):
        collectives(parse(text))


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("ROOT %r = f32[4] all-reduce-scatter(%x)", "unknown opcode 'all-reduce-scatter'"),
        (
            "ROOT %r = f32[4] all-reduce(%x), replica_groups=ring(8), to_apply=%add",
            "unknown form of replica groups",
        ),
        ("ROOT %r = f32[4] all-reduce(%x), to_apply=%add", "unknown form of replica groups"),
        (
            "ROOT %r = f32[4] all-reduce(%x), replica_groups={}, to_apply={%add,%add}",
            "expected one computation in to_apply",
        ),
        ("ROOT %r = f32[4] send(%x), channel_id=1", "'send' sends in a way that is not known"),
        ("ROOT %r = f32[4] while(%x), condition=%add", "expected a condition and a body"),
        (
            "ROOT %r = f32[4] collective-permute(%x), source_target_pairs=all",
            "unknown form of source-target pairs",
        ),
    ],
)
def test_what_is_not_known_is_an_error_with_the_line(instruction: str, message: str) -> None:
    with pytest.raises(HloError, match=message) as error:
        collectives(parse(module(instruction)))
    assert error.value.line_number == 11
