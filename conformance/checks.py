"""The laws: each compares what a contract promises with what was observed, on one case.

A check never passes for want of evidence: a `Finding` says how much was really compared, and where
that is nothing, why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case import Case
from conformance.lowerings import Reading
from conformance.meshes import partition_spec
from conformance.notation import ArraySpec, Operand
from conformance.reference import Expected
from conformance.traffic import Flow, totals

if TYPE_CHECKING:
    import jax

LAWS: Mapping[str, str] = {
    "runs": "the candidate traces, compiles and returns",
    "values": "structure, shape, dtype and every element are the reference's, up to rounding",
    "out_sharding": "every output lies on the devices where its spec says",
    "replicas": "all copies of replicated data are bit-equal",
    "gradients": "every input cotangent equals the reference's and lies where its input does",
    "retraces": "a jitted candidate, called a second time, neither traces nor compiles",
    "memory": "the forward's temporary memory is under the contract's ceiling",
    "refusal": "what the contract refuses is refused, with the error that it names",
    "collectives": "kind, axes, dtype and bytes of all that is sent are the contract's",
}
"""Every check and its law, in the order of reports."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says of one case.

    `compared` counts what was compared; `numbers` says by which means arrays were; `lowered`
    names the lowerings that were needed; `reason` says why nothing was compared; `known` tells of
    problems that are not the candidate's; `wire` is bytes sent over the least that would do.
    """

    compared: int
    problems: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    lowered: tuple[str, ...] = ()
    reason: str = ""
    known: tuple[str, ...] = ()
    wire: Fraction | None = None


def check_values(
    specs: Sequence[ArraySpec], expected: Sequence[Expected], returned: Any
) -> Finding:
    """Structure, shape, dtype, and elements within the bound of what arithmetic may round.

    `numbers` counts how: "exact" where no order of summation rounds and all is equal, "rounded"
    where it could be equal and is only near (it scales before it sums, as gradients under
    `check_vma=False` do), "bounded", "unproven", or "at a kink" where there is nothing to compare.
    """
    outputs = as_outputs(specs, returned)
    if isinstance(outputs, str):
        return Finding(1, (outputs,))
    problems: list[str] = []
    numbers: dict[str, int] = {}
    for spec, want, output in zip(specs, expected, outputs, strict=True):
        if output.shape != want.value.shape or output.dtype != want.dtype:
            problems.append(
                f"{spec.name} is {output.dtype}{list(output.shape)}, "
                f"expected {want.dtype}{list(want.value.shape)}"
            )
            continue
        if want.kink:
            numbers["at a kink"] = numbers.get("at a kink", 0) + 1
            continue
        got = np.asarray(output).astype(want.value.dtype)
        equal = _equal(got, want.value)
        right = equal | _near(got, want)
        how = "unproven" if want.bound is None else "exact" if want.exact else "bounded"
        if not right.all():
            problems.append(_mismatch(spec.name, got, want, ~right, how))
        elif how == "exact" and not equal.all():
            how = "rounded"
        numbers[how] = numbers.get(how, 0) + 1
    compared = sum(n for how, n in numbers.items() if how != "at a kink") + len(problems)
    reason = "" if compared else "every output was at a kink"
    return Finding(compared, tuple(problems), numbers, reason=reason)


def fits(specs: Sequence[ArraySpec], expected: Sequence[Expected], returned: Any) -> bool:
    """Whether the outputs have the structure, shapes and dtypes that are expected."""
    outputs = as_outputs(specs, returned)
    return not isinstance(outputs, str) and all(
        output.shape == want.value.shape and output.dtype == want.dtype
        for output, want in zip(outputs, expected, strict=True)
    )


def check_out_sharding(
    specs: Sequence[ArraySpec], case: Case, mesh: jax.sharding.Mesh, returned: Any
) -> Finding:
    """Each sharding is equivalent to its spec, and each shard has the device and index it gives."""
    import jax

    outputs = as_outputs(specs, returned)
    if isinstance(outputs, str):
        return Finding(0, reason="the outputs have another structure")
    problems = []
    compared = 0
    for spec, output in zip(specs, outputs, strict=True):
        if output.shape != spec.shape(case.sizes):
            continue
        compared += 1
        want = jax.sharding.NamedSharding(mesh, partition_spec(spec, case.bindings))
        if not output.sharding.is_equivalent_to(want, output.ndim):
            problems.append(
                f"{spec.name}: expected {spec}, {_shown(want)}; "
                f"observed {_shown(output.sharding)}, {_blocks(output)} distinct blocks, each "
                f"{list(output.addressable_shards[0].data.shape)}"
            )
            continue
        indices = want.addressable_devices_indices_map(output.shape)
        for shard in output.addressable_shards:
            if _bounds(shard.index, output.shape) != _bounds(
                indices[shard.device] or (), output.shape
            ):
                problems.append(
                    f"{spec}: {shard.device} holds {shard.index}, expected {indices[shard.device]}"
                )
                break
    return Finding(
        compared, tuple(problems), reason="" if compared else "the outputs have another shape"
    )


def check_replicas(specs: Sequence[ArraySpec], returned: Any) -> Finding:
    """Every copy of a block is bit-equal to the first one."""
    outputs = as_outputs(specs, returned)
    if isinstance(outputs, str):
        return Finding(0, reason="the outputs have another structure")
    problems = []
    compared = 0
    for spec, output in zip(specs, outputs, strict=True):
        first: dict[tuple[tuple[int, int], ...], tuple[Any, bytes]] = {}
        for shard in output.addressable_shards:
            where = _bounds(shard.index, output.shape)
            data = np.asarray(shard.data)
            if where not in first:
                first[where] = shard, data.tobytes()
                continue
            compared += 1
            other, copy = first[where]
            if data.tobytes() != copy:
                differ = int(np.sum(data != np.asarray(other.data)))
                problems.append(
                    f"{spec.name}{_index_text(where)} differs between its copies on "
                    f"{other.device} and {shard.device}, in {differ} of {data.size} elements"
                )
                break
    return Finding(compared, tuple(problems), reason="" if compared else "nothing is replicated")


def check_gradients(
    specs: Sequence[ArraySpec],
    expected: Sequence[Expected],
    case: Case,
    mesh: jax.sharding.Mesh,
    returned: Any,
) -> Finding:
    """Values, placement and copies of the input cotangents, each by the law of the outputs."""
    if len(specs) == 1 and isinstance(returned, tuple) and len(returned) == 1:
        (returned,) = returned
    values = check_values(specs, expected, returned)
    placement = check_out_sharding(specs, case, mesh, returned)
    copies = check_replicas(specs, returned)
    problems = (*values.problems, *placement.problems, *copies.problems)
    named = tuple(f"the cotangent of {problem}" for problem in problems)
    return Finding(values.compared, named, values.numbers, reason=values.reason)


def check_collectives(expected: Sequence[Flow], reading: Reading, program: str = "") -> Finding:
    """All bytes sent, by kind, axes, dtype and reducer or shift, are those of the contract.

    `program` says in messages which one it is, such as "in the gradient, ". Compares something even
    where nothing is sent: the reader vouches for the whole program.
    """
    if reading.unknown:
        return Finding(1, tuple(f"{program}{text}" for text in reading.unknown))
    want, got = totals(expected), totals(entry.flow for entry in reading.entries)
    missing = [flow for flow in want if flow not in got]
    surplus = [flow for flow in got if flow not in want]
    if not missing and not surplus:
        observed = {flow.key: flow.runs for flow in got}
        often = tuple(
            f"{program}expected {flow} in {flow.runs} runs; observed {observed[flow.key]} runs"
            for flow in want
            if flow.runs is not None and observed[flow.key] != flow.runs
        )
        least = sum((flow.wire_bytes for flow in want), Fraction(0))
        wire = reading.wire_bytes / least if least else None
        return Finding(1, often, lowered=reading.lowerings, wire=wire)
    shown = []
    for flow in surplus:
        sources = {e.source for e in reading.entries if e.flow.key == flow.key and e.source}
        shown.append(f"{flow} ({', '.join(sorted(sources))})" if sources else str(flow))
    return Finding(
        1,
        (
            f"{program}expected {'; '.join(map(str, missing)) or 'nothing else'}; "
            f"observed {'; '.join(shown) or 'nothing'}",
        ),
    )


def check_memory(ceiling: Sequence[tuple[Operand, Fraction]], observed: int) -> Finding:
    """Temporary bytes of the forward program, on each device, under the sum of the operands."""
    allowed = sum((size for _, size in ceiling), Fraction(0))
    if observed <= allowed:
        return Finding(1)
    parts = " + ".join(str(operand) for operand, _ in ceiling)
    return Finding(
        1, (f"expected at most {allowed} B of temporary memory, {parts}; observed {observed} B",)
    )


def check_refusal(error: str, raised: str | None) -> Finding:
    """The candidate raised the error of this name; `raised` begins with the name of its own."""
    if raised is None:
        return Finding(1, (f"expected {error}; nothing was raised",))
    if raised.partition(":")[0] != error:
        return Finding(1, (f"expected {error}; observed {raised}",))
    return Finding(1)


def check_retraces(events: Sequence[Mapping[str, int]]) -> Finding:
    """One program at the first call, and nothing at the second; events are counted by name."""
    first, second = events
    compiled = first.get("compiled", 0)
    problems = []
    if compiled > 1:
        problems.append(f"the first call compiled {compiled} programs, expected 1")
    if any(second.values()):
        again = ", ".join(f"{what} {count} times" for what, count in second.items() if count)
        problems.append(f"a second call with the same arrays {again}, expected nothing")
    return Finding(1, tuple(problems))


def as_outputs(specs: Sequence[ArraySpec], returned: Any) -> tuple[jax.Array, ...] | str:
    """The returned arrays, or what is wrong with the structure that was returned."""
    import jax

    outputs = returned if isinstance(returned, tuple) else (returned,)
    wanted = f"expected {len(specs)} arrays" if len(specs) > 1 else "expected one array"
    if not all(isinstance(output, jax.Array) for output in outputs):
        return f"{wanted}; returned {jax.tree.structure(returned)}"
    if len(outputs) != len(specs) or isinstance(returned, tuple) != (len(specs) > 1):
        return (
            f"{wanted}; returned a tuple of {len(outputs)}"
            if isinstance(returned, tuple)
            else f"{wanted}; returned one"
        )
    return outputs


def _equal(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Elementwise, plus and minus zero alike, and NaN to NaN."""
    return (got == want) | ((got != got) & (want != want))


