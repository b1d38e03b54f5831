"""A report as a file: JSON or Markdown, by its suffix."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.report.data import report_data
from conformance.report.markdown import markdown
from conformance.verdict import Verdict

SUFFIXES = (".json", ".md")


def write_report(path: Path, verdicts: Sequence[Verdict], machine: Mapping[str, str]) -> None:
    """Writes all verdicts to `path`, which ends in one of `SUFFIXES`."""
    if path.suffix == ".json":
        text = json.dumps(report_data(verdicts, machine), indent=2) + "\n"
    else:
        text = markdown(verdicts, machine)
    path.write_text(text, encoding="utf-8")
