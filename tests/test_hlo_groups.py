import pytest

from conformance.hlo.groups import parse_groups, parse_pairs

ROWS = ((0, 1, 2, 3), (4, 5, 6, 7))
COLUMNS = ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", ROWS),
        ("{}", (tuple(range(8)),)),
        ("[2,4]<=[8]", ROWS),
        ("[4,2]<=[2,4]T(1,0)", COLUMNS),
        ("[1,8]<=[8]", (tuple(range(8)),)),
        ("[2,4]<=[2,2,2]T(1,0,2)", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['x'=2,'y'=4] {'y'}", ROWS),
        ("mesh['x'=2,'y'=4] {'x'}", COLUMNS),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", ROWS),
        ("mesh['x'=2,'y'=4] {'x','y'}", (tuple(range(8)),)),
        ("mesh['x'=2,'y'=4] {'y','x'}", ((0, 4, 1, 5, 2, 6, 3, 7),)),
        # The devices of the mesh in another order: position (x, y) holds 2y + x.
        ("mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['x'=2,'y'=4], device_ids=([8]) {'y'}", ROWS),
        # A part of an axis: (1)2 is its major half, (2)2 its minor half.
        ("mesh['d'=4] {'d':(1)2}", ((0, 2), (1, 3))),
        ("mesh['d'=4] {'d':(2)2}", ((0, 1), (2, 3))),
        ("mesh['d'=8] {'d':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['x'=2,'d'=4] {'x','d':(1)2}", ((0, 2, 4, 6), (1, 3, 5, 7))),
    ],
)
def test_every_form_of_replica_groups_is_expanded(
    text: str, groups: tuple[tuple[int, ...], ...]
) -> None:
    assert parse_groups(text, 8) == groups


@pytest.mark.parametrize(
    "text",
    [
        *("", "{0,1}", "[2,4]", "mesh['x'=2] x", "[2,4]<=[8]T", "[2,4]<=[8]T(5,0)", "[3,4]<=[4]"),
        *("mesh['x'=8] {'z'}", "mesh['x'=8] {'x':(0)2}", "mesh['x'=2,'y'=4] {'x':(1)5}"),
    ],
)
def test_an_unknown_form_of_groups_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown form of replica groups"):
        parse_groups(text, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{}}", "empty or overlap"),
        ("{{0,1},{}}", "empty or overlap"),
        ("{{0,1},{1,2}}", "empty or overlap"),
        ("{{0,8}}", "beyond the 8 partitions"),
    ],
)
def test_groups_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_groups(text, 8)


def test_pairs_are_read() -> None:
    assert parse_pairs("{{0,1},{1,0}}") == ((0, 1), (1, 0))
    assert parse_pairs("{}") == ()
    with pytest.raises(ValueError, match="unknown form of source-target pairs"):
        parse_pairs("{0,1}")
