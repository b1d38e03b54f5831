"""Candidates that hang, abort or leave: each is reported, and the others go on."""

from pathlib import Path

import pytest

from conformance import UsageError
from conformance.worker import Task, verify_apart

LIKE = "tensor_parallel.mlp_shard_map"
BAD = """\
import os
import time

import jax
from jax.sharding import PartitionSpec as P


def hangs(x, w_up, w_down):
    time.sleep(1000)


def dies(x, w_up, w_down):
    os.kill(os.getpid(), 11)


def leaves(x, w_up, w_down):
    print("this goes nowhere")
    os.write(2, b"a last word\\n")
    os._exit(7)


def deadlocks(x, w_up, w_down, *, dp="dp", tp="tp"):
    def local(x, w_up, w_down):
        out = jax.nn.relu(x @ w_up) @ w_down
        first = jax.lax.axis_index(tp) == 0
        return jax.lax.cond(first, lambda o: o, lambda o: jax.lax.psum(o, tp), out)

    specs = P(dp, None), P(None, tp), P(tp, None)
    return jax.shard_map(local, in_specs=specs, out_specs=P(dp, None), check_vma=False)(
        x, w_up, w_down
    )


def raises_usage(x, w_up):
    return x
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_bad.py").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def task(name: str, like: str | None = LIKE) -> Task:
    return Task(name, like, "cpu", profile="smoke")


def test_each_is_reported_with_its_case_and_the_others_go_on() -> None:
    names = ["my_bad:hangs", "my_bad:dies", "my_bad:leaves"]
    seen: list[str] = []
    verdicts = verify_apart(
        [*map(task, names), task(LIKE, None)], processes=2, seconds=15, progress=seen.append
    )
    assert [verdict.candidate for verdict in verdicts] == [*(f"{n}~{LIKE}" for n in names), LIKE]
    hung, died, left, sound = verdicts
    assert hung.failures[0].message == "did not return within 15 s"
    assert died.failures[0].message.startswith("ended its process (SIGSEGV)")
    assert left.failures[0].message == "ended its process (exit code 7): a last word"
    for verdict in (hung, died, left):
        assert [failure.check for failure in verdict.failures] == ["runs"]
        assert str(verdict.failures[0].case).startswith("dp=2,tp=3/")
        assert verdict.word == "failed"
    assert sound.ok
    assert any(line.startswith(f"{LIKE}  dp=2,tp=3/") for line in seen)


def test_a_deadlock_in_a_collective_is_reported() -> None:
    (verdict,) = verify_apart([task("my_bad:deadlocks")], processes=1, seconds=45)
    (failure,) = verdict.failures
    assert failure.check == "runs"
    assert failure.message.startswith("ended its process (SIGABRT)")


def test_one_case_is_verified_alone() -> None:
    (verdict,) = verify_apart(
        [Task(LIKE, None, "cpu", case="dp=2,tp=2/B=2,D=3,F=4")], processes=1, seconds=30
    )
    assert (verdict.cases, verdict.ok) == (1, True)


@pytest.mark.parametrize(
    ("name", "like", "message"),
    [
        ("my_bad:nothing", LIKE, "module 'my_bad' has no 'nothing'"),
        ("my_bad:dies", None, "my_bad:dies has no contract"),
        ("my_bad:raises_usage", LIKE, "raises_usage takes 2 arrays"),
    ],
)
def test_wrong_usage_reaches_the_parent(name: str, like: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        verify_apart([task(name, like)], processes=1, seconds=30)
