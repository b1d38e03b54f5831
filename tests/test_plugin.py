"""The plugin in a project of a user's own, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = """\
import jax
from jax.sharding import PartitionSpec as P


def mlp(x, w_up, w_down, *, dp="dp", tp="tp"):
    out = jax.nn.relu(x @ w_up) @ w_down
    return jax.lax.with_sharding_constraint(out, P(dp, None))


def doubled(x, w_up, w_down, *, dp="dp", tp="tp"):
    return 2 * mlp(x, w_up, w_down, dp=dp, tp=tp)
"""
TESTS = """\
import pytest


@pytest.mark.conformance("my_layers:mlp", like="tensor_parallel.mlp")
def test_sound(conforms):
    conforms()


@pytest.mark.conformance("my_layers:doubled", like="tensor_parallel.mlp")
def test_doubled(conforms):
    conforms()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "my_layers.py").write_text(LAYERS)
    (tmp_path / "test_mine.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "JAX"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conformance.plugin", *arguments],
        cwd=folder,
        env={**bare, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_items_are_one_a_mesh_and_fail_with_a_line_to_replay(project: Path) -> None:
    code, said = run(
        project,
        *("-n", "2", "--conformance-profile", "smoke", "--junitxml", "junit.xml", "-v"),
        *("--conformance-report", "report.json"),
    )
    assert code == 1, said
    passed = [line for line in said.splitlines() if "PASSED" in line]
    failed = [line for line in said.splitlines() if "FAILED" in line and "gw" in line]
    assert passed
    assert len(passed) == len(failed)
    assert any("test_sound[my_layers:mlp~tensor_parallel.mlp-dp2_tp3-auto]" in x for x in passed)
    assert "values: out[0, 0] is " in said
    assert "Replay: conformance replay 'my_layers:doubled~tensor_parallel.mlp@dp=2" in said
    assert "Traceback" not in said
    junit = (project / "junit.xml").read_text()
    assert "conformance replay 'my_layers:doubled~tensor_parallel.mlp@dp=2" in junit.replace(
        "&apos;", "'"
    )
    verdicts = json.loads((project / "report.json").read_text())["verdicts"]
    assert len(verdicts) == len(passed) + len(failed)
    assert {one["verdict"] for one in verdicts} == {"lowered", "conforms", "failed"} - (
        set() if any(one["verdict"] == "conforms" for one in verdicts) else {"conforms"}
    )


def test_every_worker_collects_the_same_items_in_the_same_order(project: Path) -> None:
    listed = [
        run(project, "--collect-only", "-q", "--conformance-profile", "smoke")[1] for _ in range(2)
    ]
    assert listed[0].count("::test_sound[") >= 3
    assert listed[0].splitlines()[:-1] == listed[1].splitlines()[:-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--conformance-report", "x.txt"], "expected a name ending in .json or .md"),
        (["--conformance-profile", "all"], "invalid choice: 'all'"),
    ],
)
def test_wrong_options_are_usage_errors(project: Path, arguments: list[str], message: str) -> None:
    code, said = run(project, *arguments)
    assert code == 4
    assert message in said


def test_a_name_that_is_not_found_is_a_usage_error(project: Path) -> None:
    (project / "test_mine.py").write_text(TESTS.replace("my_layers:mlp", "my_layers:nothing"))
    code, said = run(project, "--conformance-profile", "smoke")
    assert code != 0
    assert "module 'my_layers' has no 'nothing'" in said


def test_the_plugin_imports_nothing_until_it_is_used(project: Path) -> None:
    (project / "test_mine.py").write_text(
        "import sys\n\ndef test_light():\n    assert not {'jax', 'numpy'} & set(sys.modules)\n"
    )
    code, said = run(project, "-p", "no:hypothesispytest")
    assert code == 0, said


def test_a_hypothesis_profile_of_the_same_name_is_taken(pytestconfig: pytest.Config) -> None:
    from conformance.plugin import profile_of

    class Asked:
        def __init__(self, **options: str) -> None:
            self.options = options

        def getoption(self, name: str, default: object = None) -> object:
            return self.options.get(name.replace("--", "").replace("-", "_"), default)

    def profile(**options: str) -> str:
        return str(profile_of(Asked(**options)))  # type: ignore[arg-type]

    assert profile() == "default"
    assert profile(hypothesis_profile="nightly") == "nightly"
    assert profile(hypothesis_profile="ci") == "default"
    assert profile(hypothesis_profile="nightly", conformance_profile="smoke") == "smoke"
