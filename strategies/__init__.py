"""The sharding patterns of the Scaling Book's chapter on JAX, each with its contract."""
