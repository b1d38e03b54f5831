"""The command line: list, run, explain, replay, doctor. Exit codes are pytest's."""

from __future__ import annotations

import argparse
import enum
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from conformance.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from conformance.verdict import Verdict


class Exit(enum.IntEnum):
    """What the process returns, as pytest does."""

    OK = 0
    FAILED = 1
    INTERRUPTED = 2
    INTERNAL = 3
    USAGE = 4
    NOTHING_RAN = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parsed = _parser().parse_args(arguments)
    # Any other platform would start beside the CPU, and may be slow, taken, or noisy.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        code: Exit = parsed.command(parsed)
    except UsageError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception:
        traceback.print_exc()
        print("conformance: internal error, not the candidate's; please report it", file=sys.stderr)
        return Exit.INTERNAL
    return code


def _list(parsed: argparse.Namespace) -> Exit:
    from conformance.candidate import entries
    from conformance.procedures import Procedure

    console = _console()
    for candidate in entries():
        if isinstance(candidate, Procedure):
            console.print(f"[bold]{candidate.name}[/]  (procedure)")
            console.print(f"    {candidate.summary}", markup=False)
            continue
        contract = candidate.contract
        console.print(f"[bold]{candidate.name}[/]  ({', '.join(contract.axis_types)} axes)")
        for line in (contract.signature, *contract.collectives):
            console.print(f"    {line}", markup=False)
        if not contract.collectives:
            console.print("    no collective")
    return Exit.OK


def _run(parsed: argparse.Namespace) -> Exit:
    from conformance.candidate import entries
    from conformance.machine import machine
    from conformance.report.file import SUFFIXES, write_report
    from conformance.report.terminal import print_verdicts
    from conformance.worker import Task, verify_apart

    if parsed.like and not parsed.names:
        raise UsageError("--like: name the function that should behave like it")
    if parsed.report is not None and parsed.report.suffix not in SUFFIXES:
        raise UsageError(f"--report: expected a name ending in .json or .md; given {parsed.report}")
    names = parsed.names or [entry.name for entry in entries()]
    tasks = [Task(n, parsed.like, parsed.backend, parsed.profile, parsed.seed) for n in names]
    with _Progress() as progress:
        verdicts = verify_apart(
            tasks,
            processes=parsed.processes,
            seconds=parsed.case_seconds,
            progress=progress.update,
        )
    print_verdicts(verdicts, _console())
    if parsed.report is not None:
        write_report(parsed.report, verdicts, machine())
    return _exit(verdicts)


def _explain(parsed: argparse.Namespace) -> Exit:
    from conformance.backends import get_backend
    from conformance.candidate import load
    from conformance.case import Case, parse_dims, parse_mesh
    from conformance.explain import explain

    # Before any module is imported that may start JAX.
    get_backend(parsed.backend)
    candidate = load(parsed.name, parsed.like)
    contract = candidate.contract
    case = Case(
        parse_mesh(parsed.mesh),
        parse_dims(parsed.dims),
        dtype=parsed.dtype or contract.dtypes[0],
        axis_types=parsed.axis_types or contract.axis_types[0],
    )
    lines, raised = explain(candidate, case, parsed.backend, text=parsed.hlo)
    print("\n".join(lines))
    return Exit.FAILED if raised else Exit.OK


def _replay(parsed: argparse.Namespace) -> Exit:
    from conformance.case import parse_case
    from conformance.report.terminal import print_verdicts
    from conformance.worker import Task, verify_apart

    name, at, case = parsed.id.rpartition("@")
    if not at:
        raise UsageError(f"replay: expected NAME@CASE; given {parsed.id!r}")
    name, _, like = name.partition("~")
    task = Task(name, like or None, parsed.backend, case=str(parse_case(case)))
    verdicts = verify_apart([task], processes=1, seconds=parsed.case_seconds)
    print_verdicts(verdicts, _console())
    return _exit(verdicts)


