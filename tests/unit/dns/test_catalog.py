"""Catalog zones: which records name members."""

import pytest
from zone_text import zone_rrsets

from kdns.dns.zone.catalog import CatalogError, Member, parse_catalog

APEX = "@ 60 IN SOA ns. host. 1 2 3 4 5\n@ 60 IN NS invalid.\nversion 60 IN TXT 2\n"


def members(text: str) -> dict[str, Member]:
    return parse_catalog("cat.", zone_rrsets(APEX + text, "cat."))


def test_members_are_named_below_the_zones_of_the_catalog() -> None:
    named = 'a.zones 60 IN PTR One.example.\ngroup.a.zones 60 IN TXT "xy"\ncoo.a.zones 60 IN PTR other.\n'
    outside = "b.zones.dog. 60 IN PTR two.example.\nc.else 60 IN PTR three.example.\n"
    assert members(named + outside) == {"one.example.": Member("a", "one.example.", ["xy"], "other.")}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version 60 IN TXT 1\n", "exactly one version record"),
        ("a.zones 60 IN PTR x.\na.zones 60 IN PTR y.\n", "exactly one PTR record"),
        ("a.zones 60 IN PTR x.\nb.zones 60 IN PTR X.\n", "x. is listed by both a and b"),
        ("coo.a.zones 60 IN PTR x.\ncoo.a.zones 60 IN PTR y.\n", "more than one coo record"),
    ],
)
def test_an_ambiguous_catalog_is_refused(text: str, reason: str) -> None:
    with pytest.raises(CatalogError, match=reason):
        members(text)
