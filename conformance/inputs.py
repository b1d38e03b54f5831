"""A case's arrays: chosen so that no fault can hide in them, with what the reference makes of them.

Exact data are small signed integers, sized so that the reference evaluator proves every order of
summation exact. Real data are normal floats, compared within the evaluator's error bound.
Cancelling data are drawn where a contract says how it accumulates: a narrower sum loses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case import Case
from conformance.contracts import FLOATS, Contract
from conformance.errors import CaseError, ContractError, UsageError
from conformance.meshes import partition_spec
from conformance.notation import ArraySpec
from conformance.reference import Expected, evaluate, evaluate_vjp, reference_keywords

if TYPE_CHECKING:
    import jax

Array = np.ndarray[Any, np.dtype[Any]]

TRIES = 16
"""How often data are drawn until they are worth comparing."""

_LARGEST = {"f64": 15, "f32": 15, "f16": 3, "bf16": 3, "i8": 1}
_NUMPY = {"bool": "bool", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Inputs:
    """NumPy arrays for a candidate, and what the reference says that it must return.

    `cotangents` are those of `differentiable`, the float outputs, and `gradients` what they
    become, at the inputs that have a gradient; all are empty where there is none.
    """

    arrays: tuple[Array, ...]
    expected: tuple[Expected, ...]
    differentiable: tuple[ArraySpec, ...] = ()
    cotangents: tuple[Array, ...] = ()
    gradients: tuple[Expected, ...] = ()


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a dtype of the notation, such as `bf16` or `i32`."""
    import jax
    import jax.numpy as jnp

    if name in _NUMPY:
        return np.dtype(jnp.dtype(_NUMPY[name]))
    kind = {"f": "float", "i": "int", "u": "uint"}[name[0]]
    found = np.dtype(f"{kind}{name[1:]}")
    if jax.dtypes.canonicalize_dtype(found) != found:
        raise CaseError(f"dtype {name!r}: JAX narrows it; set JAX_ENABLE_X64=1 to have it")
    return found


def differentiated(contract: Contract, case: Case) -> tuple[int, ...]:
    """The positions of the inputs that have a gradient in this case."""
    return tuple(
        index
        for index, spec in enumerate(contract.signature.inputs)
        if spec.name in contract.differentiable
        and contract.dtype_of(spec.name, case.dtype) in FLOATS
    )


def draw(contract: Contract, case: Case) -> Inputs:
    """Draws the arrays of a case, again where they would prove little.

    Wanted: no output all equal, no comparison at a tie and, for exact data, every output and
    gradient proven exact. After `TRIES` draws the best is taken, and the checks count what it
    could not show.
    """
    best, fewest = None, 0
    for attempt in range(TRIES):
        inputs = _drawn(contract, case, attempt)
        faults = _faults(inputs, case)
        if best is None or faults < fewest:
            best, fewest = inputs, faults
        if not faults:
            break
    assert best is not None
    return best


def place(
    arrays: Sequence[Array], specs: Sequence[ArraySpec], mesh: jax.sharding.Mesh, case: Case
) -> tuple[jax.Array, ...]:
    """The arrays on the devices of the mesh, sharded as their specs say."""
    import jax

    return tuple(
        jax.device_put(array, jax.sharding.NamedSharding(mesh, partition_spec(spec, case.bindings)))
        for array, spec in zip(arrays, specs, strict=True)
    )


