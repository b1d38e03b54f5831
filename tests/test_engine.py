"""`verify` on candidates that are broken by hand: exactly the stated checks turn red."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from conformance import (
    BackendError,
    CaseError,
    UsageError,
    assert_conforms,
    known_failure,
    parse_case,
    verify,
)
from conformance.candidate import as_candidate
from conformance.engine import profile_cases
from conformance.expressions import Expression
from conformance.notation import parse_operand
from strategies.tensor_parallel import mlp, mlp_reference, mlp_shard_map

Local = Callable[..., Any]

# Under `check_vma=False` JAX sums the cotangents once more than it need: that is not judged here.
FORWARD = replace(
    mlp.contract, axis_types=("auto", "explicit"), gradient=None, memory=(), sizes=None
)


def mlp_of(local: Local, out: Callable[[str, str], P] = lambda dp, tp: P(dp, None)) -> Any:
    """A `shard_map` MLP whose body, and output spec, are given."""

    def candidate(x: Any, w_up: Any, w_down: Any, *, dp: str = "dp", tp: str = "tp") -> Any:
        return jax.shard_map(
            partial(local, dp=dp, tp=tp),
            in_specs=(P(dp, None), P(None, tp), P(tp, None)),
            out_specs=out(dp, tp),
            check_vma=False,
        )(x, w_up, w_down)

    return candidate


def partial_sum(x: Any, w_up: Any, w_down: Any) -> Any:
    return jax.nn.relu(x @ w_up) @ w_down


def sound(x: Any, w_up: Any, w_down: Any, *, dp: str, tp: str) -> Any:
    return jax.lax.psum(partial_sum(x, w_up, w_down), tp)


def over_another_axis(x: Any, w_up: Any, w_down: Any, *, dp: str, tp: str) -> Any:
    return jax.lax.psum(partial_sum(x, w_up, w_down), dp)


def not_summed(x: Any, w_up: Any, w_down: Any, *, dp: str, tp: str) -> Any:
    return partial_sum(x, w_up, w_down)


def gathered_output(x: Any, w_up: Any, w_down: Any, *, dp: str, tp: str) -> Any:
    out = jax.lax.psum(partial_sum(x, w_up, w_down), tp)
    return jax.lax.all_gather(out, dp, axis=0, tiled=True)


def gathered_and_sliced_back(x: Any, w_up: Any, w_down: Any, *, dp: str, tp: str) -> Any:
    whole = jax.lax.all_gather(w_up, tp, axis=1, tiled=True)
    width = w_up.shape[1]
    w_up = jax.lax.dynamic_slice_in_dim(whole, jax.lax.axis_index(tp) * width, width, 1)
    return jax.lax.psum(partial_sum(x, w_up, w_down), tp)


@pytest.mark.parametrize(
    ("candidate", "red"),
    [
        pytest.param(mlp_of(sound), set(), id="sound"),
        pytest.param(
            mlp_of(over_another_axis),
            {"values", "replicas", "gradients", "collectives"},
            id="another axis",
        ),
        pytest.param(
            mlp_of(not_summed), {"values", "replicas", "gradients", "collectives"}, id="no psum"
        ),
        pytest.param(
            mlp_of(gathered_output, lambda dp, tp: P(None, None)),
            {"out_sharding", "collectives"},
            id="output replicated",
        ),
        pytest.param(mlp_of(gathered_and_sliced_back), {"collectives"}, id="gather and slice"),
    ],
)
def test_a_fault_turns_the_stated_checks_red_and_no_others(candidate: Any, red: set[str]) -> None:
    verdict = verify(candidate, FORWARD, profile="smoke")
    assert {failure.check for failure in verdict.failures} == red
    assert verdict.ok == (not red)
    # What is red is red in most cases, not in a lucky one.
    for check in red:
        assert verdict.counts[check].failed >= verdict.counts[check].compared // 2


def test_messages_name_axes_bytes_and_source_line() -> None:
    case = parse_case("dp=2,tp=3/B=2,D=3,F=15")
    verdict = verify(mlp_of(over_another_axis), mlp, cases=[case])
    said = {failure.check: failure.message for failure in verdict.failures}
    assert said["collectives"].startswith(
        "expected all-reduce over tp, 12 B of f32; observed all-reduce over dp, 12 B of f32 "
        "(test_engine.py:"
    )
    assert said["collectives"].endswith(", in psum)")
    assert said["values"].startswith("out[0, 0] is ")
    assert "differs between its copies on" in said["replicas"]


@pytest.mark.parametrize(
    ("candidate", "check", "message"),
    [
        (lambda x, a, b: (x, x), "values", "expected one array; returned a tuple of 2"),
        (lambda x, a, b: {"out": x}, "values", "expected one array; returned PyTreeDef"),
        (lambda x, a, b: x[:1], "values", "out is float32[1, 3], expected float32[2, 3]"),
        (
            lambda x, a, b: mlp_reference(x, a, b).astype(jnp.int32),
            "values",
            "out is int32[2, 3], expected float32[2, 3]",
        ),
        (lambda x, a, b: x.nothing, "runs", "raised while it was traced: AttributeError"),
    ],
)
def test_a_candidate_of_another_form_fails(candidate: Any, check: str, message: str) -> None:
    verdict = verify(candidate, mlp, cases=[parse_case("dp=2,tp=3/B=2,D=3,F=15")])
    said = {failure.check: failure.message for failure in verdict.failures}
    assert said[check].startswith(message)


def test_after_it_raised_nothing_else_is_compared() -> None:
    verdict = verify(lambda x, a, b: x.nothing, mlp, profile="smoke")
    assert {check for check, count in verdict.counts.items() if count.compared} == {"runs"}
    assert not verdict.ok


def test_one_program_is_compiled_once_for_several_sets_of_data() -> None:
    traced = []

    def counted(x: Any, w_up: Any, w_down: Any, *, dp: str = "dp", tp: str = "tp") -> Any:
        traced.append(x.shape)
        return mlp_of(sound)(x, w_up, w_down, dp=dp, tp=tp)

    cases = [parse_case(f"dp=2,tp=3/B=2,D=3,F=15/seed={seed}") for seed in range(5)]
    verdict = verify(counted, FORWARD, cases=cases)
    assert (len(traced), verdict.cases) == (2, 5)  # forward and gradient
    assert (verdict.counts["values"].compared, verdict.counts["collectives"].compared) == (5, 1)


@pytest.mark.parametrize(("profile", "programs"), [("smoke", 4), ("default", 22)])
def test_a_profile_has_its_cases_for_each_axis_type(profile: Any, programs: int) -> None:
    candidate = as_candidate(mlp_shard_map)
    cases = list(profile_cases(candidate, 12, profile, 0))
    for kind in ("auto", "explicit"):
        mine = [case for case in cases if case.axis_types == kind]
        # One that is drawn may be one of the two that open every profile.
        assert len({case.program for case in mine}) in (programs, programs - 1)
    floats = {case.program for case in cases if case.dtype != "i32"}
    assert floats == {case.program for case in cases if case.data == "real"}


def test_progress_is_told_each_case() -> None:
    seen: list[Any] = []
    cases = [parse_case(f"dp={n},tp=2/B=4,D=3,F=4") for n in (1, 2)]
    verify(mlp, cases=cases, progress=seen.append)
    assert seen == cases


def test_assert_conforms_raises_with_every_failure() -> None:
    assert_conforms(mlp, profile="smoke")
    with pytest.raises(AssertionError) as error:
        assert_conforms(mlp_of(not_summed), mlp, profile="smoke")
    said = str(error.value)
    for check in ("values", "replicas", "collectives"):
        assert f"\n{check}: " in said
    assert "Replay: conformance replay '" in said


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        ("dp=2/B=2,D=3,F=4", CaseError, "lacks axis 'tp'"),
        ("dp=2,tp=3/B=3,D=3,F=3", CaseError, "give a multiple of 2"),
        ("dp=4,tp=4/B=4,D=3,F=4", BackendError, "the mesh needs 16 devices"),
        ("dp=2,tp=3/B=2,D=3,F=3/explicit", CaseError, "the contract admits auto"),
        ("dp=2,tp=3/B=2,D=3,F=3/f16", CaseError, "the contract admits f32, bf16, i32"),
    ],
)
def test_a_case_that_cannot_be_is_refused(case: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        verify(mlp, cases=[parse_case(case)])


def test_an_unknown_profile_or_no_contract_is_refused() -> None:
    with pytest.raises(UsageError, match="profile 'all' is none of smoke, default, nightly"):
        verify(mlp, profile="all")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has no contract"):
        verify(mlp_reference)


def test_a_wrong_axis_is_seen_among_axes_of_equal_size() -> None:
    case = parse_case("dp=3,tp=3/B=3,D=5,F=3/i32")
    verdict = verify(mlp_of(over_another_axis), mlp, cases=[case])
    assert {f.check for f in verdict.failures} == {"values", "replicas", "collectives"}
    assert verdict.numbers == {"exact": 1}


# Faults that show in the gradient alone: the forward program is the right one.


def summed_twice_in_the_gradient(x: Any, w_up: Any, w_down: Any, *, dp: Any, tp: Any) -> Any:
    @jax.custom_vjp
    def scaled(x: Any) -> Any:
        return x

    size = jax.lax.axis_size(tp)
    scaled.defvjp(lambda x: (x, None), lambda _, c: (c * size,))
    return jax.lax.psum(partial_sum(scaled(x), w_up, w_down), tp)


def dropped_for_one_input(x: Any, w_up: Any, w_down: Any, *, dp: Any, tp: Any) -> Any:
    return jax.lax.psum(partial_sum(x, jax.lax.stop_gradient(w_up), w_down), tp)


def checked(local: Local) -> Any:
    """The same with `check_vma=True`, under which JAX sums each cotangent once."""

    def candidate(x: Any, w_up: Any, w_down: Any, *, dp: str = "dp", tp: str = "tp") -> Any:
        return jax.shard_map(
            partial(local, dp=dp, tp=tp),
            in_specs=(P(dp, None), P(None, tp), P(tp, None)),
            out_specs=P(dp, None),
        )(x, w_up, w_down)

    return candidate


@pytest.mark.parametrize(
    ("local", "red", "message"),
    [
        (sound, set(), ""),
        (
            summed_twice_in_the_gradient,
            {"gradients"},
            "the cotangent of x[0, 0] is 18486.0, expected 6162.0 (exact); "
            "6 of 6 elements differ, all by the factor 3",
        ),
        (
            dropped_for_one_input,
            {"gradients", "collectives"},
            "the cotangent of w_up[0, 0] is 0.0, expected ",
        ),
    ],
)
def test_a_fault_in_the_gradient_alone_is_seen(local: Local, red: set[str], message: str) -> None:
    case = parse_case("dp=2,tp=3/B=2,D=3,F=15")
    verdict = verify(checked(local), mlp, cases=[case])
    said = {failure.check: failure.message for failure in verdict.failures}
    assert set(said) == red
    assert said.get("gradients", "").startswith(message)
    if "collectives" in red:
        assert said["collectives"].startswith("in the gradient, expected all-reduce over dp")


def test_gradients_that_a_contract_does_not_list_are_compared_by_value_alone() -> None:
    twice = verify(mlp_of(sound), mlp, cases=[parse_case("dp=2,tp=3/B=2,D=3,F=15")])
    assert {failure.check for failure in twice.failures} == {"collectives"}
    assert twice.failures[0].message.startswith("in the gradient, expected all-reduce over tp")
    assert verify(mlp_of(sound), FORWARD, cases=[parse_case("dp=2,tp=3/B=2,D=3,F=15")]).ok


def test_scaling_before_the_sum_is_rounding_and_no_fault() -> None:
    # Under `check_vma=False` the cotangent is divided by tp before it is summed over tp.
    verdict = verify(mlp_of(sound), FORWARD, cases=[parse_case("dp=2,tp=3/B=2,D=3,F=15")])
    assert verdict.numbers["rounded"] >= 1


def test_a_jitted_candidate_is_called_twice_as_it_is() -> None:
    case = parse_case("dp=2,tp=3/B=2,D=3,F=15")
    assert verify(mlp, cases=[case]).counts["retraces"].compared == 1
    plain = verify(checked(sound), mlp, cases=[case]).counts["retraces"]
    assert (plain.compared, plain.reason) == (0, "it is not jitted, its caller will jit it")


class NeverTheSame:
    """A static option that is not equal to itself, as an option that holds a NaN is not."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


