"""A case's arrays: chosen so that no fault can hide in them, with what the reference makes of them.

Exact data are small signed integers, sized so that the reference evaluator proves every order of
summation exact. Real data are normal floats, compared within the evaluator's error bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case import Case
from conformance.contracts import FLOATS, Contract
from conformance.meshes import partition_spec
from conformance.notation import ArraySpec
from conformance.reference import Expected, evaluate, reference_keywords

if TYPE_CHECKING:
    import jax

Array = np.ndarray[Any, np.dtype[Any]]

TRIES = 8
"""How often data are drawn until they are worth comparing."""

_LARGEST = {"f64": 15, "f32": 15, "f16": 3, "bf16": 3, "i8": 1}
_NUMPY = {"bool": "bool", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Inputs:
    """NumPy arrays for a candidate, and what the reference says that it must return."""

    arrays: tuple[Array, ...]
    expected: tuple[Expected, ...]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a dtype of the notation, such as `bf16` or `i32`."""
    import jax.numpy as jnp

    if name in _NUMPY:
        return np.dtype(jnp.dtype(_NUMPY[name]))
    kind = {"f": "float", "i": "int", "u": "uint"}[name[0]]
    return np.dtype(f"{kind}{name[1:]}")


def draw(contract: Contract, case: Case) -> Inputs:
    """Draws the arrays of a case, again where they would prove little.

    Wanted: no output all equal, no comparison at a tie and, for exact data, every output proven
    exact. After `TRIES` draws the best is taken, and the checks count what it could not show.
    """
    best: tuple[int, Inputs] | None = None
    for attempt in range(TRIES):
        arrays = tuple(_arrays(contract, case, attempt))
        expected = evaluate(contract.reference, arrays, **reference_keywords(contract, case))
        faults = sum(_faults(one, case) for one in expected)
        if best is None or faults < best[0]:
            best = faults, Inputs(arrays, expected)
        if faults == 0:
            break
    assert best is not None
    return best[1]


def place(
    arrays: Sequence[Array], specs: Sequence[ArraySpec], mesh: jax.sharding.Mesh, case: Case
) -> tuple[jax.Array, ...]:
    """The arrays on the devices of the mesh, sharded as their specs say."""
    import jax

    return tuple(
        jax.device_put(array, jax.sharding.NamedSharding(mesh, partition_spec(spec, case.bindings)))
        for array, spec in zip(arrays, specs, strict=True)
    )


def _faults(expected: Expected, case: Case) -> int:
    flat = expected.value.ravel()
    constant = flat.size > 1 and bool(np.all(flat == flat[0]))
    return 4 * constant + 2 * expected.kink + (case.data == "exact" and not expected.exact)


def _arrays(contract: Contract, case: Case, attempt: int) -> Iterator[Array]:
    # The legacy generator: its streams are frozen, so an id means the same data for ever.
    random = np.random.RandomState([case.seed, attempt])
    for spec in contract.signature.inputs:
        name = contract.dtype_of(spec.name, case.dtype)
        shape = spec.shape(case.sizes)
        if spec.name in contract.ints:
            low, high = (end.evaluate(case.sizes) for end in contract.ints[spec.name])
            yield random.randint(low, high, shape).astype(numpy_dtype(name))
        elif name == "bool":
            yield random.randint(0, 2, shape).astype(bool)
        elif case.data == "real" and name in FLOATS:
            yield random.standard_normal(shape).astype(numpy_dtype(name))
        else:
            largest = max(1, _LARGEST.get(name, 15) >> attempt // 2)
            low = 0 if name.startswith("u") else -largest
            yield random.randint(low, largest + 1, shape).astype(numpy_dtype(name))
