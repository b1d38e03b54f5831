"""The reader of compiled HLO: text in, plain data out. It imports no JAX."""

from conformance.hlo.collectives import CollectiveOp, collectives, groups_of, source_of
from conformance.hlo.dataflow import Dataflow, Use
from conformance.hlo.error import HloError
from conformance.hlo.literals import with_tables
from conformance.hlo.shapes import Shape, parse_shape
from conformance.hlo.text import Computation, Instruction, Module, count_instructions, parse
from conformance.hlo.written import Written, written_collectives

__all__ = [
    "CollectiveOp",
    "Computation",
    "Dataflow",
    "HloError",
    "Instruction",
    "Module",
    "Shape",
    "Use",
    "Written",
    "collectives",
    "count_instructions",
    "groups_of",
    "parse",
    "parse_shape",
    "source_of",
    "with_tables",
    "written_collectives",
]
