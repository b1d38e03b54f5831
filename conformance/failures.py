"""What is reported when a law does not hold: the law, the evidence, the case, and a replay line."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.case import Case


@dataclass(frozen=True, slots=True)
class Failure:
    """One law that one case breaks; `str()` is the whole report of it.

    A procedure has no case.
    """

    candidate: str
    check: str
    case: Case | None
    backend: str
    message: str

    @property
    def replay_id(self) -> str:
        """What `conformance replay` takes."""
        return f"{self.candidate}@{self.case}"

    @property
    def replay_command(self) -> str:
        """A line to paste that shows the failure again."""
        if self.case is None:
            return f"conformance run {self.candidate}"
        return f"conformance replay '{self.replay_id}'"

    def __str__(self) -> str:
        where = "" if self.case is None else f"  case {self.case}"
        return (
            f"{self.check}: {self.message}\n"
            f"  {self.candidate}{where}  on {self.backend}\n"
            f"Replay: {self.replay_command}"
        )
