"""What a verdict depends on beside the code: the machine and the versions."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("jax", "jaxlib", "libtpu", "numpy", "hypothesis", "pytest")


def machine() -> Mapping[str, str]:
    """Python, processor and package versions, by name; starts nothing."""
    found = {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