def _near(got: np.ndarray[Any, Any], want: Expected) -> np.ndarray[Any, Any]:
    """Elementwise, within the bound; integers and truth values never are unless they are equal."""
    if want.value.dtype.kind != "f":
        return np.zeros(want.value.shape, bool)
    bound = want.bound if want.bound is not None else _half_the_digits(want)
    with np.errstate(invalid="ignore"):
        return np.abs(got - want.value) <= bound


def _half_the_digits(want: Expected) -> np.ndarray[Any, Any]:
    """Where there is no proof: half the digits of the dtype, of the largest magnitude."""
    import jax.numpy as jnp

    largest = np.max(np.abs(want.value), initial=0.0, where=np.isfinite(want.value))
    return np.full(want.value.shape, largest * float(jnp.finfo(want.dtype).eps) ** 0.5)


def _mismatch(
    name: str,
    got: np.ndarray[Any, Any],
    want: Expected,
    wrong: np.ndarray[Any, Any],
    how: str,
) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = (
        f"{name}{list(at)} is {got[at]}, expected {want.value[at]} ({how}); "
        f"{int(wrong.sum())} of {wrong.size} elements differ"
    )
    if want.value.dtype.kind == "f" and (ratio := _ratio(got, want.value)) is not None:
        text += f", all by the factor {ratio}"
    return text


def _ratio(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> str | None:
    """The one factor between observed and expected, where there is one and it is simple."""
    nonzero = want != 0
    if np.any(got[~nonzero] != 0) or nonzero.sum() < 2 or not np.all(np.isfinite(got)):
        return None
    ratios = got[nonzero] / want[nonzero]
    simple = Fraction(float(np.median(ratios))).limit_denominator(144)
    if simple == 0 or np.any(np.abs(ratios - float(simple)) > 1e-3 * abs(float(simple))):
        return None
    return str(simple)


def _bounds(index: Sequence[slice], shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (part.indices(size)[0], part.indices(size)[1])
        for part, size in zip(index, shape, strict=True)
    )


def _index_text(bounds: Sequence[tuple[int, int]]) -> str:
    return f"[{', '.join(f'{low}:{high}' for low, high in bounds)}]"


def _blocks(output: jax.Array) -> int:
    return len({_bounds(shard.index, output.shape) for shard in output.addressable_shards})


def _shown(sharding: jax.sharding.Sharding) -> str:
    spec = getattr(sharding, "spec", None)
    if spec is None:
        return str(sharding)
    return f"P({', '.join(map(repr, spec))})"
