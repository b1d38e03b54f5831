"""What is reported when a law does not hold: the law, the evidence, the case, and a replay line."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.case import Case


@dataclass(frozen=True, slots=True)
class Failure:
    """One law that one case breaks; `str()` is the whole report of it."""

    candidate: str
    check: str
    case: Case
    backend: str
    message: str

    @property
    def replay_id(self) -> str:
        """What `conformance replay` takes."""
        return f"{self.candidate}@{self.case}"

    def __str__(self) -> str:
        return (
            f"{self.check}: {self.message}\n"
            f"  {self.candidate}  case {self.case}  on {self.backend}\n"
            f"Replay: conformance replay '{self.replay_id}'"
        )
