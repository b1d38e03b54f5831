"""The collectives that a program writes out, in the form that XLA is given: StableHLO text.

XLA may change their types later (on CPU it does); here they are as they were meant. A program that
is partitioned automatically writes none.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

# Up to the types of the operands: after the attributes, and after the region of a reduction.
_COLLECTIVE = re.compile(
    r"stablehlo\.(all_reduce|all_gather|reduce_scatter|all_to_all|collective_permute)\b"
    r".*?: \(((?:tensor<[^>]*>(?:, )?)+)\)",
    re.DOTALL,
)
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([a-z]\w*)>")


class Written(NamedTuple):
    """Kind, dtype and number of elements of one operand on one device."""

    kind: str
    dtype: str
    elements: int


def written_collectives(text: str) -> frozenset[Written]:
    """Every operand of a collective in StableHLO text."""
    return frozenset(
        Written(
            found[1].replace("_", "-"),
            dtype.lower(),
            math.prod(int(size) for size in dims.split("x") if size),
        )
        for found in _COLLECTIVE.finditer(text)
        for dims, dtype in _TENSOR.findall(found[2])
    )
