"""Collectives as contracts write them, and what each puts on the wire."""

from fractions import Fraction

import pytest

from conformance.collective import (
    all_gather,
    all_reduce,
    all_to_all,
    permute,
    reduce_scatter,
    runs,
    wire_bytes,
)
from conformance.errors import ContractError


@pytest.mark.parametrize(
    ("collective", "text"),
    [
        (all_reduce("tp", "out[B_dp, D]"), "all-reduce over tp of out[B_dp, D]"),
        (all_reduce(("X", "Y"), "m[4]", op="max"), "all-reduce by max over X, Y of m[4]"),
        (all_gather("Y", "x[B_X, D_Y]"), "all-gather over Y of x[B_X, D_Y]"),
        (reduce_scatter("Y", "out[B, F]"), "reduce-scatter over Y of out[B, F]"),
        (all_to_all("X", "x[S_X, D]"), "all-to-all over X of x[S_X, D]"),
        (
            permute("Y", "lhs[B_X, D_Y]/2", shift=-1, times="Y-1"),
            "collective-permute by -1 over Y of lhs[B_X, D_Y]/2, Y-1 times",
        ),
    ],
)
def test_a_collective_reads_as_a_sentence(collective: object, text: str) -> None:
    assert str(collective) == text


@pytest.mark.parametrize(
    ("kind", "bytes_sent"),
    [
        # Each device holds 12 bytes; in a ring of 4 it sends blocks of 3 bytes, or its 12 whole.
        ("all-reduce", 2 * 3 * 3),
        ("reduce-scatter", 3 * 3),
        ("all-to-all", 3 * 3),
        ("all-gather", 3 * 12),
        ("collective-permute", 12),
    ],
)
def test_wire_bytes_of_a_ring(kind: str, bytes_sent: int) -> None:
    assert wire_bytes(kind, 4, Fraction(12)) == bytes_sent  # type: ignore[arg-type]


def test_an_all_reduce_sends_what_a_reduce_scatter_and_an_all_gather_send() -> None:
    for group in range(1, 13):
        operand = Fraction(840)
        halves = wire_bytes("reduce-scatter", group, operand)
        halves += wire_bytes("all-gather", group, operand / group)
        assert wire_bytes("all-reduce", group, operand) == halves


def test_runs_evaluates_times_and_is_one_where_it_is_left_out() -> None:
    assert runs(permute("Y", "x[B]", shift=1, times="Y//2"), {"Y": 5}) == 2
    assert runs(permute("Y", "x[B]", shift=1), {"Y": 5}) == 1


def test_bad_collectives_are_refused() -> None:
    with pytest.raises(
        ContractError,
        match=r"^permute over 'Y': expected a whole number of places, and not 0; given shift=0",
    ):
        permute("Y", "x[B]", shift=0)
    with pytest.raises(ContractError, match=r"^all-reduce of x\[B\]: name at least one mesh axis"):
        all_reduce((), "x[B]")
    with pytest.raises(ContractError, match=r"each axis may stand once$"):
        all_reduce(("X", "X"), "x[B]")
    with pytest.raises(ContractError, match=r"op='mean' is none of sum, max, min, prod, and, or"):
        all_reduce("X", "x[B]", op="mean")  # type: ignore[arg-type]