def test_a_candidate_that_is_traced_again_fails() -> None:
    class Retraced:
        """Looks like a jitted function, and hands a new option to one at every call."""

        def __init__(self) -> None:
            self.jitted = jax.jit(self.body, static_argnames=("dp", "tp", "option"))
            self.__name__ = self.__qualname__ = "retraced"

        @staticmethod
        def body(x: Any, w_up: Any, w_down: Any, *, dp: Any, tp: Any, option: Any) -> Any:
            return jax.lax.with_sharding_constraint(mlp_reference(x, w_up, w_down), P(dp, None))

        def __call__(
            self, x: Any, w_up: Any, w_down: Any, *, dp: Any = "dp", tp: Any = "tp"
        ) -> Any:
            return self.jitted(x, w_up, w_down, dp=dp, tp=tp, option=NeverTheSame())

        def trace(self, *arguments: Any, **keywords: Any) -> Any:
            return self.jitted.trace(*arguments, **keywords, option=NeverTheSame())

    verdict = verify(Retraced(), mlp, cases=[parse_case("dp=2,tp=3/B=2,D=3,F=15")])
    (failure,) = verdict.failures
    assert failure.check == "retraces"
    assert failure.message.startswith("a second call with the same arrays traced ")


def test_a_known_failure_is_told_apart_and_is_no_failure() -> None:
    known = known_failure("collectives", where="dp == 2", shows="all-gather over tp", why="XLA 1.2")
    stated = replace(FORWARD, known=(known,))
    candidate = mlp_of(gathered_and_sliced_back)
    verdict = verify(candidate, stated, cases=["dp=2,tp=3/B=2,D=3,F=15"])
    assert (verdict.word, verdict.ok) == ("known failure", True)
    assert verdict.known == {"XLA 1.2": 1}
    # Elsewhere, or with another message, it is a failure like any other.
    assert not verify(candidate, stated, cases=["dp=3,tp=2/B=3,D=3,F=4"]).ok
    other = replace(FORWARD, known=(replace(known, shows="all-gather over dp"),))
    assert not verify(candidate, other, cases=["dp=2,tp=3/B=2,D=3,F=15"]).ok


