"""Simulated devices: a CPU that plays eight, so that a mesh can be tried without an accelerator.

The number is fixed when JAX starts, and JAX starts when a device is first asked for: set it in the
environment, or with `jax.config.update` before anything else.

Source: Scaling Book, "Programming TPUs in JAX", running on a laptop.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

from conformance import procedure

COUNT = "import jax; print(len(jax.devices('cpu')))"
BY_CONFIG = f"import jax; jax.config.update('jax_num_cpu_devices', 8); {COUNT}"
TOO_LATE = """
import jax
jax.devices()
try:
    jax.config.update('jax_num_cpu_devices', 8)
except RuntimeError:
    print('refused')
"""


def said_by_a_new_process(code: str, **environment: str) -> str:
    """What a Python process prints that starts with JAX's settings and no other."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_NUM", "XLA_FLAGS"))}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**bare, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@procedure
def simulated_devices() -> Iterator[str]:
    """Eight CPU devices, set before JAX starts; afterwards it is too late."""
    assert said_by_a_new_process(COUNT) == "1", "expected one device by itself"
    yield "a CPU is one device by itself"
    assert said_by_a_new_process(COUNT, JAX_NUM_CPU_DEVICES="8") == "8", "by environment"
    yield "JAX_NUM_CPU_DEVICES=8 makes it eight"
    assert said_by_a_new_process(BY_CONFIG) == "8", "by jax.config"
    yield "jax.config.update('jax_num_cpu_devices', 8) makes it eight"
    assert said_by_a_new_process(TOO_LATE) == "refused", "expected a refusal once JAX has started"
    yield "once JAX has started, the number is refused"
