import os
import subprocess
import sys

import pytest

from conformance import BackendError
from conformance.backends import SIMULATED_DEVICES, get_backend


def test_cpu_has_twelve_simulated_devices() -> None:
    backend = get_backend("cpu")
    assert len(backend.devices) == SIMULATED_DEVICES == 12
    backend.require(12)


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(BackendError, match="backend 'gpu' is not known; the backends are: cpu"):
        get_backend("gpu")


def test_too_few_devices_say_what_to_set() -> None:
    with pytest.raises(BackendError) as error:
        get_backend("cpu").require(16)
    assert str(error.value) == (
        "cpu: the mesh needs 16 devices; this process has 12. JAX had already started, or "
        "JAX_NUM_CPU_DEVICES says so: set JAX_NUM_CPU_DEVICES=16 before JAX starts, or give a "
        "smaller mesh"
    )


def in_a_process(code: str, **environment: str) -> str:
    bare = {k: v for k, v in os.environ.items() if k not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**bare, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


GET = "from conformance.backends import get_backend; print(len(get_backend('cpu').devices))"


def test_devices_are_simulated_unless_jax_has_started() -> None:
    assert in_a_process(GET) == "12\n"
    assert in_a_process(GET, JAX_NUM_CPU_DEVICES="4") == "4\n"
    assert in_a_process(GET, XLA_FLAGS="--xla_force_host_platform_device_count=6") == "6\n"


def test_one_device_that_was_asked_for_is_told_as_such() -> None:
    said = in_a_process(GET, JAX_NUM_CPU_DEVICES="1")
    assert "cpu: JAX_NUM_CPU_DEVICES=1 asks for 1 device" in said


def test_a_platform_without_cpu_is_told() -> None:
    assert "set JAX_PLATFORMS=cpu" in in_a_process(GET, JAX_PLATFORMS="tpu_that_is_not_there")


def test_one_device_proves_nothing() -> None:
    said = in_a_process(f"import jax; jax.devices(); {GET}")
    assert "JAX has already started with 1 device" in said
    assert "set JAX_NUM_CPU_DEVICES=12 before JAX starts" in said
