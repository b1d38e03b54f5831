"""The command line: what it prints, and its exit codes for wrong usage, failures and success."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.cli import Exit, main

MINE = """\
from functools import partial

import jax
from jax.sharding import PartitionSpec as P

from conformance import all_reduce, contract


def local(x, w_up, w_down, axis):
    return jax.lax.psum(jax.nn.relu(x @ w_up) @ w_down, axis)


def candidate(over):
    def mlp(x, w_up, w_down, *, dp="dp", tp="tp"):
        return jax.shard_map(
            partial(local, axis={"dp": dp, "tp": tp}[over]),
            in_specs=(P(dp, None), P(None, tp), P(tp, None)),
            out_specs=P(dp, None),
            check_vma=False,
        )(x, w_up, w_down)

    return mlp


sound = contract(
    "x[B_dp, D], w_up[D, F_tp], w_down[F_tp, D] -> out[B_dp, D]",
    reference=lambda x, w_up, w_down: jax.nn.relu(x @ w_up) @ w_down,
    collectives=[all_reduce("tp", "out[B_dp, D]")],
)(candidate("tp"))
broken = candidate("dp")
"""

WRONG_NOTATION = """\
from conformance import contract

@contract("x[B_X, D -> out[B_X, D]", reference=lambda x: x)
def f(x, *, X="X"):
    return x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of a user, with a file of the user's own."""
    (tmp_path / "my_own.py").write_text(MINE)
    (tmp_path / "my_wrong.py").write_text(WRONG_NOTATION)
    (tmp_path / "my_import.py").write_text("import nothing_of_this_name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_own", "my_wrong", "my_import"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_users_own_function_is_verified(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "my_own:sound", "--profile", "smoke"]) == Exit.OK
    printed = capsys.readouterr().out
    assert "my_own:sound" in printed
    assert "compared/failed" in printed
    assert "lowered" in printed
    assert printed.rstrip().splitlines()[-1].startswith("1 lowered; arrays compared: ")


def test_a_users_function_is_held_to_a_strategys_contract(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "my_own:broken", "--like", "tensor_parallel.mlp", "--profile", "smoke"]
    assert main(arguments) == Exit.FAILED
    printed = capsys.readouterr().out
    for check in ("values", "replicas", "collectives"):
        assert f"FAILED {check}: " in printed
    assert "FAILED out_sharding" not in printed
    assert "Replay: conformance replay 'my_own:broken~tensor_parallel.mlp@dp=" in printed
    assert printed.rstrip().splitlines()[-1].startswith("1 failed; arrays compared: ")


def test_the_replay_line_of_a_failure_gives_the_same_failure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["run", "my_own:broken", "--like", "tensor_parallel.mlp", "--profile", "smoke"])
    printed = capsys.readouterr().out
    failed = next(block for block in printed.split("FAILED ") if block.startswith("collectives: "))
    line = next(line for line in failed.splitlines() if line.startswith("Replay: "))
    replay = line.removeprefix("Replay: conformance ").replace("'", "").split()
    assert main(replay) == Exit.FAILED
    again = capsys.readouterr().out
    assert failed.splitlines()[0] in again


@pytest.mark.parametrize("suffix", ["json", "md"])
def test_a_report_is_written_where_it_is_asked_for(folder: Path, suffix: str) -> None:
    arguments = ["run", "my_own:sound", "--profile", "smoke", "--report", f"out.{suffix}"]
    assert main(arguments) == Exit.OK
    text = (folder / f"out.{suffix}").read_text()
    assert "my_own:sound" in text
    if suffix == "json":
        assert json.loads(text)["verdicts"][0]["verdict"] == "lowered"


