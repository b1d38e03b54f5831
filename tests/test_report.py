import io
import json

from rich.console import Console

from conformance import parse_case
from conformance.checks import Finding
from conformance.examine import Examination
from conformance.failures import Failure
from conformance.machine import machine
from conformance.report.data import VERSION, from_data, report_data, to_data
from conformance.report.markdown import markdown
from conformance.report.terminal import print_verdicts, summary
from conformance.verdict import Verdict, judge

CASE = parse_case("X=2/B=2")


def judged(name: str, *findings: tuple[str, Finding]) -> Verdict:
    failures = [
        Failure(name, check, CASE, "cpu", "; ".join(finding.problems))
        for check, finding in findings
        if finding.problems
    ]
    return judge(name, "cpu", [Examination(CASE, (), findings)], failures, 0.25)


GOOD = judged("good", ("values", Finding(1, numbers={"exact": 2})), ("replicas", Finding(0)))
SLICED = judged("sliced", ("collectives", Finding(1, lowered=("as a slice: 2.0x",))))
BAD = judged("bad[1]", ("values", Finding(1, ("off",), {"bounded": 1})))


def printed(*verdicts: Verdict) -> str:
    console = Console(file=io.StringIO(), width=160, highlight=False)
    print_verdicts(verdicts, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def row(text: str, name: str) -> list[str]:
    return next(line for line in text.splitlines() if line.strip().startswith(name)).split()


def test_the_table_shows_what_was_compared_and_what_failed() -> None:
    text = printed(GOOD, SLICED, BAD)
    assert row(text, "strategy") == [
        *("strategy", "backend", "cases", "runs", "values"),
        *("out_sharding", "replicas", "gradients", "retraces"),
        *("collectives", "wire", "verdict"),
    ]
    assert row(text, "good") == ["good", "cpu", "1", "-", "1/0", *"------", "conforms"]
    assert row(text, "sliced")[-1] == "lowered"
    assert row(text, "bad[1]") == ["bad[1]", "cpu", "1", "-", "1/1", *"------", "failed"]


def test_lowerings_and_failures_are_told_in_full() -> None:
    text = printed(GOOD, SLICED, BAD)
    assert "sliced: as a slice: 2.0x  (1 programs)" in text
    assert "FAILED values: off" in text
    assert "Replay: conformance replay 'bad[1]@X=2/B=2/f32/auto'" in text


def test_the_last_line_sums_up() -> None:
    assert printed(GOOD, BAD).splitlines()[-1] == summary([GOOD, BAD])
    assert summary([GOOD, SLICED, BAD]) == (
        "1 conforms, 1 lowered, 1 failed; arrays compared: 1 bounded, 2 exact; 0.8 s"
    )
    assert summary([]).startswith("nothing ran; arrays compared: none")


def test_a_verdict_survives_its_form_as_data() -> None:
    for verdict in (GOOD, SLICED, BAD):
        data = json.loads(json.dumps(to_data(verdict)))
        assert from_data(data) == verdict
    assert to_data(BAD)["failures"] == [
        {
            "check": "values",
            "case": "X=2/B=2/f32/auto",
            "message": "off",
            "replay": "conformance replay 'bad[1]@X=2/B=2/f32/auto'",
        }
    ]


def test_a_report_names_its_version_and_the_machine() -> None:
    data = report_data([GOOD], machine())
    assert data["version"] == VERSION == 1
    assert {"python", "machine", "jax", "numpy"} <= set(data["machine"])
    assert [one["verdict"] for one in data["verdicts"]] == ["conforms"]


def test_a_page_has_the_table_the_lowerings_and_the_failures() -> None:
    page = markdown([GOOD, SLICED, BAD], {"jax": "1.2"})
    assert "| good | cpu | 1 | - | 1/0 | - | - | - | - | - | - | conforms |" in page
    assert "- sliced: as a slice: 2.0x (1 programs)" in page
    assert "## bad[1]: values\n\n```\nvalues: off\n" in page
    assert page.endswith("jax 1.2\n")
