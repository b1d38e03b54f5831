"""Compiles a candidate for a case and runs it; keeps all that this one compile shows."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from conformance import hlo
from conformance.backends import Backend
from conformance.candidate import Candidate
from conformance.case import Case
from conformance.contracts import Contract
from conformance.inputs import Inputs, differentiated, numpy_dtype
from conformance.meshes import build_mesh, partition_spec
from conformance.notation import ArraySpec

if TYPE_CHECKING:
    import jax

Stage = Literal["traced", "lowered", "compiled", "run"]


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of the candidate, and what was being done with it."""

    stage: Stage
    message: str

    def __str__(self) -> str:
        return f"raised while it was {self.stage}: {self.message}"


@dataclass(frozen=True, slots=True)
class Executable:
    """A compiled program: its text, what was read in it, and the means to run it.

    `written` are the collectives that it writes out itself, in the types that it gives them.
    """

    text: str
    module: hlo.Module
    written: frozenset[hlo.Written]
    mesh: jax.sharding.Mesh
    compiled: jax.stages.Compiled

    @property
    def temporary_bytes(self) -> int:
        """Bytes of temporary memory on each device."""
        memory = self.compiled.memory_analysis()
        return 0 if memory is None else int(memory.temp_size_in_bytes)

    def run(self, *arguments: Any) -> Any | Raised:
        """What the program returns for placed arrays, once it is there."""
        import jax

        try:
            return jax.block_until_ready(self.compiled(*arguments))
        except (Exception, SystemExit) as error:
            return Raised("run", _message(error))


def compile_forward(candidate: Candidate, case: Case, backend: Backend) -> Executable | Raised:
    """Compiles the candidate for the shapes and shardings of a case.

    What the candidate raises is returned; the reader's `HloError` is raised.
    """
    mesh = build_mesh(case, backend.devices)
    arguments = _abstract(candidate.contract.signature.inputs, candidate.contract, case, mesh)
    keywords = candidate.keywords(case.bindings)
    return _compile(candidate.function, arguments, keywords, mesh, backend)


def compile_gradient(
    candidate: Candidate, case: Case, backend: Backend, inputs: Inputs
) -> Executable | Raised:
    """Compiles the program from (output cotangents, inputs) to input cotangents.

    Cotangents are arguments and the primal is not returned, so that the program holds the
    gradient's collectives and no other. Automatic mode would choose the sharding of the results:
    there they are pinned to the specs of the inputs.
    """
    import jax

    mesh = build_mesh(case, backend.devices)
    contract = candidate.contract
    function = functools.partial(candidate.function, **candidate.keywords(case.bindings))
    wanted = differentiated(contract, case)

    def gradient(cotangents: Any, arguments: Any) -> Any:
        def floats(*values: Any) -> Any:
            replaced = dict(zip(wanted, values, strict=True))
            outputs = function(*(replaced.get(i, a) for i, a in enumerate(arguments)))
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            return tuple(o for o in outputs if jax.numpy.issubdtype(o.dtype, jax.numpy.inexact))

        results, pull_back = jax.vjp(floats, *(arguments[i] for i in wanted))
        if case.axis_types == "explicit":
            # A cotangent has the type of its output, also where that is not the contract's.
            cotangents = [
                jax.reshard(c, jax.typeof(r).sharding) if jax.typeof(c) != jax.typeof(r) else c
                for c, r in zip(cotangents, results, strict=True)
            ]
        results = pull_back(tuple(cotangents))
        if case.axis_types == "explicit":
            return results
        return tuple(
            jax.lax.with_sharding_constraint(
                result,
                partition_spec(contract.signature.inputs[i], case.bindings),
            )
            for i, result in zip(wanted, results, strict=True)
        )

    arguments = _abstract(contract.signature.inputs, contract, case, mesh)
    cotangents = tuple(
        _placed(spec, cotangent.dtype, case, mesh)
        for spec, cotangent in zip(inputs.differentiable, inputs.cotangents, strict=True)
    )
    return _compile(gradient, (cotangents, arguments), {}, mesh, backend)


def count_events(
    candidate: Candidate, case: Case, mesh: jax.sharding.Mesh, arguments: Sequence[jax.Array]
) -> tuple[Mapping[str, int], ...]:
    """How often two calls of a jitted candidate, as it is, trace and compile."""
    import jax

    counted: Counter[str] = Counter()

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        counted.update([_EVENTS[event]] if event in _EVENTS else [])

    calls = []
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for _ in range(2):
            with jax.set_mesh(mesh):
                jax.block_until_ready(
                    candidate.function(*arguments, **candidate.keywords(case.bindings))
                )
            calls.append(dict(counted))
            counted.clear()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return tuple(calls)


_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "traced",
    "/jax/core/compile/backend_compile_duration": "compiled",
}


def _abstract(
    specs: Sequence[ArraySpec], contract: Contract, case: Case, mesh: jax.sharding.Mesh
) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(
        _placed(spec, numpy_dtype(contract.dtype_of(spec.name, case.dtype)), case, mesh)
        for spec in specs
    )


def _placed(
    spec: ArraySpec, dtype: np.dtype[Any], case: Case, mesh: jax.sharding.Mesh
) -> jax.ShapeDtypeStruct:
    import jax

    sharding = jax.sharding.NamedSharding(mesh, partition_spec(spec, case.bindings))
    return jax.ShapeDtypeStruct(spec.shape(case.sizes), dtype, sharding=sharding)


def _compile(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    mesh: jax.sharding.Mesh,
    backend: Backend,
) -> Executable | Raised:
    import jax

    stage: Stage = "traced"
    try:
        with jax.set_mesh(mesh):
            jitted: Any = function if hasattr(function, "trace") else _jitted(function, keywords)
            traced = jitted.trace(*arguments, **keywords)
            stage = "lowered"
            lowered = traced.lower()
            stage = "compiled"
            compiled = lowered.compile(compiler_options=dict(backend.compiler_options))
    except (Exception, SystemExit) as error:
        return Raised(stage, _message(error))
    (printed,) = compiled.runtime_executable().hlo_modules()
    text = hlo.with_tables(compiled.as_text(), printed.as_serialized_hlo_module_proto())
    written = hlo.written_collectives(lowered.as_text())
    return Executable(text, hlo.parse(text), written, mesh, compiled)


def _jitted(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    import jax

    return jax.jit(function, static_argnames=tuple(keywords))


def _message(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"
