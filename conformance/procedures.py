"""Entries that are procedures and no functions over arrays: they show facts, one after the other.

A procedure is a generator without arguments. Each fact that holds is yielded as a sentence; one
that does not is raised as an `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

Facts = Callable[[], Iterator[str]]
Function = TypeVar("Function", bound=Facts)


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure, under the name that it is run by."""

    name: str
    facts: Facts

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.facts.__doc__ or "").strip().partition("\n")[0]


def procedure(function: Function) -> Function:
    """Marks a generator of facts as an entry that is listed and run."""
    function.procedure = True  # type: ignore[attr-defined]
    return function
