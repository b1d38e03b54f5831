from conformance import parse_case
from conformance.checks import LAWS, Finding
from conformance.examine import Examination
from conformance.failures import Failure
from conformance.verdict import Count, judge

SMALL, LARGE = parse_case("X=2/B=2"), parse_case("X=3/B=9")


def test_counts_tell_how_often_something_was_compared() -> None:
    sliced = ("collectives", Finding(1, lowered=("as slice",)))
    verdict = judge(
        "me",
        "cpu",
        [
            Examination(
                SMALL,
                (sliced,),
                (
                    ("values", Finding(1, numbers={"exact": 2})),
                    ("replicas", Finding(0, reason="nothing is replicated")),
                ),
            ),
            Examination(
                LARGE, (sliced,), (("values", Finding(1, numbers={"bounded": 1, "exact": 1})),)
            ),
        ],
        [],
        1.5,
    )
    assert verdict.counts["values"] == Count(2, 0)
    assert verdict.counts["replicas"] == Count(0, 0, "nothing is replicated")
    assert verdict.counts["runs"] == Count(0, 0)
    assert list(verdict.counts) == list(LAWS)
    assert verdict.numbers == {"exact": 3, "bounded": 1}
    assert verdict.lowerings == {"as slice": 2}
    assert (verdict.word, verdict.ok) == ("lowered", True)


def test_what_a_program_shows_is_counted_once_for_all_its_data() -> None:
    wrong = ("collectives", Finding(1, ("off",)))
    other = parse_case("X=2/B=2/seed=1")
    examined = [Examination(case, (wrong,), ()) for case in (SMALL, other)]
    verdict = judge("me", "cpu", examined, [Failure("me", "collectives", SMALL, "cpu", "off")], 0)
    assert verdict.counts["collectives"] == Count(1, 1)
    assert (verdict.word, verdict.ok) == ("failed", False)


def test_a_verdict_never_passes_for_want_of_evidence() -> None:
    verdict = judge("me", "cpu", [], [], 0)
    assert (verdict.word, verdict.ok) == ("not run", False)
    at_a_kink = Examination(SMALL, (), (("values", Finding(0, reason="kink")),))
    verdict = judge("me", "cpu", [at_a_kink], [], 0)
    assert (verdict.word, verdict.ok) == ("not run", False)


def test_a_failure_is_a_report_with_a_line_to_paste() -> None:
    failure = Failure("mlp", "values", SMALL, "cpu", "out[0] is 1, expected 2")
    assert str(failure) == (
        "values: out[0] is 1, expected 2\n"
        "  mlp  case X=2/B=2/f32/auto  on cpu\n"
        "Replay: conformance replay 'mlp@X=2/B=2/f32/auto'"
    )
    verdict = judge("mlp", "cpu", [], [failure], 0)
    assert str(verdict) == f"mlp: failed (0 cases on cpu)\n\n{failure}"
