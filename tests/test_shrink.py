from collections.abc import Callable
from typing import Any

import jax
import pytest

from conformance import Case, parse_case, verify
from conformance.shrink import shrink
from strategies.tensor_parallel import mlp, mlp_reference

MLP = mlp.contract
LARGE = parse_case("tp=2*3,+z=2,dp=1/B=9,D=10,F=24/bf16/order=3/names=1/data=real/seed=4")


@pytest.mark.parametrize(
    ("fails", "smallest"),
    [
        (lambda case: True, "dp=2,tp=2/B=2,D=1,F=2/f32/auto"),
        (lambda case: case.sizes["tp"] > 2, "dp=2,tp=3/B=2,D=1,F=3/f32/auto"),
        (lambda case: case.sizes["dp"] == 1, "dp=1,tp=2/B=1,D=1,F=2/f32/auto"),
        (lambda case: case.sizes["D"] > 3, "dp=2,tp=2/B=2,D=4,F=2/f32/auto"),
        (lambda case: case.dtype == "bf16", "dp=2,tp=2/B=2,D=1,F=2/bf16/auto"),
        (lambda case: case.data == "real", "dp=2,tp=2/B=2,D=1,F=2/f32/auto/data=real"),
        (lambda case: case.order > 0, "dp=2,tp=2/B=2,D=1,F=2/f32/auto/order=3"),
        (lambda case: case.sizes["F"] % 3 == 0, "dp=2,tp=2/B=2,D=1,F=6/f32/auto"),
        (lambda case: any(axis.extra for axis in case.mesh), "tp=2,+z=2,dp=2/B=2,D=1,F=2/f32/auto"),
        (lambda case: case.mesh[0].name == "tp", "tp=2,dp=2/B=2,D=1,F=2/f32/auto"),
    ],
)
def test_the_smallest_case_that_fails_comes_out(
    fails: Callable[[Case], bool], smallest: str
) -> None:
    asked = []

    def counted(case: Case) -> bool:
        asked.append(case)
        case.check(MLP)
        return fails(case)

    assert str(shrink(LARGE, MLP, counted)) == smallest
    assert len(asked) == len(set(asked))
    assert len({case.program for case in asked}) <= 40


def test_when_the_budget_is_spent_the_smallest_so_far_is_returned() -> None:
    answers = iter([False, True, None])
    shrunk = shrink(LARGE, MLP, lambda case: next(answers))
    assert shrunk.order == 0
    assert shrunk.names == 1


def test_a_failed_check_is_shrunk_by_itself() -> None:
    def only_on_three(x: Any, w_up: Any, w_down: Any, *, dp: Any = "dp", tp: Any = "tp") -> Any:
        size = jax.sharding.get_abstract_mesh().shape.get(tp)
        return mlp_reference(x, w_up, w_down) * (2 if size == 3 else 1)

    verdict = verify(only_on_three, mlp)
    said = {failure.check: failure for failure in verdict.failures}
    assert str(said["values"].case).startswith("dp=2,tp=3/B=2,D=1,F=3/f32/auto")
