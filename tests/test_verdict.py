from conformance import parse_case
from conformance.checks import LAWS, Finding
from conformance.failures import Failure
from conformance.verdict import Count, judge

SMALL, LARGE = parse_case("X=2/B=2"), parse_case("X=3/B=9")


def test_counts_tell_how_often_something_was_compared() -> None:
    findings = [
        (SMALL, "values", Finding(1, numbers={"exact": 2})),
        (LARGE, "values", Finding(1, numbers={"bounded": 1, "exact": 1})),
        (SMALL, "replicas", Finding(0, reason="nothing is replicated")),
        (SMALL, "collectives", Finding(1, lowered=("as slice",))),
        (LARGE, "collectives", Finding(1, lowered=("as slice",))),
    ]
    verdict = judge("me", "cpu", [SMALL, LARGE], findings, 1.5)
    assert verdict.counts["values"] == Count(2, 0)
    assert verdict.counts["replicas"] == Count(0, 0, "nothing is replicated")
    assert verdict.counts["runs"] == Count(0, 0)
    assert list(verdict.counts) == list(LAWS)
    assert verdict.numbers == {"exact": 3, "bounded": 1}
    assert verdict.lowerings == {"as slice": 2}
    assert (verdict.word, verdict.ok) == ("lowered", True)


def test_of_each_failed_check_the_smallest_case_is_kept() -> None:
    findings = [
        (LARGE, "values", Finding(1, ("off",))),
        (SMALL, "values", Finding(1, ("off", "again"))),
        (LARGE, "replicas", Finding(1, ("differ",))),
    ]
    verdict = judge("me", "cpu", [SMALL, LARGE], findings, 0)
    assert verdict.failures == (
        Failure("me", "values", SMALL, "cpu", "off; again"),
        Failure("me", "replicas", LARGE, "cpu", "differ"),
    )
    assert verdict.counts["values"] == Count(2, 2)
    assert (verdict.word, verdict.ok) == ("failed", False)


def test_a_verdict_never_passes_for_want_of_evidence() -> None:
    verdict = judge("me", "cpu", [], [], 0)
    assert (verdict.word, verdict.ok) == ("not run", False)
    verdict = judge("me", "cpu", [SMALL], [(SMALL, "values", Finding(0, reason="kink"))], 0)
    assert (verdict.word, verdict.ok) == ("not run", False)


def test_a_failure_is_a_report_with_a_line_to_paste() -> None:
    failure = Failure("mlp", "values", SMALL, "cpu", "out[0] is 1, expected 2")
    assert str(failure) == (
        "values: out[0] is 1, expected 2\n"
        "  mlp  case X=2/B=2/f32/auto  on cpu\n"
        "Replay: conformance replay 'mlp@X=2/B=2/f32/auto'"
    )
    verdict = judge("mlp", "cpu", [SMALL], [(SMALL, "values", Finding(1, ("off",)))], 0)
    assert str(verdict).startswith("mlp: failed (1 cases on cpu)\n\nvalues: off\n")
