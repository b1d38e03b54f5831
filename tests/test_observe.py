import contextlib
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from conformance import Case, all_reduce, contract, parse_case
from conformance.backends import get_backend
from conformance.candidate import Candidate, as_candidate, load
from conformance.hlo import collectives, count_instructions
from conformance.inputs import draw, place
from conformance.observe import Executable, Raised, compile_forward, compile_gradient

CASE = parse_case("dp=2,tp=3/B=2,D=5,F=9")


def compiled(candidate: Candidate, case: Case = CASE) -> Executable:
    program = compile_forward(candidate, case, get_backend("cpu"))
    assert isinstance(program, Executable), program
    return program


@pytest.mark.parametrize("name", ["mlp", "mlp_shard_map"])
def test_one_compile_gives_the_text_and_runs_on_several_sets_of_data(name: str) -> None:
    candidate = load(f"tensor_parallel.{name}")
    program = compiled(candidate)
    assert program.module.instruction_count == count_instructions(program.text)
    for seed in range(3):
        case = parse_case(f"{CASE}/seed={seed}")
        drawn = draw(candidate.contract, case)
        arrays = place(drawn.arrays, candidate.contract.signature.inputs, program.mesh, case)
        np.testing.assert_array_equal(program.run(*arrays), drawn.expected[0].value)


def test_a_plain_function_is_jitted_and_told_its_axes() -> None:
    seen = []

    @contract("x[B_X, D] -> out[B_X, D]", reference=lambda x: x)
    def plain(x: Any, *, X: Any = "X") -> Any:
        seen.append(X)
        return x

    compiled(as_candidate(plain), parse_case("X=2/B=2,D=3/names=1"))
    compiled(as_candidate(plain), parse_case("X=2*3/B=6,D=3"))
    assert seen == ["renamed0", ("X_0", "X_1")]


def test_tables_that_xla_leaves_out_are_in_the_text() -> None:
    program = compiled(load("automatic.matmul_reduce_scatter"), parse_case("X=2,Y=6/B=8,D=12,F=6"))
    assert "{...}" not in program.text
    assert "constant({0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5})" in program.text


def failing(x: Any, w_up: Any, w_down: Any) -> Any:
    raise KeyError("first line\nsecond line")


def test_what_the_candidate_raises_is_returned_with_its_stage() -> None:
    candidate = as_candidate(failing, load("tensor_parallel.mlp").contract)
    program = compile_forward(candidate, CASE, get_backend("cpu"))
    assert isinstance(program, Raised)
    assert program.stage == "traced"
    assert str(program).startswith("raised while it was traced: KeyError: ")


def test_what_it_raises_while_it_runs_is_returned() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("no such page")

    @contract("x[B_X] -> out[B_X]", reference=lambda x: x)
    def calls_back(x: Any, *, X: str = "X") -> Any:
        shape = jax.ShapeDtypeStruct((3,), jnp.float32)
        return jax.shard_map(
            lambda x: jax.pure_callback(fail, shape, x),
            in_specs=P(X),
            out_specs=P(X),
            check_vma=False,
        )(x)

    program = compiled(as_candidate(calls_back), parse_case("X=2/B=6"))
    raised = program.run(np.ones(6, np.float32))
    assert isinstance(raised, Raised)
    assert raised.stage == "run"
    # JAX would tell of it once more when the process ends.
    with contextlib.suppress(Exception):
        jax.effects_barrier()
    jax.clear_caches()


def test_the_gradient_program_holds_the_collectives_of_the_gradient_alone() -> None:
    for name in ("mlp", "mlp_explicit"):
        candidate = load(f"tensor_parallel.{name}")
        case = replace(CASE, axis_types=candidate.contract.axis_types[0])
        drawn = draw(candidate.contract, case)
        program = compile_gradient(candidate, case, get_backend("cpu"), drawn)
        assert isinstance(program, Executable)
        sent = sorted(shape.bytes for op in collectives(program.module) for shape in op.operands)
        # x[B_dp, D] over tp; w_up[D, F_tp] and w_down[F_tp, D] over dp.
        assert sent == [1 * 5 * 4, 5 * 3 * 4, 3 * 5 * 4]


def test_a_jitted_function_is_traced_as_it_is() -> None:
    @contract(
        "x[B_X] -> out[]", reference=lambda x: x.sum(), collectives=[all_reduce("X", "out[]")]
    )
    @partial(jax.jit, static_argnames="X")
    def total(x: Any, *, X: str = "X") -> Any:
        assert isinstance(X, str)
        return jax.lax.with_sharding_constraint(x.sum(), P())

    program = compiled(as_candidate(total), parse_case("X=2/B=6"))
    assert [op.kind for op in collectives(program.module)] == ["all-reduce"]
