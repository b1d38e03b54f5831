"""Conformance of sharded JAX programs: contracts in the Scaling Book's notation, checked.

The public names load what they need when first used: importing this package starts nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.case import Case, parse_case
    from conformance.collective import (
        Collective,
        all_gather,
        all_reduce,
        all_to_all,
        permute,
        reduce_scatter,
    )
    from conformance.contracts import Contract, KnownFailure, contract, known_failure
    from conformance.engine import assert_conforms, verify
    from conformance.errors import BackendError, CaseError, ContractError, UsageError
    from conformance.failures import Failure
    from conformance.hlo import HloError
    from conformance.procedures import procedure
    from conformance.verdict import Verdict

__all__ = [
    "BackendError",
    "Case",
    "CaseError",
    "Collective",
    "Contract",
    "ContractError",
    "Failure",
    "HloError",
    "KnownFailure",
    "UsageError",
    "Verdict",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "assert_conforms",
    "contract",
    "known_failure",
    "parse_case",
    "permute",
    "procedure",
    "reduce_scatter",
    "verify",
]

_HOME = {
    "BackendError": "errors",
    "Case": "case",
    "CaseError": "errors",
    "Collective": "collective",
    "Contract": "contracts",
    "ContractError": "errors",
    "Failure": "failures",
    "HloError": "hlo",
    "KnownFailure": "contracts",
    "UsageError": "errors",
    "Verdict": "verdict",
    "all_gather": "collective",
    "all_reduce": "collective",
    "all_to_all": "collective",
    "assert_conforms": "engine",
    "contract": "contracts",
    "known_failure": "contracts",
    "parse_case": "case",
    "permute": "collective",
    "procedure": "procedures",
    "reduce_scatter": "collective",
    "verify": "engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
