"""Recorded cases of `auto`: which files are zones, and what is answered where none is."""

from collections.abc import Awaitable

import pytest
from dns_chain import Behind, FakeWorld
from harness import Case, cases_of, check_cases, difference, reply_to, server_of, shown

from kdns.answers.response import Response
from kdns.dns.types import NOERROR, SERVFAIL
from kdns.plugins.sources.auto import AutoConfig, AutoZones, files_by_zone, origin_of
from kdns.plugins.sources.zones.authority import ServedZone
from kdns.serverblocks.patterns import compiled

GO_ONLY = "auto_template_to_expand"
"""Makes a template of Go's regexp out of ours, which kdns fills in itself."""


def walked(case: Case) -> str:
    """What differs in the zones of a directory."""
    words = case["in"]["config"].split()
    pattern, template = words[words.index("DIR") + 1 :][:2]
    config = AutoConfig((".",), "DIR", pattern, template)
    paths = sorted(f"DIR/{name}" for name in case["in"]["files"])
    chosen, left_out = files_by_zone(paths, config, compiled(pattern))
    kept = case.get("expect", {}).get("kept")
    if kept and (chosen[case["expect"]["out"][0]] != f"DIR/{kept}" or len(left_out) != 1):
        return f"{chosen} {left_out}"
    return "" if sorted(chosen) == case["expect"]["out"] else f"{chosen}"


async def served(case: Case) -> str:
    """What differs in the reply where there is no content."""
    given = case["in"]
    setup = FakeWorld()
    behind = Behind(lambda _: Response(NOERROR))
    names = given.get("zones_empty") or (given["names"] if given["has_zone"] else [])
    origins = given.get("origins") or given["zones_empty"]
    server = server_of(f"auto {' '.join(origins)} {{\ndirectory DIR\n}}", setup, behind)
    (plugin, _) = server.blocks[0].chain.plugins
    assert isinstance(plugin, AutoZones)
    plugin.serve_zones(ServedZone(name) for name in names)
    reply = shown(await reply_to(server, {"name": given["name"], "type": given.get("type", "A")}))
    got = "passed" if behind.requests else reply["rcode"]
    expected = case["expect"]["out"]
    if isinstance(expected, dict):
        return "" if (got == "REFUSED") == expected["refused"] else f"{got}"
    return "" if got == expected else f"{got}"


async def test_recorded_cases() -> None:
    def outcome(case: Case) -> str | Awaitable[str] | None:
        if case["func"] == GO_ONLY:
            return None
        return walked(case) if case["func"] == "auto_walk" else served(case)

    cases = [*cases_of("functions", "auto/"), *cases_of("transfer-secondary-auto", "auto/")]
    await check_cases("functions- and transfer-secondary-auto-cases.json, auto", cases, outcome)


ZONE = "@ IN SOA ns admin {serial} 7200 3600 1209600 3600\n@ IN NS ns.example.\nwww IN A 127.0.0.1\n"


async def test_zones_come_and_go_with_their_files() -> None:
    setup = FakeWorld(files={"DIR/db.example.net": "nonsense"})
    server = server_of("auto {\ndirectory DIR\nreload 1s\n}", setup, Behind(lambda _: Response(SERVFAIL)))
    (plugin, _) = server.blocks[0].chain.plugins
    assert isinstance(plugin, AutoZones)
    query = {"name": "www.example.org.", "type": "A"}

    async def rcode() -> str:
        await setup.prepared()
        return str(shown(await reply_to(server, query))["rcode"])

    assert await rcode() == "REFUSED"
    setup.files["DIR/db.example.org"] = ZONE.format(serial=1)
    assert await rcode() == "NOERROR"
    setup.files["DIR/db.example.org"] = ZONE.format(serial=2).replace("www", "web")
    assert await rcode() == "NXDOMAIN"
    setup.files["DIR/db.example.org"] = "nonsense"
    assert await rcode() == "NXDOMAIN"
    del setup.files["DIR/db.example.org"]
    assert await rcode() == "REFUSED"
    assert difference({"rcode": "REFUSED"}, shown(await reply_to(server, query))) == ""


@pytest.mark.parametrize(
    ("path", "pattern", "template", "zone"),
    [
        ("a/db.Example.ORG", r"db\.(.*)", "{1}", "example.org."),
        ("a/b.zone", r"(.*)\.zone", "{1}.example.org", "b.example.org."),
        ("a/b", r"x", "{1}", None),
        ("a/b", r"b", "{1}", None),
        ("a/b", r"b", "{0}", "b."),
        ("a/b c", r"(.*)", "{1}", None),
    ],
)
def test_names_of_zones(path: str, pattern: str, template: str, zone: str | None) -> None:
    assert origin_of(path, compiled(pattern), template) == zone
