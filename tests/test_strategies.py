"""Every strategy against its contract, and what a contract cannot say."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from conformance import verify
from conformance.candidate import strategies
from conformance.contracts import FLOATS
from conformance.engine import profile_cases
from strategies import automatic, data_parallel, explicit, tensor_parallel

CANDIDATES = {candidate.name: candidate for candidate in strategies()}


def test_a_strategy_conforms(conforms: Callable[[], None]) -> None:
    conforms()


@pytest.mark.parametrize("name", [n for n, c in CANDIDATES.items() if not c.contract.refuses])
def test_a_green_verdict_is_worth_what_was_compared(name: str) -> None:
    candidate = CANDIDATES[name]
    cases = list(profile_cases(candidate, 12, "smoke", 0))
    verdict = verify(candidate, cases=cases)
    for check in ("runs", "values", "out_sharding"):
        assert verdict.counts[check].compared == len(cases)
    programs = {case.program for case in cases}
    assert verdict.counts["collectives"].compared >= len(programs)
    if not name.startswith(("data_parallel.", "slice_")):  # a mean of any number is rounded
        assert verdict.numbers["exact"] >= sum(case.data == "exact" for case in cases)
    assert verdict.numbers.get("rounded", 0) == verdict.numbers.get("unproven", 0) == 0
    if candidate.contract.differentiable:
        floats = [case for case in cases if case.dtype in FLOATS]
        assert verdict.counts["gradients"].compared >= 0.8 * len(floats)


@pytest.mark.parametrize("name", CANDIDATES)
def test_a_strategy_states_its_gradient_or_that_there_is_none(name: str) -> None:
    contract = CANDIDATES[name].contract
    assert (contract.gradient is not None) != (contract.differentiable == ())


STILL_FAIL = {
    "automatic.matmul_reduce_scatter": "auto",
    "automatic.matmul_out_reduce_scatter": "auto",
    "explicit.matmul_reduce_scatter": "explicit",
}


def test_every_known_failure_has_its_smallest_case() -> None:
    assert {n for n, c in CANDIDATES.items() if c.contract.known} == set(STILL_FAIL)


@pytest.mark.parametrize("name", STILL_FAIL)
@pytest.mark.parametrize("case", ["X=2,Y=4/B=8,D=4,F=12", "+extra=2,X=1,Y=2/B=7,D=10,F=8"])
def test_a_known_failure_still_fails(name: str, case: str) -> None:
    # When this fails, XLA is mended: take the entry out of the contract.
    verdict = verify(CANDIDATES[name], cases=[f"{case}/f32/{STILL_FAIL[name]}"])
    assert verdict.word == "known failure", str(verdict)


def test_three_spellings_of_the_mlp_have_one_contract() -> None:
    forms = (tensor_parallel.mlp, tensor_parallel.mlp_explicit, tensor_parallel.mlp_shard_map)
    stated = [form.contract for form in forms]
    assert len({(c.signature, c.reference, c.collectives, c.gradient) for c in stated}) == 1
    assert [c.axis_types for c in stated] == [("auto",), ("explicit",), ("auto", "explicit")]


def test_the_matmul_of_the_chapter_compiles_ahead_of_time() -> None:
    mesh = jax.make_mesh((4, 2), ("X", "Y"), (jax.sharding.AxisType.Auto,) * 2)
    compiled = automatic.ahead_of_time(mesh)
    random = np.random.RandomState(0)
    # Squares of -1, 0 and 1 times the same, 2048 of them: exact in the accumulator's float32.
    x = random.randint(-1, 2, (8, 2048)).astype(jnp.bfloat16)
    w = random.randint(-1, 2, (2048, 8192)).astype(jnp.bfloat16)
    w[np.arange(2048) % 16 != 0] = 0  # 128 terms at most: exact in bfloat16 too
    out = compiled(
        jax.device_put(x, NamedSharding(mesh, P("X", "Y"))),
        jax.device_put(w, NamedSharding(mesh, P("Y", None))),
    )
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P("X", "Y")), 2)
    wanted = np.square(x.astype(np.float32)) @ w.astype(np.float32)
    np.testing.assert_array_equal(np.asarray(out).astype(np.float32), wanted)


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("name", ["step", "step_shard_map"])
def test_training_steps_keep_parameters_bit_equal_and_the_loss_curve(
    name: str, devices: int
) -> None:
    mesh = jax.make_mesh((devices,), ("dp",), (jax.sharding.AxisType.Auto,))
    random = np.random.RandomState(0)
    truth = random.standard_normal((3, 5))
    x = random.standard_normal((12 * devices, 5)).astype(np.float32)
    y = (x @ truth.T).astype(np.float32)
    w = np.zeros((3, 5), np.float32)
    alone = jax.jit(data_parallel.training_step)
    many = getattr(data_parallel, name)
    with jax.set_mesh(mesh):
        placed = [jax.device_put(x, P("dp", None)), jax.device_put(y, P("dp", None))]
        together = jax.device_put(w, P())
        losses = []
        for _ in range(20):
            w, loss = alone(w, x, y)
            together, loss_together = many(together, *placed)
            copies = {np.asarray(shard.data).tobytes() for shard in together.addressable_shards}
            assert len(copies) == 1
            # Forward error of a mean of n squares, and of the steps before it (both in float32).
            bound = 40 * x.size * 2.0**-24 * float(max(loss, 1))
            assert abs(float(loss) - float(loss_together)) <= bound
            losses.append(float(loss_together))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 10


def test_the_type_of_an_explicit_result_carries_its_sharding() -> None:
    mesh = jax.make_mesh((2, 4), ("X", "Y"), (jax.sharding.AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((4, 8)), P("X", "Y"))
        w = jax.device_put(jnp.ones((8, 4)), P("Y", None))
        assert jax.typeof(explicit.matmul_all_reduce(x, w)).sharding.spec == P("X", None)
        assert jax.typeof(explicit.matmul_reduce_scatter(x, w)).sharding.spec == P("X", "Y")
        with pytest.raises(Exception, match="it is ambiguous how the output") as error:
            explicit.ambiguous_matmul(x, w)
        assert type(error.value).__name__ == "ShardingTypeError"
