"""What is raised for text that cannot be read whole."""

from __future__ import annotations


class HloError(ValueError):
    """HLO text that is cut off or unknown: `reason`, and the `line` with its number."""

    def __init__(self, message: str, line_number: int = 0, line: str = "") -> None:
        self.reason = message
        self.line_number = line_number
        self.line = line
        where = f"line {line_number}: " if line_number else ""
        shown = line.strip()
        shown = f"\n  {shown[:200]}{'...' if len(shown) > 200 else ''}" if shown else ""
        super().__init__(f"HLO {where}{message}{shown}")