USAGE = {
    "run my_own:sound --report out.txt": "--report: expected a name ending in .json or .md",
    "run mlq": "unknown strategy 'mlq'; the strategies are ",
    "run nowhere_at_all:f": "importing 'nowhere_at_all' failed: ModuleNotFoundError",
    "run my_import:f": "importing 'my_import' failed: ModuleNotFoundError: No module named "
    "'nothing_of_this_name'",
    "run my_wrong:f": "expected ',' or ']' after dimension 'D'; found '-'",
    "run my_own:other": "module 'my_own' has no 'other'",
    "run my_own:broken": "my_own:broken has no contract: decorate it with",
    "run my_own:sound --backend gpu": "backend 'gpu' is not known; the backends are: cpu",
    "run --like tensor_parallel.mlp": "--like: name the function that should behave like it",
    "run --profile all": "argument --profile: invalid choice: 'all'",
    "run my_own:sound --seed x": "argument --seed: invalid int value: 'x'",
    "bake": "argument VERB: invalid choice: 'bake'",
    "explain tensor_parallel.mlp --mesh dp=2 --dims B=2,D=3,F=4": "the mesh dp=2 lacks axis 'tp'",
    "explain tensor_parallel.mlp --mesh dp=2,tp=2 --dims B=2,D=3": "no size for 'F'",
    "explain tensor_parallel.mlp --mesh dp=2,tp=2 --dims B=2,D=3,F=4,B=4": (
        "dimension 'B' is given twice; give it one size"
    ),
    "explain tensor_parallel.mlp --mesh dp=2,tp=2 --dims B=2,D=3,F=5": (
        "dimension F_tp has 5 elements, which tp=2 do not divide; give a multiple of 2"
    ),
    "explain tensor_parallel.mlp --mesh dp=2,tp=2,z=2 --dims B=2,D=3,F=4": (
        "does not name axis 'z'; write +z=2"
    ),
    "explain tensor_parallel.mlp --mesh dp=8,tp=2 --dims B=8,D=3,F=4": (
        "the mesh needs 16 devices; this process has 12"
    ),
    "explain tensor_parallel.mlp --mesh dp --dims B=2": "expected NAME=SIZE; found 'dp'",
    "replay tensor_parallel.mlp": "replay: expected NAME@CASE",
    "replay tensor_parallel.mlp@dp=2": "expected MESH/DIMS/...",
    "replay tensor_parallel.mlp@dp=2,tp=2/B=2,D=3,F=4/seed=99999999999": "seed=99999999999: ",
}


