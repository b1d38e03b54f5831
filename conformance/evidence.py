"""What the harness catches: candidates broken on purpose, and sound ones that must pass.

A folder has `faults/*.py`, whose functions are decorated with `fault`, and `sound/*.py`, with
`sound`. Each fault names the check that must catch it and those that may fire beside it.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from conformance.candidate import Candidate, as_candidate
from conformance.checks import LAWS
from conformance.engine import profile_cases
from conformance.errors import UsageError
from conformance.examine import Examiner

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Specimen:
    """One candidate of the evidence; `check` is None for a sound one."""

    family: str
    candidate: Candidate
    check: str | None = None
    also: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.candidate.name


@dataclass(frozen=True, slots=True)
class Seen:
    """What the checks said of a specimen: which are red, and after how many programs the named one.

    `message` is the first of the named check, or of a check that should not have fired.
    """

    specimen: Specimen
    red: frozenset[str]
    needed: int | None
    message: str

    @property
    def missed(self) -> bool:
        """Whether the named check did not catch the fault."""
        return self.specimen.check is not None and self.needed is None

    @property
    def false_alarms(self) -> frozenset[str]:
        """Checks that fired and should not have."""
        expected = {self.specimen.check, *self.specimen.also}
        return frozenset(self.red - expected)


def fault(
    family: str, check: str, contract: Any, *, also: Sequence[str] = ()
) -> Callable[[Function], Function]:
    """States that `check` must catch the decorated function, and which others may fire too."""
    unknown = {check, *also} - set(LAWS)
    if unknown:
        raise UsageError(
            f"fault: {', '.join(sorted(unknown))} are no checks; {', '.join(LAWS)} are"
        )

    def attach(function: Function) -> Function:
        candidate = as_candidate(function, contract, getattr(function, "__name__", family))
        function.specimen = Specimen(family, candidate, check, frozenset(also))  # type: ignore[attr-defined]
        return function

    return attach


def sound(contract: Any) -> Callable[[Function], Function]:
    """States that the decorated function, written in another way than ours, conforms."""

    def attach(function: Function) -> Function:
        candidate = as_candidate(function, contract, getattr(function, "__name__", "sound"))
        function.specimen = Specimen("sound", candidate)  # type: ignore[attr-defined]
        return function

    return attach


def collect(folder: Path) -> list[Specimen]:
    """The specimens of a folder, in the order of files and definitions."""
    paths = [*sorted(folder.glob("faults/*.py")), *sorted(folder.glob("sound/*.py"))]
    if not paths:
        raise UsageError(f"{folder}: expected faults/*.py and sound/*.py there")
    return [
        value.specimen
        for path in paths
        for value in vars(_module(path)).values()
        if isinstance(getattr(value, "specimen", None), Specimen)
    ]


def see(specimen: Specimen, examiner: Examiner) -> Seen:
    """Runs the smoke profile, and the default one until the named check has fired.

    `needed` counts programs up to the one on which the named check first failed.
    """
    red: dict[str, str] = {}
    needed = None
    programs: dict[Any, None] = {}
    cases = profile_cases(specimen.candidate, len(examiner.backend.devices), "default", 0)
    enough = sum(1 for _ in profile_cases(specimen.candidate, 12, "smoke", 0))
    for index, case in enumerate(cases):
        if index >= enough and (specimen.check is None or needed is not None):
            break
        programs.setdefault(case.program)
        examination = examiner.examine(case)
        for check in LAWS:
            if problems := examination.problems(check):
                red.setdefault(check, f"{problems[0]} ({case})")
                if check == specimen.check and needed is None:
                    needed = len(programs)
    unexpected = [check for check in red if check not in {specimen.check, *specimen.also}]
    shown = unexpected[0] if unexpected else specimen.check
    return Seen(specimen, frozenset(red), needed, red.get(shown or "", ""))


def summary(seen: Sequence[Seen]) -> Iterator[tuple[str, ...]]:
    """Rows of a table: family, specimens, caught by, missed, false alarms, programs needed."""
    yield "family", "specimens", "caught by", "missed", "false alarms", "programs needed"
    families = dict.fromkeys(one.specimen.family for one in seen)
    for family in families:
        rows = [one for one in seen if one.specimen.family == family]
        caught = dict.fromkeys(one.specimen.check or "" for one in rows if one.needed)
        needed = [one.needed for one in rows if one.needed is not None]
        yield (
            family,
            str(len(rows)),
            ", ".join(caught) or "-",
            str(sum(one.missed for one in rows)),
            str(sum(bool(one.false_alarms) for one in rows)),
            f"median {statistics.median(needed):g}, most {max(needed)}" if needed else "-",
        )


def _module(path: Path) -> Any:
    name = f"evidence_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