def test_what_is_not_judged_is_noted() -> None:
    verdict = verify(mlp_of(sound), FORWARD, cases=["dp=2,tp=3/B=2,D=3,F=15"])
    (note,) = verdict.notes
    assert note == "the gradient's collectives, which the contract does not list, are not judged"
    assert verify(mlp, cases=["dp=2,tp=3/B=2,D=3,F=15"]).notes == ()


def test_an_output_of_another_form_leaves_no_gradient_to_compare() -> None:
    verdict = verify(lambda x, a, b: {"out": x}, FORWARD, cases=["dp=2,tp=3/B=2,D=3,F=15"])
    assert [failure.check for failure in verdict.failures] == ["values", "collectives"]
    assert (
        verdict.counts["gradients"].reason == "the outputs have another structure, shape or dtype"
    )


def test_memory_is_judged_at_the_large_sizes() -> None:
    tight = replace(
        FORWARD, memory=(parse_operand("out[B_dp, D]"),), sizes="dp=2,tp=4/B=64,D=128,F=256"
    )
    everything = mlp_of(gathered_everything)
    verdict = verify(everything, tight, profile="smoke")
    said = {failure.check: failure for failure in verdict.failures}
    assert set(said) == {"collectives", "memory"}
    assert str(said["memory"].case) == "dp=2,tp=4/B=64,D=128,F=256/f32/auto"
    assert said["memory"].message.startswith(
        "expected at most 16384 B of temporary memory, out[B_dp, D]; observed "
    )
    # Its line to replay shows it again, and a sound program is under the ceiling.
    again = verify(everything, tight, cases=[said["memory"].case])
    assert [failure.message for failure in again.failures] == [said["memory"].message]
    assert verify(mlp_of(sound), tight, cases=[said["memory"].case]).ok


