"""Who may import whom, read from the source; and what importing a package starts."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    path for package in ("conformance", "strategies") for path in (ROOT / package).rglob("*.py")
)
PURE = ("hlo", "notation", "collective", "expressions", "errors", "report")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports_package(path: Path, package: str) -> bool:
    return any(f"{one}.".startswith(f"{package}.") for one in imported(path))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_what_it_may(path: Path) -> None:
    package, _, rest = name_of(path).partition(".")
    part = rest.partition(".")[0]
    for private in ("jax._src", "jaxlib"):
        assert not imports_package(path, private)
    if package == "strategies":
        allowed = {"jax", "conformance", "strategies", *sys.stdlib_module_names}
        assert {one.partition(".")[0] for one in imported(path)} <= allowed
        assert not any(one.startswith("conformance.") for one in imported(path))
        assert len(path.read_text().splitlines()) < 150
        return
    assert not imports_package(path, "strategies")
    if part in PURE:
        assert not imports_package(path, "jax")
    if imports_package(path, "hypothesis"):
        assert part in ("generators", "engine")
    if imports_package(path, "pytest"):
        assert part in ("plugin", "cli")


def in_a_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_importing_the_strategies_starts_no_backend_and_pulls_in_no_test_library() -> None:
    code = (
        "import sys, pkgutil, importlib, strategies\n"
        "for info in pkgutil.iter_modules(strategies.__path__):\n"
        "    importlib.import_module(f'strategies.{info.name}')\n"
        "print('hypothesis' in sys.modules, 'pytest' in sys.modules)\n"
        "import jax\n"
        "jax.config.update('jax_num_cpu_devices', 5)\n"
        "jax.config.update('jax_platforms', 'cpu')\n"
        "print(len(jax.devices()))"
    )
    # The device count can still be set, so no backend had started.
    assert in_a_process(code).splitlines() == ["False False", "5"]


def test_importing_the_harness_and_its_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, conformance, conformance.cli\n"
        "print([m for m in ('jax', 'numpy', 'hypothesis', 'rich', 'pytest') if m in sys.modules])"
    )
    assert in_a_process(code) == "[]\n"
    assert in_a_process(code.replace("cli", "plugin")) == "['pytest']\n"


def test_every_public_name_is_there() -> None:
    import conformance

    for name in conformance.__all__:
        assert getattr(conformance, name) is not None
    assert set(conformance.__all__) <= set(dir(conformance))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = conformance.nothing
