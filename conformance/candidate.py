"""The function under test, with the contract that it is held to, loaded by name or given."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from conformance.contracts import Contract, axis_keywords
from conformance.errors import UsageError
from conformance.procedures import Procedure

STRATEGIES = "strategies"
"""The package whose modules are searched for names that have no colon."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A function under test and its contract; raises `ContractError` where they do not fit."""

    name: str
    function: Callable[..., Any]
    contract: Contract

    def __post_init__(self) -> None:
        axis_keywords(self.function, self.contract)

    @property
    def renames(self) -> bool:
        """Whether the function takes its axis names as keywords, so that they can be renamed."""
        return bool(axis_keywords(self.function, self.contract))

    def keywords(
        self, bindings: Mapping[str, str | tuple[str, ...]]
    ) -> dict[str, str | tuple[str, ...]]:
        """The mesh axes that the function is told to use."""
        return {axis: bindings[axis] for axis in axis_keywords(self.function, self.contract)}


def as_candidate(
    function: Callable[..., Any], contract: Any = None, name: str | None = None
) -> Candidate:
    """Pairs a function with a contract: its own, a `Contract`, or that of another strategy."""
    if not callable(function):
        raise UsageError(f"candidate: expected a function; given {function!r}")
    if name is None:
        name = _name(function)
        if contract is not None and hasattr(contract, "__qualname__"):
            name = f"{name}~{_name(contract)}"
    held = function if contract is None else contract
    found = held if isinstance(held, Contract) else getattr(held, "contract", None)
    if not isinstance(found, Contract):
        if contract is not None:
            raise UsageError(
                f"contract: expected a Contract or a function that has one; given {contract!r}"
            )
        raise UsageError(
            f"{name} has no contract: decorate it with @conformance.contract(...), or name a "
            "strategy that it should behave like (contract=STRATEGY; --like STRATEGY)"
        )
    return Candidate(name, function, found)


def _name(function: Callable[..., Any]) -> str:
    """What `load` takes to find the function again, where it is a module's own."""
    module, name = function.__module__, getattr(function, "__qualname__", repr(function))
    if module.startswith(f"{STRATEGIES}."):
        return f"{module.removeprefix(f'{STRATEGIES}.')}.{name}"
    return f"{module}:{name}"


def load(name: str, like: str | None = None) -> Candidate:
    """Loads `package.module:function`, or a strategy such as `tensor_parallel.mlp`.

    Raises `UsageError` where nothing of that name is found or its module does not import.
    """
    contract = None if like is None else load(like).contract
    module_name, colon, attribute = name.partition(":")
    shown = name if like is None else f"{name}~{like}"
    if not colon:
        found = _load_strategy(name)
        return found if contract is None else Candidate(shown, found.function, contract)
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = _import(module_name, name)
    function = getattr(module, attribute, None)
    if function is None:
        raise UsageError(f"{name}: module {module_name!r} has no {attribute!r}")
    return as_candidate(function, contract, shown)


def strategies() -> Iterator[Candidate]:
    """Every strategy of the package `strategies`, in the order of modules and definitions."""
    return (entry for entry in entries() if isinstance(entry, Candidate))


def entries() -> Iterator[Candidate | Procedure]:
    """Strategies and procedures of the package `strategies`."""
    package = _import(STRATEGIES, STRATEGIES)
    if not hasattr(package, "__path__"):
        raise UsageError(
            f"{package.__file__} hides the package of this name; rename it, or run elsewhere"
        )
    for info in pkgutil.iter_modules(package.__path__):
        module = _import(f"{STRATEGIES}.{info.name}", info.name)
        for attribute, value in vars(module).items():
            name = f"{info.name}.{attribute}"
            if isinstance(getattr(value, "contract", None), Contract):
                yield Candidate(name, value, value.contract)
            elif getattr(value, "procedure", False) is True:
                yield Procedure(name, value)


def find(name: str, like: str | None = None) -> Candidate | Procedure:
    """What `load` gives, or a procedure of the package `strategies`."""
    if ":" not in name and like is None:
        wanted = name.removeprefix(f"{STRATEGIES}.")
        for entry in entries():
            if isinstance(entry, Procedure) and entry.name == wanted:
                return entry
    return load(name, like)


def _load_strategy(name: str) -> Candidate:
    wanted = name.removeprefix(f"{STRATEGIES}.")
    known = list(strategies())
    for candidate in known:
        if candidate.name == wanted:
            return candidate
    raise UsageError(
        f"unknown strategy {name!r}; the strategies are {', '.join(c.name for c in known)}; "
        "a function of your own is package.module:function"
    )


def _import(module: str, asked: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{asked}: importing {module!r} failed: {type(error).__name__}: {error}"
        ) from error
