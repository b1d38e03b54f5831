"""The README and the pages say what the code does: their commands and blocks are run."""

import platform
import re
import runpy
import shlex
import sys
from pathlib import Path

import jax
import pytest

from conformance.checks import LAWS
from conformance.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
NEWEST = jax.__version__.startswith("0.12.")


def block(marker: str) -> str:
    found = re.search(rf"<!-- test: {re.escape(marker)} -->\n```\w*\n(.*?)```", README, re.DOTALL)
    assert found is not None, marker
    return found[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_mlp", raising=False)
    return tmp_path


def test_the_contract_of_the_readme_conforms(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "my_mlp.py").write_text(block("my_mlp.py"))
    command = shlex.split(block("run").removeprefix("conformance "))
    assert main([*command, "--profile", "smoke"]) == 0
    assert "my_mlp:mlp" in capsys.readouterr().out


def test_broken_as_the_readme_says_it_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = block("my_mlp.py")
    text = text.replace(
        "out_specs=P(dp, None),\n", "out_specs=P(dp, None),\n        check_vma=False,\n"
    )
    broken = text.replace("@ w_down, tp)", "@ w_down, dp)")
    assert broken != text
    (folder / "my_mlp.py").write_text(broken)
    shown = block("broken")
    case = re.search(r"@([^']*)'", shown)
    assert case is not None
    assert main(["replay", f"my_mlp:mlp@{case[1]}"]) == 1
    assert shown in capsys.readouterr().out


def test_the_readme_lists_every_check() -> None:
    table = re.findall(r"^\| (\w+) \|", README.partition("| check | law |")[2], re.MULTILINE)
    assert table == list(LAWS)


def test_ci_calls_the_readmes_test_command() -> None:
    command = re.search(r"^.*tox\S* && .*tox$", README, re.MULTILINE)
    assert command is not None
    assert f"\n{command[0]}\n" in (ROOT / ".ci" / "run").read_text()


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.skipif(
    not NEWEST or platform.machine() != "x86_64",
    reason="the pages show what the newest JAX compiles for x86-64",
)
def test_the_pages_show_what_the_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    update = runpy.run_path(str(ROOT / "docs" / "update.py"))["main"]
    assert update(["--check"]) == 0, capsys.readouterr().out
