from conformance import parse_case
from conformance.candidate import as_candidate, load
from conformance.explain import explain


def lines(name: str, case: str, **keywords: bool) -> list[str]:
    said, raised = explain(load(name), parse_case(case), "cpu", **keywords)
    assert not raised
    return said


def test_shapes_collectives_lowerings_and_the_schedule_are_told() -> None:
    said = lines("automatic.matmul_reduce_scatter", "X=2,Y=4/B=4,D=8,F=12/bf16")
    assert "  x[B_X, D_Y]: bf16[4, 8] -> [2, 2], 8 B" in said
    expected, observed = said.index("collectives expected"), said.index("collectives observed")
    assert said[expected + 1] == "  reduce-scatter over Y, 48 B of bf16 (36 B on the wire)"
    assert said[observed + 1].startswith(said[expected + 1] + "  automatic.py:")
    assert "  reduce-scatter over Y, as all-reduce + slice: 2.0x the bytes" in said
    assert any(line.split()[:1] == ["dot"] and "[2,12]" in line for line in said)
    assert "                   among [0, 1, 2, 3] [4, 5, 6, 7]" in said
    assert any(line.startswith("temporary memory: ") for line in said)


def test_the_program_is_printed_when_asked_for() -> None:
    case = "dp=2,tp=2/B=2,D=3,F=4"
    assert not any("HloModule" in line for line in lines("tensor_parallel.mlp", case))
    assert any("HloModule" in line for line in lines("tensor_parallel.mlp", case, text=True))


def test_a_candidate_that_raises_is_told() -> None:
    mlp = load("tensor_parallel.mlp").contract
    broken = as_candidate(lambda x, a, b: x.nothing, mlp)
    said, raised = explain(broken, parse_case("dp=2,tp=2/B=2,D=3,F=4"), "cpu")
    assert raised
    assert said[-1].startswith("the candidate raised while it was traced: AttributeError")


def test_where_nothing_is_sent_it_says_none() -> None:
    said = lines("tensor_parallel.mlp", "dp=3,tp=1/B=3,D=3,F=4")
    assert "collectives expected: none" in said
    assert "collectives observed: none" in said