def gathered_everything(x: Any, w_up: Any, w_down: Any, *, dp: str, tp: str) -> Any:
    w_up = jax.lax.all_gather(w_up, tp, axis=1, tiled=True)
    return partial_sum(x, w_up, jax.lax.all_gather(w_down, tp, axis=0, tiled=True))


def test_what_a_contract_refuses_must_be_refused() -> None:
    refusing = replace(FORWARD, refuses=((Expression("tp >= 3"), "ValueError"),))

    def refuses(error: type[Exception]) -> Any:
        def local(x: Any, w_up: Any, w_down: Any, *, dp: str, tp: str) -> Any:
            if jax.lax.axis_size(tp) >= 3:
                raise error("tp is too long")
            return sound(x, w_up, w_down, dp=dp, tp=tp)

        return mlp_of(local)

    cases = ["dp=2,tp=3/B=2,D=3,F=3", "dp=2,tp=2/B=2,D=3,F=4"]
    verdict = verify(refuses(ValueError), refusing, cases=cases)
    assert verdict.ok, str(verdict)
    assert verdict.counts["refusal"].compared == verdict.counts["values"].compared == 1
    (failure,) = verify(refuses(KeyError), refusing, cases=cases).failures
    assert failure.message == "expected ValueError; observed KeyError: 'tp is too long'"
    (failure,) = verify(mlp_of(sound), refusing, cases=cases).failures
    assert (failure.check, failure.message) == (
        "refusal",
        "expected ValueError; nothing was raised",
    )
