"""What a contract accepts, and what it says of one that contradicts itself."""

from functools import partial
from typing import Any

import jax
import pytest

from conformance import ContractError, all_reduce, contract, known_failure, permute

SIGNATURE = "x[B_X, D_Y], w[D_Y, F] -> out[B_X, F]"


def reference(x: Any, w: Any) -> Any:
    return x @ w


def test_the_function_itself_comes_back_with_its_contract() -> None:
    def matmul(x: Any, w: Any, *, X: str = "X", Y: str = "Y") -> Any:
        return x @ w

    decorate = contract(
        SIGNATURE, reference=reference, collectives=[all_reduce("Y", "out[B_X, F]")]
    )
    assert decorate(matmul) is matmul
    assert str(matmul.contract.signature) == SIGNATURE  # type: ignore[attr-defined]


def test_a_jitted_function_takes_a_contract() -> None:
    jitted = partial(jax.jit, static_argnames=("X", "Y"))(lambda x, w, *, X="X", Y="Y": x @ w)
    assert contract(SIGNATURE, reference=reference)(jitted) is jitted
    assert jitted.contract.axes == ("X", "Y")


def test_every_float_input_is_differentiable_unless_the_contract_says_otherwise() -> None:
    def gather(x: Any, ids: Any) -> Any:
        return x[ids]

    signature = "x[S, D_X], ids: i32[N] -> out[N, D_X]"
    decorate = contract(signature, reference=gather, ints={"ids": "0..S"})
    assert decorate(gather).contract.differentiable == ("x",)  # type: ignore[attr-defined]
    decorate = contract(signature, reference=gather, differentiable=())
    assert decorate(gather).contract.differentiable == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (
            {"collectives": [all_reduce("Z", "out[B_X, F]")]},
            f"collective 'all-reduce over Z of out[B_X, F]' names 'Z', which '{SIGNATURE}' does "
            "not have",
        ),
        (
            {"collectives": [all_reduce("Y", "out[B_X, G]")]},
            f"collective 'all-reduce over Y of out[B_X, G]' names 'G', which '{SIGNATURE}' does "
            "not have",
        ),
        (
            {"collectives": [all_reduce("F", "out[B_X, F]")]},
            f"collective 'all-reduce over F of out[B_X, F]' runs over 'F', which '{SIGNATURE}' "
            "does not use as a mesh axis",
        ),
        (
            {"gradient": [permute("Y", "x[B_X, D_Y]", shift=1, times="Z-1")]},
            "collective 'collective-permute by +1 over Y of x[B_X, D_Y], Z-1 times' names 'Z', "
            f"which '{SIGNATURE}' does not have",
        ),
        ({"where": "Q > 2"}, f"where 'Q > 2' names 'Q', which '{SIGNATURE}' does not have"),
        ({"dtypes": ["f33"]}, "dtypes: 'f33' is none of f64, f32,"),
        ({"axis_types": "manual"}, "axis_types: ('manual',) is none of auto, explicit"),
        ({"differentiable": ["y"]}, f"differentiable names 'y', which '{SIGNATURE}' does not have"),
        ({"ints": {"ids": "0..F"}}, f"ints names 'ids', which '{SIGNATURE}' does not have"),
        ({"ints": {"x": "F"}}, "ints: expected a range, such as '0..E', end excluded"),
        (
            {"reference": lambda x: x},
            f"reference takes 1 arrays (x); '{SIGNATURE}' has 2 inputs: "
            "give one parameter for each",
        ),
        ({"reference": 3}, "reference: expected a function; given 3"),
    ],
)
def test_a_contract_that_contradicts_itself_is_refused(
    keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContractError) as error:
        contract(SIGNATURE, **{"reference": reference, **keywords})
    assert message in str(error.value)


def test_a_function_takes_every_axis_or_none() -> None:
    def some(x: Any, w: Any, *, X: str = "X") -> Any:
        return x @ w

    with pytest.raises(ContractError) as error:
        contract(SIGNATURE, reference=reference)(some)
    assert str(error.value) == (
        f"some takes 'X' as keywords but not 'Y'; take every axis of '{SIGNATURE}' as a keyword, "
        "or none"
    )


def test_a_function_takes_one_array_for_each_input() -> None:
    def three(x: Any, w: Any, bias: Any) -> Any:
        return x @ w + bias

    with pytest.raises(ContractError, match=r"^three takes 3 arrays \(x, w, bias\); "):
        contract(SIGNATURE, reference=reference)(three)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"dtypes": ()}, "dtypes: give at least one"),
        ({"collectives": all_reduce("Y", "out[B_X, F]")}, "collectives: expected a list"),
        ({"collectives": ["all_reduce"]}, "collectives: expected a list of collectives, such as"),
        ({"gradient": "x"}, "gradient: expected a list of collectives"),
    ],
)
def test_keywords_of_another_type_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises((ContractError, TypeError), match=message):
        contract(SIGNATURE, **{"reference": reference, **keywords})


@pytest.mark.parametrize("signature", [None, 3])
def test_a_signature_is_text(signature: Any) -> None:
    with pytest.raises(ContractError, match="signature: expected a str; given"):
        contract(signature, reference=reference)


def test_a_known_failure_names_sizes_of_the_signature() -> None:
    known = known_failure("collectives", where="Q == 1", shows="", why="XLA")
    with pytest.raises(ContractError, match="known 'Q == 1' names 'Q'"):
        contract(SIGNATURE, reference=reference, known=[known])