@pytest.mark.parametrize("command", USAGE)
def test_wrong_usage_is_one_clear_message_and_exit_4(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(command.split())
    except SystemExit as error:
        code = int(str(error.code))
    assert code == Exit.USAGE == 4
    said = capsys.readouterr().err
    assert USAGE[command] in said
    assert "Traceback" not in said


def test_a_notation_error_points_at_the_character(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["run", "my_wrong:f"])
    lines = capsys.readouterr().err.splitlines()
    signature = next(i for i, line in enumerate(lines) if "x[B_X, D -> out[B_X, D]" in line)
    assert lines[signature + 1].index("^") == lines[signature].index("->")


def test_list_shows_signatures_and_collectives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == Exit.OK
    printed = capsys.readouterr().out
    assert "tensor_parallel.mlp  (auto axes)" in printed
    assert "    x[B_dp, D], w_up[D, F_tp], w_down[F_tp, D] -> out[B_dp, D]" in printed
    assert "    all-reduce over tp of out[B_dp, D]" in printed


def test_doctor_tells_versions_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == Exit.OK
    printed = capsys.readouterr().out
    assert "backend cpu  12 simulated devices" in printed
    assert "jax " in printed


def test_explain_prints_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "explain tensor_parallel.mlp --mesh dp=2,tp=3 --dims B=4,D=5,F=6 --hlo"
    assert main(arguments.split()) == Exit.OK
    printed = capsys.readouterr().out
    assert "all-reduce over tp, 40 B of f32" in printed
    assert "HloModule" in printed


def in_a_process(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    root = str(Path(__file__).parent.parent)
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA"))}
    done = subprocess.run(
        [sys.executable, "-m", "conformance", *arguments],
        cwd=folder,
        env={**bare, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_new_process_in_an_empty_folder_needs_no_setting(folder: Path) -> None:
    code, printed, said = in_a_process(folder, "run", "my_own:sound", "--profile", "smoke")
    assert (code, "lowered" in printed) == (0, True), said
    assert "Traceback" not in said


def test_a_backend_with_one_device_is_refused(folder: Path) -> None:
    code, _, said = in_a_process(folder, "run", "my_own:sound", JAX_NUM_CPU_DEVICES="1")
    assert code == 4
    assert "on which no sharding can be checked" in said


def test_a_module_that_starts_jax_as_it_is_imported_is_verified(folder: Path) -> None:
    (folder / "my_early.py").write_text("import jax\njax.devices()\n" + MINE)
    code, _, said = in_a_process(folder, "run", "my_early:sound", "--profile", "smoke")
    assert code == 0, said
    assert "verifying my_early:sound" in said


FAULTY = """\
import sys

import numpy as np

from conformance import contract

SIGNATURE = "x[B_X, D] -> out[B_X, D]"


def same(x, *, X="X"):
    return x


raising = contract(SIGNATURE, reference=lambda x: x.nothing)(lambda x, *, X="X": x)
shaped = contract(SIGNATURE, reference=lambda x: x[0])(lambda x, *, X="X": x)
counted = contract(SIGNATURE, reference=lambda x: (x, x))(lambda x, *, X="X": x)
in_numpy = contract(SIGNATURE, reference=lambda x: np.sin(x))(lambda x, *, X="X": x)
wide = contract(SIGNATURE, reference=lambda x: x, dtypes="f64")(lambda x, *, X="X": x)
empty = contract("ids: i32[B_X] -> out[B_X]", reference=lambda i: i, ints={"ids": "0..0"})(
    lambda i, *, X="X": i
)


@contract(SIGNATURE, reference=lambda x: x)
def leaving(x, *, X="X"):
    sys.exit(0)
"""


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("raising", 4, "reference of 'x[B_X, D] -> out[B_X, D]' raised: AttributeError"),
        ("shaped", 4, "reference returns [3]; 'x[B_X, D] -> out[B_X, D]' has [2, 3]"),
        ("counted", 4, "reference returns [2, 3], [2, 3]; 'x[B_X, D] -> out[B_X, D]' has [2, 3]"),
        ("in_numpy", 4, "raised: TracerArrayConversionError"),
        ("wide", 4, "dtype 'f64': JAX narrows it; set JAX_ENABLE_X64=1"),
        ("empty", 4, "ints['ids'] is 0..0, which is empty; give a wider range"),
        ("leaving", 1, "FAILED runs: raised while it was traced: SystemExit: 0"),
    ],
)
def test_a_faulty_contract_or_candidate_is_one_clear_message(
    name: str, code: int, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "my_faulty.py").write_text(FAULTY)
    assert main(["run", f"my_faulty:{name}", "--profile", "smoke"]) == code
    said = capsys.readouterr()
    assert message in said.out + said.err
    assert "Traceback" not in said.out + said.err


def test_a_module_that_leaves_as_it_is_imported_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "my_leaving.py").write_text("import sys\nsys.exit(0)\n")
    assert main(["run", "my_leaving:f"]) == Exit.USAGE
    assert "importing 'my_leaving' failed: SystemExit: 0" in capsys.readouterr().err


def test_a_file_that_hides_the_strategies_is_named(folder: Path) -> None:
    (folder / "strategies.py").write_text("")
    code, _, said = in_a_process(folder, "list")
    assert code == 4
    assert "strategies.py hides the package of this name; rename it" in said


def test_explaining_a_candidate_that_raises_is_a_failure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "my_faulty.py").write_text(FAULTY)
    sys.modules.pop("my_faulty", None)
    arguments = ["explain", "my_faulty:leaving", "--mesh", "X=2", "--dims", "B=2,D=3"]
    assert main(arguments) == Exit.FAILED
    assert "the candidate raised while it was traced: SystemExit" in capsys.readouterr().out


def test_an_error_of_our_own_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise KeyError("ours")

    monkeypatch.setattr("conformance.machine.machine", broken)
    assert main(["doctor"]) == Exit.INTERNAL == 3
    assert "internal error, not the candidate's" in capsys.readouterr().err
