import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from conformance import parse_case
from conformance.meshes import build_mesh, partition_spec
from conformance.notation import parse_operand


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_a_mesh_has_the_axes_of_its_case(kind: str) -> None:
    mesh = build_mesh(parse_case(f"X=2,Y=3,+z=2/B=6/{kind}"), jax.devices())
    assert dict(mesh.shape) == {"X": 2, "Y": 3, "z": 2}
    assert {one.name.lower() for one in mesh.axis_types} == {kind}
    assert list(mesh.devices.flat) == jax.devices()[:12]


def test_an_axis_of_two_parts_is_two_mesh_axes() -> None:
    case = parse_case("X=2*3/B=6/names=1")
    mesh = build_mesh(case, jax.devices())
    assert dict(mesh.shape) == {"renamed0_0": 2, "renamed0_1": 3}


def test_an_order_is_a_shuffle_that_stays_the_same() -> None:
    devices = jax.devices()
    shuffled = build_mesh(parse_case("X=6/B=6/order=7"), devices)
    again = build_mesh(parse_case("X=6/B=6/order=7"), devices)
    assert list(shuffled.devices.flat) == list(again.devices.flat) != devices[:6]
    assert set(shuffled.devices.flat) == set(devices[:6])
    # Frozen: an id must mean the same devices for ever.
    assert [device.id for device in shuffled.devices.flat] == [3, 5, 0, 2, 1, 4]


@pytest.mark.parametrize(
    ("notation", "spec"),
    [
        ("x[B, D]", P(None, None)),
        ("x[B_X, D]", P("a", None)),
        ("x[B_Y, D]", P(("b", "c"), None)),
        ("x[B_{Y,X}, D]", P(("b", "c", "a"), None)),
        ("x[]", P()),
    ],
)
def test_a_spec_is_over_the_axes_that_are_bound(notation: str, spec: P) -> None:
    found = partition_spec(parse_operand(notation).spec, {"X": "a", "Y": ("b", "c")})
    assert found == spec


def test_an_unreduced_array_has_an_unreduced_spec() -> None:
    found = partition_spec(parse_operand("x[B]{U_Y}").spec, {"Y": ("b", "c")})
    assert found.unreduced == {"b", "c"}


def test_every_device_stands_once() -> None:
    mesh = build_mesh(parse_case("X=4,Y=3/B=12/order=3"), jax.devices())
    assert len(np.unique([device.id for device in mesh.devices.flat])) == 12
