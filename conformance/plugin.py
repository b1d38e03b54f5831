"""The pytest plugin: a test that takes the fixture `conforms` becomes one item a mesh.

    @pytest.mark.conformance("my_layers:mlp", like="tensor_parallel.mlp")
    def test_my_layers(conforms):
        conforms()

Without names the mark, or no mark at all, means every strategy. Options are the command line's,
with the prefix `--conformance-`. The plugin is loaded in every project that has this package
installed, so it imports nothing heavy until such a test is collected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.candidate import Candidate
    from conformance.case import Case

_PROPERTY = "conformance"


@dataclass(frozen=True, slots=True)
class Item:
    """What one test item verifies: the cases of one candidate on one mesh and kind of axes."""

    candidate: Candidate
    cases: tuple[Case, ...]
    backend: str
    id: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("conformance", "conformance of sharded JAX programs")
    group.addoption(
        "--conformance-profile",
        choices=("smoke", "default", "nightly"),
        help="how many cases are drawn; else the Hypothesis profile, if it is one of these",
    )
    group.addoption("--conformance-seed", type=int, default=0, help="of the cases that are drawn")
    group.addoption("--conformance-backend", default="cpu", help="cpu")
    group.addoption("--conformance-report", metavar="FILE", help="write FILE.json or FILE.md")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark."""
    config.addinivalue_line(
        "markers",
        "conformance(*names, like=None): what the fixture `conforms` verifies; all strategies",
    )
    _seen.clear()
    report = config.getoption("--conformance-report")
    if report is not None and Path(report).suffix not in (".json", ".md"):
        raise pytest.UsageError(
            f"--conformance-report: expected a name ending in .json or .md; given {report}"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes one item of each candidate, mesh and kind of axes."""
    if "conforms" not in metafunc.fixturenames:
        return
    from conformance.candidate import load, strategies
    from conformance.errors import UsageError

    mark = metafunc.definition.get_closest_marker("conformance")
    names = mark.args if mark else ()
    like = mark.kwargs.get("like") if mark else None
    try:
        candidates = [load(name, like) for name in names] if names else list(strategies())
        items = [item for one in candidates for item in _items(one, metafunc.config)]
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    metafunc.parametrize("conforms", items, indirect=True, ids=[item.id for item in items])


@pytest.fixture
def conforms(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[[], None]:
    """Verifies the cases of one item, and fails with all that its checks found."""
    item: Item = request.param

    def verified() -> None:
        from conformance.engine import verify
        from conformance.report.data import to_data

        verdict = verify(item.candidate, cases=item.cases, backend=item.backend)
        record_property(_PROPERTY, json.dumps(to_data(verdict)))
        for failure in verdict.failures:
            record_property("replay", failure.replay_command)
        if not verdict.ok:
            pytest.fail(str(verdict), pytrace=False)

    return verified


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps the verdicts that items, also those of other workers, recorded."""
    if report.when == "call":
        _seen.extend(json.loads(str(v)) for k, v in report.user_properties if k == _PROPERTY)


_seen: list[dict[str, Any]] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the report, once, from the process that saw all items."""
    config = session.config
    path = config.getoption("--conformance-report")
    if path is None or hasattr(config, "workerinput"):
        return
    from conformance.machine import machine
    from conformance.report.data import from_data
    from conformance.report.file import write_report

    write_report(Path(path), [from_data(data) for data in _seen], machine())


def profile_of(config: pytest.Config) -> Any:
    """The profile that was asked for, here or as Hypothesis's; else the default one."""
    from conformance.engine import DRAWN

    asked = config.getoption("--conformance-profile")
    other = config.getoption("--hypothesis-profile", None)
    return asked or (other if other in DRAWN else "default")


def _items(candidate: Candidate, config: pytest.Config) -> Iterator[Item]:
    from conformance.backends import SIMULATED_DEVICES
    from conformance.engine import profile_cases

    # No device is asked for while tests are collected: that would start JAX.
    cases = profile_cases(
        candidate, SIMULATED_DEVICES, profile_of(config), config.getoption("--conformance-seed")
    )
    grouped: dict[str, list[Case]] = {}
    for case in cases:
        mesh = "_".join(f"{axis.name}{axis.size}" for axis in case.mesh)
        grouped.setdefault(f"{candidate.name}-{mesh}-{case.axis_types}", []).append(case)
    backend = config.getoption("--conformance-backend")
    for name, group in grouped.items():
        yield Item(candidate, tuple(group), backend, name)