def _drawn(contract: Contract, case: Case, attempt: int) -> Inputs:
    # The legacy generator: its streams are frozen, so an id means the same data for ever.
    random = np.random.RandomState([case.seed, attempt])
    symbols = contract.signature.symbols
    # An odd first element along a dimension, and even ones after it: a sum of products over that
    # dimension is odd, and so is never at the kink of a relu.
    odd_along = (None, *symbols)[attempt % (len(symbols) + 1)]
    shift = attempt // (len(symbols) + 1)

    def array(spec: ArraySpec, dtype: np.dtype[Any], name: str) -> Array:
        shape = spec.shape(case.sizes)
        if spec.name in contract.ints:
            low, high = (end.evaluate(case.sizes) for end in contract.ints[spec.name])
            if low >= high:
                raise CaseError(
                    f"ints[{spec.name!r}] is {low}..{high}, which is empty; give a wider range"
                )
            return random.randint(low, high, shape).astype(dtype)
        if name == "bool":
            return random.randint(0, 2, shape).astype(bool)
        if case.data == "cancelling" and name in FLOATS:
            return _cancelling(spec, contract, shape).astype(dtype)
        if case.data == "real" and name in FLOATS:
            return random.standard_normal(shape).astype(dtype)
        largest = max(1, _LARGEST.get(name, 15) >> shift)
        low = 0 if name.startswith("u") else -largest
        values = random.randint(low, largest + 1, shape)
        for axis, dim in enumerate(spec.dims):
            if odd_along in dim.symbols:
                values = 2 * np.sign(values) * (np.abs(values) // 2 + (largest == 1))
                first = (slice(None),) * axis + (0,)
                values[first] += np.where(random.randint(0, 2, values[first].shape), 1, -1)
        return values.astype(dtype)

    arrays = tuple(
        array(spec, numpy_dtype(name), name)
        for spec in contract.signature.inputs
        for name in (contract.dtype_of(spec.name, case.dtype),)
    )
    keywords = reference_keywords(contract, case)
    wide = None if contract.accumulates is None else numpy_dtype(contract.accumulates)
    expected = _of_reference(
        contract, lambda: evaluate(contract.reference, arrays, wide, **keywords)
    )
    shapes = [spec.shape(case.sizes) for spec in contract.signature.outputs]
    if [one.value.shape for one in expected] != shapes:
        raise ContractError(
            f"reference returns {', '.join(str(list(one.value.shape)) for one in expected)}; "
            f"'{contract.signature}' has {', '.join(str(list(shape)) for shape in shapes)}"
        )
    wanted = differentiated(contract, case)
    floats = [
        (spec, one.dtype)
        for spec, one in zip(contract.signature.outputs, expected, strict=True)
        if one.value.dtype.kind == "f"
    ]
    if not wanted or not floats or case.data == "cancelling":
        return Inputs(arrays, expected)
    cotangents = tuple(array(spec, dtype, case.dtype) for spec, dtype in floats)
    gradients = _of_reference(
        contract,
        lambda: evaluate_vjp(contract.reference, arrays, cotangents, wanted, **keywords),
        " under differentiation (say differentiable=() if it has no gradient)",
    )
    outputs = tuple(spec for spec, _ in floats)
    return Inputs(arrays, expected, outputs, cotangents, gradients)


def _cancelling(spec: ArraySpec, contract: Contract, shape: tuple[int, ...]) -> Array:
    """256, 1, ..., 1, -256 along a dimension that is summed, in the first input that has it.

    The sum counts the ones. Kept in bfloat16 it loses them, since 256 + 1 is 256 there.
    """
    values = np.ones(shape)
    kept = {
        symbol for out in contract.signature.outputs for dim in out.dims for symbol in dim.symbols
    }
    for axis, dim in enumerate(spec.dims):
        first = next(
            one for one in contract.signature.inputs for d in one.dims if d.symbols == dim.symbols
        )
        if first == spec and not kept & set(dim.symbols) and shape[axis] > 2:
            along = np.moveaxis(values, axis, 0)
            along[0], along[-1] = 256, -256
            break
    return values


def _of_reference(
    contract: Contract, call: Callable[[], tuple[Expected, ...]], how: str = ""
) -> tuple[Expected, ...]:
    """What the reference gives; whatever it raises is a fault of the contract's."""
    try:
        return call()
    except UsageError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ContractError(
            f"reference of '{contract.signature}' raised{how}: {type(error).__name__}: {first}"
        ) from error


def _faults(inputs: Inputs, case: Case) -> int:
    count = 0
    for one in (*inputs.expected, *inputs.gradients):
        flat = one.value.ravel()
        constant = flat.size > 1 and bool(np.all(flat == flat[0])) and case.data != "cancelling"
        count += 4 * constant + 2 * one.kink + (case.data == "exact" and not one.exact)
    return count
