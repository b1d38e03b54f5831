"""How often a loop runs: as XLA annotates it, or read from its counter."""

from __future__ import annotations

import re

from conformance.hlo.dataflow import Dataflow
from conformance.hlo.text import Instruction

_ANNOTATED = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


def trip_count(dataflow: Dataflow, loop: Instruction) -> int | None:
    """How often the body of a `while` runs; None where data decide it.

    Without an annotation (no TPU loop has one) it follows from the counter that the condition
    compares: its first value, its step and its limit.
    """
    if annotated := _ANNOTATED.search(loop.rest):
        return int(annotated[1])
    called = loop.called
    if set(called) != {"condition", "body"}:
        raise loop.error("expected a condition and a body")
    (condition,), (body,) = called["condition"], called["body"]
    module = dataflow.module
    compare, _ = dataflow.origin(module.computation(condition, loop).root)
    if compare.opcode != "compare":
        return None
    counter, _ = dataflow.origin(module.operand(compare, 0))
    index = _element(dataflow, counter, condition)
    limit = _constant(dataflow, loop, module.operand(compare, 1), condition)
    results, _ = dataflow.origin(module.computation(body, loop).root)
    if index is None or limit is None or results.opcode != "tuple":
        return None
    first = _first(dataflow, loop, index)
    step = _step(dataflow, loop, module.operand(results, index), index, body)
    if first is None or not step:
        return None
    match compare.attribute("direction"):
        case "LT" | "GT" as direction if (direction == "LT") == (step > 0):
            return len(range(first, limit, step))
        case "LE" | "GE" as direction if (direction == "LE") == (step > 0):
            return len(range(first, limit + (1 if step > 0 else -1), step))
        case "NE" if (limit - first) % step == 0 and (limit - first) // step >= 0:
            return (limit - first) // step
    return None


def _element(dataflow: Dataflow, value: Instruction, computation: str) -> int | None:
    """Which element of the loop's own state `value` is, where it is one."""
    if value.opcode != "get-tuple-element" or value.computation != computation:
        return None
    if dataflow.module.operand(value, 0).opcode != "parameter":
        return None
    return int(value.attribute("index") or 0)


def _first(dataflow: Dataflow, loop: Instruction, index: int) -> int | None:
    state, _ = dataflow.origin(dataflow.module.operand(loop, 0))
    if state.opcode != "tuple":
        return None
    return _same_everywhere(dataflow, dataflow.module.operand(state, index))


def _step(
    dataflow: Dataflow, loop: Instruction, result: Instruction, index: int, body: str
) -> int | None:
    add, _ = dataflow.origin(result)
    if add.opcode != "add":
        return None
    for counter, step in ((0, 1), (1, 0)):
        before, _ = dataflow.origin(dataflow.module.operand(add, counter))
        if _element(dataflow, before, body) == index:
            return _constant(dataflow, loop, dataflow.module.operand(add, step), body)
    return None


def _constant(
    dataflow: Dataflow, loop: Instruction, value: Instruction, computation: str
) -> int | None:
    """An integer known at compile time, perhaps handed through the loop unchanged."""
    value, _ = dataflow.origin(value)
    index = _element(dataflow, value, computation)
    if index is None:
        return _same_everywhere(dataflow, value)
    (body,) = loop.called["body"]
    results, _ = dataflow.origin(dataflow.module.computation(body, loop).root)
    if results.opcode != "tuple":
        return None
    kept, _ = dataflow.origin(dataflow.module.operand(results, index))
    return _first(dataflow, loop, index) if _element(dataflow, kept, body) == index else None


def _same_everywhere(dataflow: Dataflow, value: Instruction) -> int | None:
    known = {dataflow.position_value(value, at) for at in range(dataflow.module.partitions)}
    return known.pop() if len(known) == 1 else None
