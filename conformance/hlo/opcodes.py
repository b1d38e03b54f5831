"""Every opcode that the reader knows: one that is not here may send something, and is an error."""

from __future__ import annotations

import functools

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "collective-broadcast",
)

# They send, and in a form that no contract can list.
POINT_TO_POINT = frozenset({"send", "send-done", "recv", "recv-done", "infeed", "outfeed"})

CALLING = frozenset({"fusion", "call", "while", "conditional", "custom-call", "async"})

# They send nothing, and what they call (a reducer, a comparison) sends nothing either.
_LOCAL = """
    abs acos acosh add add-dependency after-all and asin asinh atan2 atanh batch-norm-grad
    batch-norm-inference batch-norm-training bitcast bitcast-convert broadcast cbrt ceil
    cholesky clamp clz compare complex concatenate constant convert convolution copy cosh cosine
    count-leading-zeros divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf
    exponential exponential-minus-one fft floor gather get-dimension-size get-tuple-element imag
    iota is-finite log log-plus-one logistic map maximum minimum multiply negate not opt-barrier
    optimization-barrier or pad parameter partition-id popcnt power ragged-dot real reduce
    reduce-precision reduce-window remainder replica-id reshape reverse rng rng-bit-generator
    rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot scan scatter
    select select-and-scatter set-dimension-size shift-left shift-right-arithmetic
    shift-right-logical sign sine sinh slice sort sqrt stochastic-convert subtract tan tanh topk
    transpose triangular-solve tuple xor
"""
LOCAL = frozenset(_LOCAL.split())


@functools.lru_cache(maxsize=1024)
def is_known(opcode: str) -> bool:
    """Whether the reader knows what an opcode does, in one step or as a start and a done."""
    step, _, phase = opcode.rpartition("-")
    if phase not in ("start", "done", "update") or opcode in POINT_TO_POINT:
        step = opcode
    return step in LOCAL or step in CALLING or step in COLLECTIVES or step in POINT_TO_POINT
