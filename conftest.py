"""Twelve simulated devices, strict dtype promotion, and the plugin, before JAX starts."""

import os

os.environ["JAX_NUM_CPU_DEVICES"] = "12"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"

pytest_plugins = ["conformance.plugin"]
