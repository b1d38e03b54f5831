"""What verifying costs, as ratios within one run.

    python benchmarks/harness.py

- over bare: `verify` on new cases (values, gradients, collectives), over tracing, lowering,
  compiling and running the same two programs with the same compiler options; at most 1.35.
- against the recipe: cases a second, over those of the recipe that is common in JAX projects (jit
  the value and gradient of reference and candidate, run both, then lower and compile the candidate
  once more for its text, at JAX's default options); at least 1.5.
- data sets a second on one compiled program, with values checked; at least 100.

Exits with 1 where a limit is missed.
"""

import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

os.environ["JAX_NUM_CPU_DEVICES"] = "12"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

from conformance import Case, parse_case, verify
from conformance.backends import get_backend
from conformance.candidate import load
from conformance.inputs import draw, place
from conformance.meshes import build_mesh
from conformance.observe import Executable, compile_forward, compile_gradient

CASES = 24
LIMITS = {"over bare": 1.35, "against the recipe": 1.5, "data sets a second": 100.0}
MLP = load("tensor_parallel.mlp_shard_map")
# Called through a plain function: `retraces`, which compiles once a `verify`, does not apply.
PLAIN = replace(MLP, function=lambda *a, dp="dp", tp="tp": MLP.function(*a, dp=dp, tp=tp))
BACKEND = get_backend("cpu")


def new_cases(count: int, first: int) -> list[Case]:
    """Cases of 2 x 3 with shapes that no earlier one had."""
    return [
        parse_case(f"dp=2,tp=3/B={2 * (n + 2)},D={n + 3},F={3 * (n + 1)}")
        for n in range(first, first + count)
    ]


def verified(case: Case) -> None:
    verdict = verify(PLAIN, cases=[case])
    assert verdict.ok, str(verdict)


def bare(case: Case, drawn: Any) -> None:
    specs = MLP.contract.signature.inputs
    forward = compile_forward(MLP, case, BACKEND)
    gradient = compile_gradient(MLP, case, BACKEND, drawn)
    assert isinstance(forward, Executable)
    assert isinstance(gradient, Executable)
    arrays = place(drawn.arrays, specs, forward.mesh, case)
    forward.run(*arrays)
    gradient.run(place(drawn.cotangents, drawn.differentiable, forward.mesh, case), arrays)


def recipe(case: Case, drawn: Any) -> None:
    mesh = build_mesh(case, BACKEND.devices)
    arrays = place(drawn.arrays, MLP.contract.signature.inputs, mesh, case)
    with jax.set_mesh(mesh):
        results = []
        for function in (MLP.contract.reference, MLP.function):
            of_sum = jax.jit(jax.value_and_grad(lambda *a, f=function: f(*a).sum(), (0, 1, 2)))
            results.append(jax.block_until_ready(of_sum(*arrays)))
        jax.jit(lambda *a: MLP.function(*a)).lower(*arrays).compile().as_text()
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


def ratios(pairs: Sequence[tuple[float, float]]) -> float:
    """The ratio of the medians: single pairs are disturbed by whatever else the machine does."""
    firsts, seconds_ = zip(*pairs, strict=True)
    return statistics.median(firsts) / statistics.median(seconds_)


def main() -> int:
    """Prints the ratios."""
    for case in new_cases(2, 100):
        verified(case)  # what is done once only: imports, the first trace
        recipe(case, draw(MLP.contract, case))
    over_bare, over_recipe = [], []
    for case in new_cases(CASES, 0):
        drawn = draw(MLP.contract, case)
        ours = seconds(verified, case)
        jax.clear_caches()
        alone = seconds(bare, case, drawn)
        jax.clear_caches()
        common = seconds(recipe, case, drawn)
        jax.clear_caches()
        over_bare.append((ours, alone))
        over_recipe.append((common, ours))
    many = [parse_case(f"dp=2,tp=3/B=4,D=5,F=6/seed={seed}") for seed in range(301)]
    verify(PLAIN, cases=many[:1])
    alone = seconds(lambda: verify(PLAIN, cases=many[:1]))
    rate = 300 / (seconds(lambda: verify(PLAIN, cases=many)) - alone)
    found = {
        "over bare": ratios(over_bare),
        "against the recipe": ratios(over_recipe),
        "data sets a second": rate,
    }
    missed = 0
    for name, value in found.items():
        held = value <= LIMITS[name] if name == "over bare" else value >= LIMITS[name]
        missed += not held
        print(f"{name:<20} {value:8.2f}  limit {LIMITS[name]:g}: {'held' if held else 'missed'}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory          {peak:8.0f}  MB")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
