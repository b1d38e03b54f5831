"""Where a candidate is compiled and run: simulated CPU devices, so far."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conformance.errors import BackendError

if TYPE_CHECKING:
    import jax

SIMULATED_DEVICES = 12
"""How many CPU devices the harness simulates: enough for 2x2x3, and for every axis of 2, 3 and 5
beside another one."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Devices to build meshes from, and how programs are compiled for them."""

    name: str
    devices: tuple[jax.Device, ...]
    compiler_options: tuple[tuple[str, Any], ...] = ()

    def require(self, devices: int) -> None:
        """Raises `BackendError` where a mesh of so many devices cannot be built."""
        if devices > len(self.devices):
            raise BackendError(
                f"{self.name}: the mesh needs {devices} devices; this process has "
                f"{len(self.devices)}. JAX had already started, or JAX_NUM_CPU_DEVICES says so: "
                f"set JAX_NUM_CPU_DEVICES={max(devices, SIMULATED_DEVICES)} before JAX starts, "
                "or give a smaller mesh"
            )


def get_backend(name: str) -> Backend:
    """The backend called `name`; starts it, with 12 simulated devices, unless it has started.

    Raises `BackendError` for an unknown name, and where JAX has started with one device only,
    on which no sharding can be seen to go wrong.
    """
    if name != "cpu":
        raise BackendError(f"backend {name!r} is not known; the backends are: cpu")
    import jax

    if jax.config.jax_num_cpu_devices < 0 and "device_count" not in os.environ.get("XLA_FLAGS", ""):
        # Once it has started it keeps the devices that it has.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", SIMULATED_DEVICES)
    try:
        devices = tuple(jax.devices("cpu"))
    except (RuntimeError, AssertionError) as error:
        raise BackendError(f"cpu: JAX does not start it: {error}; set JAX_PLATFORMS=cpu") from None
    if len(devices) < 2:
        asked = os.environ.get("JAX_NUM_CPU_DEVICES")
        why = f"JAX_NUM_CPU_DEVICES={asked} asks for" if asked else "JAX has already started with"
        raise BackendError(
            f"cpu: {why} 1 device, on which no sharding can be checked; "
            f"set JAX_NUM_CPU_DEVICES={SIMULATED_DEVICES} before JAX starts"
        )
    return Backend("cpu", devices, _CPU_OPTIONS)


# Both shorten compilation by a quarter and change no collective.
_CPU_OPTIONS = (
    ("xla_backend_optimization_level", 0),
    ("xla_llvm_disable_expensive_passes", True),
)
