"""Writes the compiled texts in `hlo/` that the reader is tested on: run it under each JAX version.

    python tests/data/make_hlo.py                       # simulated CPU devices
    python tests/data/make_hlo.py tpu:v5e:2x4           # compiled for TPUs that are not there

The second form needs `jax[tpu]`. A text goes to `hlo/BACKEND-JAX/PROGRAM.hlo`, with the paths of
this machine cut down to what follows the checkout or site-packages.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["JAX_NUM_CPU_DEVICES"] = "12"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# A TPU compiler without a TPU: no question to a metadata server, no lock, no chatter.
for name, value in {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}.items():
    os.environ.setdefault(name, value)

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

HERE = Path(__file__).resolve().parent
Program = tuple[Callable[..., Any], list[tuple[tuple[int, ...], Any, P]], dict[str, int]]


def programs(d: int) -> Iterator[tuple[str, Program]]:
    """Name, function, arguments and mesh; `d` is the size of a shard."""
    mesh = {"X": 2, "Y": 4}
    x = ((2 * d, 4 * d), jnp.float32, P("X", "Y"))
    w = ((4 * d, 4 * d), jnp.float32, P("Y", None))
    half_x, half_w = (x[0], jnp.bfloat16, x[2]), (w[0], jnp.bfloat16, w[2])

    def pinned(*spec: str | None) -> Callable[..., Any]:
        return lambda x, w: jax.lax.with_sharding_constraint(x @ w, P(*spec))

    yield "matmul_all_reduce", (pinned("X", None), [x, w], mesh)
    yield "matmul_reduce_scatter", (pinned("X", "Y"), [x, w], mesh)
    yield "matmul_reduce_scatter_bf16", (pinned("X", "Y"), [half_x, half_w], mesh)

    def mlp(x: Any, up: Any, down: Any) -> Any:
        return jax.lax.with_sharding_constraint(jax.nn.relu(x @ up) @ down, P("X", None))

    def mlp_gradient(c: Any, *arguments: Any) -> Any:
        return jax.vjp(mlp, *arguments)[1](c)

    layer = [
        ((2 * d, 2 * d), jnp.float32, P("X", None)),
        ((2 * d, 4 * d), jnp.float32, P(None, "Y")),
        ((4 * d, 2 * d), jnp.float32, P("Y", None)),
    ]
    yield "mlp", (mlp, layer, mesh)
    yield "mlp_gradient", (mlp_gradient, [layer[0], *layer], mesh)

    def gathers_twice(c: Any, x: Any, w: Any) -> Any:
        pull_back = jax.vjp(pinned("X", "Y"), x, w)[1]
        pinned_to = P("X", "Y"), P("Y", None)
        return [
            jax.lax.with_sharding_constraint(one, spec)
            for one, spec in zip(pull_back(c), pinned_to, strict=True)
        ]

    if jax.default_backend() == "cpu" and d <= 8:
        thin = [
            ((2 * d, 3 * d), jnp.float32, P("X", "Y")),
            ((2 * d, 4), jnp.float32, P("X", "Y")),
            ((4, 3 * d), jnp.float32, P("Y", None)),
        ]
        yield "gathers_twice", (gathers_twice, thin, mesh)

    def both_axes(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x.sum(), P())

    yield "sum_over_both_axes", (both_axes, [x], mesh)

    def local(function: Callable[..., Any], out: P) -> Callable[..., Any]:
        return jax.shard_map(function, in_specs=P("X", "Y"), out_specs=out, check_vma=False)

    def every_kind(x: Any) -> Any:
        y = jax.lax.ppermute(x, "Y", [(j, (j - 1) % 4) for j in range(4)])
        y = jax.lax.all_to_all(y, "Y", 1, 0, tiled=True)
        y = jax.lax.all_gather(y, ("Y", "X"), axis=1, tiled=True)
        y = jax.lax.psum_scatter(y, "X", scatter_dimension=0, tiled=True)
        return jax.lax.pmax(y, "Y")

    yield "every_kind", (local(every_kind, P("X", None)), [x], mesh)

    def two_sums(x: Any) -> Any:
        return jax.lax.psum(x, "Y"), jax.lax.psum(jnp.sin(x).sum(0), "Y"), jax.lax.psum(x, "X")

    yield "two_sums", (local(two_sums, (P("X"), P(), P(None, "Y"))), [x], mesh)

    def step(_: Any, x: Any) -> Any:
        return jax.lax.ppermute(jnp.sin(x), "Y", [(j, (j + 1) % 4) for j in range(4)])

    def nested(x: Any) -> Any:
        outer = lambda i, x: jax.lax.psum(jax.lax.fori_loop(0, 3, step, x), "X") / 2
        return jax.lax.fori_loop(0, 5, outer, x)

    yield "nested_loops", (local(nested, P("X", "Y")), [x], mesh)

    def until_small(x: Any) -> Any:
        more = lambda x: jax.lax.pmax(jnp.abs(x).max(), ("X", "Y")) > 1
        return jax.lax.while_loop(more, lambda x: step(0, x) / 2, x)

    yield "until_small", (local(until_small, P("X", "Y")), [x], mesh)

    def branch(x: Any) -> Any:
        first = jax.lax.pmax(x[0, 0], ("X", "Y"))
        return jax.lax.cond(first > 0, lambda x: jax.lax.psum(x, "Y"), jnp.cos, x)

    yield "branch", (local(branch, P("X", "Y")), [x], mesh)

    if jax.default_backend() == "cpu" and d <= 8:
        cube = {"a": 2, "b": 3, "c": 2}
        y = ((2 * d, 6 * d, 2 * d), jnp.float32, P("a", "b", "c"))
        move = lambda x: jax.lax.with_sharding_constraint(x, P("c", ("b", "a"), None))
        yield "reshard", (move, [y], cube)
        gather = lambda x: jax.lax.with_sharding_constraint(x * 2, P("a", None, "c"))
        yield "gather_middle_axis", (gather, [y], cube)


def devices(backend: str, count: int) -> Any:
    if backend == "cpu":
        return jax.devices("cpu")[:count]
    from jax.experimental import topologies

    _, generation, shape = backend.split(":")
    name = f"{generation}:{shape}"
    return topologies.get_topology_desc(platform="tpu", topology_name=name).devices


def compiled_text(program: Program, backend: str) -> str:
    function, arguments, shape = program
    count = 1
    for size in shape.values():
        count *= size
    auto = (jax.sharding.AxisType.Auto,) * len(shape)
    mesh = jax.make_mesh(tuple(shape.values()), tuple(shape), auto, devices=devices(backend, count))
    with jax.set_mesh(mesh):
        placed = [
            jax.ShapeDtypeStruct(size, dtype, sharding=jax.sharding.NamedSharding(mesh, spec))
            for size, dtype, spec in arguments
        ]
        return jax.jit(function).lower(*placed).compile().as_text()


def main(backend: str) -> None:
    folder = HERE / "hlo" / f"{backend.replace(':', '-')}-{jax.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in programs(4 if backend == "cpu" else 128):
        text = compiled_text(program, backend)
        text = text.replace(str(HERE.parent.parent) + "/", "")
        text = re.sub(r'"[^"\n]*/site-packages/', '"', text)
        (folder / f"{name}.hlo").write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:] or ["cpu"])
