"""The pytest plugin: the command line's options, with the prefix `--conformance-`.

It is loaded in every project that has this package installed, so it imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("conformance", "conformance of sharded JAX programs")
    group.addoption(
        "--conformance-profile",
        choices=("smoke", "default", "nightly"),
        default="default",
        help="how many cases are drawn",
    )
    group.addoption("--conformance-seed", type=int, default=0, help="of the cases that are drawn")