def _faults(parsed: argparse.Namespace) -> Exit:
    from rich.table import Table

    from conformance.backends import get_backend
    from conformance.evidence import collect, see, summary
    from conformance.examine import Examiner

    backend = get_backend("cpu")
    console = _console()
    seen = []
    with _Progress() as progress:
        for specimen in collect(parsed.folder):
            progress.update(f"{specimen.name}  {specimen.family}")
            seen.append(see(specimen, Examiner(specimen.candidate, backend)))
    head, *rows = summary(seen)
    table = Table(*head, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    wrong = [one for one in seen if one.missed or one.false_alarms]
    for one in wrong:
        what = "missed" if one.missed else f"false alarm of {', '.join(sorted(one.false_alarms))}"
        console.print(f"{one.specimen.name}: {what} {one.message}", markup=False, soft_wrap=True)
    broken = sum(one.specimen.check is not None for one in seen)
    console.print(
        f"\n{broken} faults, {sum(one.missed for one in seen)} missed; "
        f"{len(seen) - broken} sound programs; "
        f"{sum(bool(one.false_alarms) for one in seen)} false alarms; on cpu"
    )
    return Exit.FAILED if wrong else Exit.OK


def _doctor(parsed: argparse.Namespace) -> Exit:
    from conformance.backends import get_backend
    from conformance.machine import machine

    for name, found in machine().items():
        print(f"{name:<12} {found}")
    print(f"backend cpu  {len(get_backend('cpu').devices)} simulated devices")
    return Exit.OK


def _exit(verdicts: Sequence[Verdict]) -> Exit:
    words = {verdict.word for verdict in verdicts}
    if "failed" in words:
        return Exit.FAILED
    return Exit.NOTHING_RAN if words <= {"not run"} else Exit.OK


def _console() -> Console:
    from rich.console import Console

    # A pipe has no width of its own; a table that is folded there is of no use.
    width = None if sys.stdout.isatty() else 220
    return Console(width=width, highlight=False)


class _Progress:
    """A line on standard error that says what is being observed; one a candidate in a log."""

    def __enter__(self) -> _Progress:
        from rich.console import Console

        self._told: set[str] = set()
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("starting JAX")
        self._status.start()
        return self

    def update(self, text: str) -> None:
        from rich.markup import escape

        self._status.update(escape(text))
        name = text.split()[0]
        if not self._console.is_terminal and name not in self._told:
            self._told.add(name)
            print(f"verifying {name}", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        self._status.stop()


class _Parser(argparse.ArgumentParser):
    """argparse, with pytest's exit code for wrong usage: its own 2 would say "interrupted"."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(prog="conformance", description="Conformance of sharded JAX programs.")
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=_Parser)

    listing = verbs.add_parser("list", help="strategies, their signatures and collectives")
    listing.set_defaults(command=_list)

    run = verbs.add_parser("run", help="verify strategies, or functions of your own")
    run.add_argument("names", nargs="*", metavar="NAME", help=_NAME_HELP + "; all strategies")
    run.add_argument("--profile", choices=("smoke", "default", "nightly"), default="default")
    run.add_argument("--seed", type=int, default=0, help="of the cases that are drawn")
    run.add_argument("-n", dest="processes", type=int, default=2, help="children at once; 2")
    run.add_argument("--report", type=Path, metavar="FILE", help="write FILE.json or FILE.md too")
    run.set_defaults(command=_run)

    explain = verbs.add_parser("explain", help="what one case of a strategy holds and sends")
    explain.add_argument("name", metavar="NAME", help=_NAME_HELP)
    explain.add_argument("--mesh", required=True, metavar="X=2,Y=4", help="mesh axes and sizes")
    explain.add_argument("--dims", default="", metavar="B=8,D=6", help="sizes of dimensions")
    explain.add_argument("--dtype", help="such as f32 or bf16; else the contract's first")
    explain.add_argument("--axis-types", help="auto or explicit; else the contract's first")
    explain.add_argument("--hlo", action="store_true", help="print the compiled program too")
    explain.set_defaults(command=_explain)

    replay = verbs.add_parser("replay", help="one failing case again")
    replay.add_argument("id", metavar="NAME@CASE", help="as a failure prints it")
    replay.set_defaults(command=_replay)

    faults = verbs.add_parser("faults", help="what the checks catch of programs broken on purpose")
    faults.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("tests"),
        metavar="FOLDER",
        help="with faults/*.py and sound/*.py; tests",
    )
    faults.set_defaults(command=_faults)

    doctor = verbs.add_parser("doctor", help="versions, backends here, device counts")
    doctor.set_defaults(command=_doctor)

    for verb in (run, replay):
        verb.add_argument(
            "--case-seconds",
            type=float,
            default=60.0,
            metavar="S",
            help="a case that takes longer has hung; 60",
        )
    for verb in (run, explain):
        verb.add_argument("--like", metavar="STRATEGY", help="hold NAME to this one's contract")
    for verb in (run, explain, replay):
        verb.add_argument("--backend", default="cpu", help="cpu")
    return parser


_NAME_HELP = "a strategy, or package.module:function"
