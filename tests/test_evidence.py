"""Every fault is caught by the check that it names; no sound program raises an alarm."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conformance import UsageError
from conformance.backends import get_backend
from conformance.evidence import Seen, collect, fault, see, summary
from conformance.examine import Examiner
from strategies.tensor_parallel import mlp

SPECIMENS = {specimen.name: specimen for specimen in collect(Path(__file__).parent)}


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_specimen_is_seen_for_what_it_is(name: str) -> None:
    specimen = SPECIMENS[name]
    seen = see(specimen, Examiner(specimen.candidate, get_backend("cpu")))
    assert not seen.missed, f"{specimen.check} did not fire"
    assert not seen.false_alarms, f"{sorted(seen.false_alarms)}: {seen.message}"
    # A fault that takes many cases to show would be missed by luck.
    assert seen.needed is None or seen.needed <= 10


def test_there_is_enough_of_it() -> None:
    families = Counter(specimen.family for specimen in SPECIMENS.values())
    assert families["sound"] >= 15
    assert sum(families.values()) - families["sound"] >= 40
    assert len(families) >= 15
    checks = {specimen.check for specimen in SPECIMENS.values()} - {None}
    assert checks >= {"runs", "values", "out_sharding", "replicas", "gradients", "collectives"}


def test_the_table_counts_by_family() -> None:
    wrong = SPECIMENS["summed_over_the_batch_axis"]
    sound = SPECIMENS["einsums"]
    head, *rows = summary(
        [
            Seen(wrong, frozenset({"collectives"}), 1, ""),
            Seen(wrong, frozenset({"runs"}), None, ""),
            Seen(sound, frozenset({"values"}), None, ""),
        ]
    )
    assert head[0] == "family"
    assert rows == [
        ("wrong axis", "2", "collectives", "1", "1", "median 1, most 1"),
        ("sound", "1", "-", "0", "1", "-"),
    ]


def test_a_check_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="fault: speed are no checks"):
        fault("slow", "speed", mlp)


def test_a_folder_without_evidence_is_refused(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(UsageError, match=r"expected faults/\*.py and sound/\*.py there"):
        collect(tmp_path)
