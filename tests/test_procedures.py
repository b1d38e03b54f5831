from collections.abc import Iterator

import pytest

from conformance.candidate import entries, find
from conformance.engine import carry_out
from conformance.procedures import Procedure, procedure

PROCEDURES = [entry for entry in entries() if isinstance(entry, Procedure)]


@procedure
def shown() -> Iterator[str]:
    """Two facts.

    And more.
    """
    yield "one"
    yield "two"


def wrong() -> Iterator[str]:
    yield "one"
    raise AssertionError("two is not so")


def raising() -> Iterator[str]:
    yield "one"
    raise KeyError("two")


def test_facts_are_counted() -> None:
    verdict = carry_out(Procedure("mine", shown), "cpu")
    assert (verdict.counts["facts"].compared, verdict.ok) == (2, True)
    assert Procedure("mine", shown).summary == "Two facts."


@pytest.mark.parametrize(
    ("facts", "message"), [(wrong, "two is not so"), (raising, "KeyError: 'two'")]
)
def test_what_does_not_hold_is_a_failure(facts: object, message: str) -> None:
    verdict = carry_out(Procedure("mine", facts), "cpu")  # type: ignore[arg-type]
    assert (verdict.counts["facts"].compared, verdict.counts["facts"].failed) == (2, 1)
    assert str(verdict.failures[0]) == (
        f"facts: {message}\n  mine  on cpu\nReplay: conformance run mine"
    )


def test_a_procedure_that_shows_nothing_has_not_run() -> None:
    verdict = carry_out(Procedure("mine", lambda: iter(())), "cpu")
    assert (verdict.word, verdict.ok) == ("not run", False)


@pytest.mark.parametrize("entry", PROCEDURES, ids=lambda entry: entry.name)
def test_every_procedure_holds(entry: Procedure) -> None:
    assert find(entry.name) == entry
    verdict = carry_out(entry, "cpu")
    assert verdict.ok, str(verdict)


def test_the_procedures_are_those_of_the_chapter() -> None:
    assert {entry.name for entry in PROCEDURES} == {
        "placements.placements",
        "simulated_devices.simulated_devices",
    }
