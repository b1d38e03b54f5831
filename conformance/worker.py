"""A child process that verifies candidates, and the parent that watches it.

A candidate may hang, deadlock in a collective until XLA aborts the process, or kill the
interpreter. Each happens to a child: the parent sees which case it was on, reports it, and goes on
with a new child.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import IO, Any

from conformance.case import parse_case
from conformance.errors import UsageError
from conformance.failures import Failure
from conformance.report.data import from_data, to_data
from conformance.verdict import Count, Verdict

# XLA's own limits for a collective that not all devices reach are a minute; this is enough here.
_STUCK = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=10 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=20"
)


@dataclass(frozen=True, slots=True)
class Task:
    """What a child is asked to verify: the cases of a profile, or one case."""

    name: str
    like: str | None
    backend: str
    profile: str = "default"
    seed: int = 0
    case: str | None = None

    @property
    def candidate(self) -> str:
        """The name that the verdict bears."""
        return self.name if self.like is None else f"{self.name}~{self.like}"


def verify_apart(
    tasks: Sequence[Task],
    *,
    processes: int,
    seconds: float,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Verdict]:
    """The verdicts of the tasks, in order, each verified in one of `processes` children.

    A case, or a start, that takes longer than `seconds` ends its child, and the candidate fails
    the check `runs` there. Raises `UsageError` for what a task asks wrongly.
    """
    waiting = deque(enumerate(tasks))
    verdicts: dict[int, Verdict] = {}

    def watch() -> None:
        child: _Child | None = None
        try:
            while waiting:
                index, task = waiting.popleft()
                child = child or _Child(seconds)
                verdicts[index] = child.verify(task, progress)
                if child.ended:
                    child = None
        finally:
            if child is not None:
                child.end()

    with ThreadPoolExecutor(max(1, min(processes, len(tasks)))) as pool:
        watching = [pool.submit(watch) for _ in range(max(1, min(processes, len(tasks))))]
        try:
            for one in watching:
                one.result()
        except BaseException:
            waiting.clear()
            raise
    return [verdicts[index] for index in range(len(tasks))]


class _Child:
    """One child process, given tasks one after the other."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ended = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        reading, writing = os.pipe()
        # The child finds what the parent finds, from whatever folder it was started.
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        flags = f"{os.environ.get('XLA_FLAGS', '')} {_STUCK}".strip()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "conformance.worker", str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=(writing,),
            env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path},
            text=True,
        )
        os.close(writing)
        self._events = reading
        self._unread = b""

    def verify(self, task: Task, progress: Callable[[str], None]) -> Verdict:
        """What the child says of a task, or what became of the child."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{json.dumps(asdict(task))}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it is gone, and the end of its events says so
        case = ""
        for event in self._read():
            if "case" in event:
                case = event["case"]
                progress(f"{task.candidate}  {case}")
            elif "usage" in event:
                self.end()
                raise UsageError(event["usage"])
            elif "internal" in event:
                self.end()
                raise RuntimeError(event["internal"])
            else:
                return from_data(event["verdict"])
        return self._lost(task, case)

    def end(self) -> None:
        """Stops the child, whatever it is doing."""
        if self.ended:
            return
        self.ended = True
        self._process.kill()
        self._process.wait()
        os.close(self._events)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._errors.close()

    def _read(self) -> Iterator[Mapping[str, Any]]:
        """Events until the pipe ends, or nothing comes for too long."""
        # Read by hand: `select` knows nothing of lines that a file object has in its buffer.
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                yield json.loads(line)
                continue
            if not select.select([self._events], [], [], self.seconds)[0]:
                return
            more = os.read(self._events, 1 << 16)
            if not more:
                return
            self._unread += more

    def _lost(self, task: Task, case: str) -> Verdict:
        """The verdict on a candidate that hung or took the child with it."""
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            message = f"did not return within {self.seconds:g} s"
        else:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            last = next((line for line in reversed(said) if line.strip()), "")
            message = f"ended its process ({_ending(code)}){f': {last}' if last else ''}"
        self.end()
        if not case:
            raise UsageError(f"{task.candidate}: {message} before its first case")
        failure = Failure(task.candidate, "runs", parse_case(case), task.backend, message)
        counts = {"runs": Count(1, 1)}
        return Verdict(task.candidate, task.backend, 1, counts, {}, {}, (failure,), 0.0)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    import signal

    return signal.Signals(-code).name


def serve(tasks: IO[str], events: IO[str]) -> None:
    """The child's side: a verdict for each task, and each case before it is observed."""
    from conformance.backends import get_backend
    from conformance.candidate import find
    from conformance.engine import carry_out, verify
    from conformance.procedures import Procedure

    def tell(**event: Any) -> None:
        print(json.dumps(event), file=events, flush=True)

    for line in tasks:
        task = Task(**json.loads(line))
        try:
            # Before any module is imported that may start JAX.
            get_backend(task.backend)
            found = find(task.name, task.like)
            if isinstance(found, Procedure):
                tell(verdict=to_data(carry_out(found, task.backend)))
                continue
            verdict = verify(
                found,
                cases=None if task.case is None else [parse_case(task.case)],
                backend=task.backend,
                profile=task.profile,  # type: ignore[arg-type]
                seed=task.seed,
                progress=lambda case: tell(case=str(case)),
            )
        except UsageError as error:
            tell(usage=str(error))
        except Exception as error:
            import traceback

            tell(internal=f"{task.candidate}: {error}\n{traceback.format_exc()}")
        else:
            tell(verdict=to_data(verdict))


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as pipe:
        serve(sys.stdin, pipe)
