import sys
from pathlib import Path
from typing import Any

import pytest

from conformance import ContractError, UsageError, contract
from conformance.candidate import Candidate, as_candidate, load, strategies


@contract("x[B_X] -> out[B_X]", reference=lambda x: x)
def same(x: Any, *, X: str = "X") -> Any:
    return x


def fixed(x: Any) -> Any:
    return x


def test_a_function_is_held_to_its_own_contract() -> None:
    candidate = as_candidate(same)
    assert candidate.contract is same.contract  # type: ignore[attr-defined]
    assert candidate.name.endswith("test_candidate:same")
    assert candidate.renames
    assert candidate.keywords({"X": ("a", "b")}) == {"X": ("a", "b")}


@pytest.mark.parametrize("given", [same, same.contract])  # type: ignore[attr-defined]
def test_a_function_may_be_held_to_another_contract(given: Any) -> None:
    candidate = as_candidate(fixed, given, "mine")
    assert candidate.name == "mine"
    assert not candidate.renames
    assert candidate.keywords({"X": "X"}) == {}


def test_no_contract_names_both_remedies() -> None:
    with pytest.raises(UsageError, match=r"has no contract: decorate it .* --like STRATEGY"):
        as_candidate(fixed)


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (3, None, "candidate: expected a function; given 3"),
        (fixed, 3, "contract: expected a Contract or a function that has one; given 3"),
    ],
)
def test_what_is_no_function_or_contract_is_refused(
    function: Any, given: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        as_candidate(function, given)


def test_a_function_held_to_a_strategy_says_so_in_its_name() -> None:
    mlp = load("tensor_parallel.mlp").function
    assert as_candidate(mlp).name == "tensor_parallel.mlp"
    assert as_candidate(fixed, same).name == f"{__name__}:fixed~{__name__}:same"


def test_a_function_that_does_not_fit_the_contract_is_refused() -> None:
    with pytest.raises(ContractError, match="takes 0 arrays"):
        Candidate("mine", lambda: 0, same.contract)  # type: ignore[attr-defined]


def test_a_strategy_is_found_by_its_short_or_long_name() -> None:
    assert load("tensor_parallel.mlp").name == "tensor_parallel.mlp"
    assert load("strategies.tensor_parallel.mlp").name == "tensor_parallel.mlp"
    assert "automatic.matmul_all_reduce" in {one.name for one in strategies()}


def test_an_unknown_strategy_is_told_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"unknown strategy 'mlq'; .*tensor_parallel\.mlp"):
        load("mlq")


def test_a_function_of_the_current_folder_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_here.py").write_text("def f(x, w_up, w_down): return x\ng = 3\n")
    (tmp_path / "broken_here.py").write_text("import nothing_of_this_name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    candidate = load("mine_here:f", like="tensor_parallel.mlp")
    assert candidate.name == "mine_here:f~tensor_parallel.mlp"
    assert candidate.contract is load("tensor_parallel.mlp").contract
    with pytest.raises(UsageError, match="mine_here:f has no contract"):
        load("mine_here:f")
    with pytest.raises(UsageError, match="mine_here:h: module 'mine_here' has no 'h'"):
        load("mine_here:h")
    with pytest.raises(UsageError, match=r"importing 'broken_here' failed: ModuleNotFoundError"):
        load("broken_here:f")
