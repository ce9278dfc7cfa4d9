"""ZoneSet: which of some zones a name is at or below."""

import pytest

from kdns.dns.names import ZoneSet, labels_of

ZONES = ZoneSet(["org.", "a.org.", "x.y.a.org.", "net."])


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("a.org.", "a.org."),
        ("b.a.org.", "a.org."),
        ("y.a.org.", "a.org."),
        ("z.x.y.a.org.", "x.y.a.org."),
        ("aa.org.", "org."),
        ("net.", "net."),
        ("com.", None),
        ("xnet.", None),
        (".", None),
    ],
)
def test_the_closest_zone(name: str, closest: str | None) -> None:
    labels = labels_of(name)
    assert ZONES.closest(labels) == (None if closest is None else labels_of(closest))
    assert (labels in ZONES) is (closest is not None)


def test_every_name_is_below_the_root() -> None:
    assert all(labels_of(name) in ZoneSet(["."]) for name in (".", "org.", "a.org."))
    assert labels_of("org.") not in ZoneSet([])


def test_zones_keep_their_order_and_stand_once() -> None:
    assert [*ZoneSet(["b.", "a.", "b."])] == [(b"b",), (b"a",)]
    assert len(ZoneSet(["b.", "a.", "b."])) == 2
