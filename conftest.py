"""Twelve simulated devices, strict dtype promotion, and the plugin, before JAX starts."""

import os

from hypothesis import settings

os.environ["JAX_NUM_CPU_DEVICES"] = "12"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"

for profile, examples in {"smoke": 10, "default": 100, "nightly": 1000}.items():
    settings.register_profile(profile, max_examples=examples, deadline=None)

pytest_plugins = ["conformance.plugin"]
