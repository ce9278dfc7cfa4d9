"""Recorded cases of `file`: look-ups, loading, reloading, and pure functions of zones."""

from collections.abc import Awaitable

from dns_chain import Behind, FakeWorld
from harness import Case, check_cases, difference, files_of, recorded, reply_to, server_of, shown

from kdns.answers.response import Response
from kdns.dns.names import labels_of, text_of
from kdns.dns.types import SERVFAIL, TXT
from kdns.dns.zone.difference import is_newer
from kdns.dns.zone.lookup import position_of, substituted
from kdns.dns.zone.zone import Zone
from kdns.dns.zonefile import parse_record, parse_zone
from kdns.errors import CorefileError
from kdns.plugins.sources.file import ZoneFiles, newer_version, zone_of
from kdns.plugins.sources.zones.authority import ServedZone

DEVIATIONS = {
    "file/TestLookupApex/0": "the apex exists: NODATA (RFC 2308 §2.2); CoreDNS answers NXDOMAIN, as its own test says",
    "file/TestLookup/4": "the name is spelled as in the question (dns0x20), not in lower case",
    "file/TestSVCBTargetNormalization/0": "names in rdata keep their case, as it is signed (RFC 3597 §7)",
    "file/TestLookupWildcard/5": "an answer from a wildcard has the proof that it was used rightly (RFC 4035 §3.1.3.3)",
    "file/TestParseNSEC3PARAM/0": "zones with NSEC3 are served (RFC 5155); CoreDNS refuses them",
}
GO_ONLY = {
    "replace_first_label_with_asterisk": "a step of CoreDNS's walk up the tree, which kdns walks down",
    "name_from_right": "a step of CoreDNS's walk down the tree",
}


def function(case: Case, content: Case) -> object:
    """What a pure function makes of a case's input, as the case writes it."""
    given = case["in"]
    match case["func"]:
        case "closest_encloser":
            zone = Zone("miek.nl.", parse_zone(files_of(case, content)["db"], "miek.nl."))
            return text_of(position_of(zone, labels_of(given), TXT).at)
        case "dname_substitute":
            names = (labels_of(given[key]) for key in ("qname", "owner", "target"))
            moved = substituted(*names)
            return text_of(moved) if moved else None
        case "canonical_escape":
            return parse_record(f"{given} 500 IN A 192.0.2.2").owner
        case "serial_less":
            return is_newer(given[1], given[0])
        case "should_transfer":
            serial = parse_record(given["primary_soa"]).rdata[0].serial  # type: ignore[union-attr] # an SOA
            return given["have_serial"] is None or is_newer(serial, given["have_serial"])
    raise AssertionError(case["func"])


def loaded(case: Case, content: Case) -> str:
    """What differs in how a file is taken."""
    files = FakeWorld(files=files_of(case, content))
    expected = case["expect"]
    try:
        zone = zone_of(files.read_text("db"), "db", case["origin"], files.read_text)
    except CorefileError as error:
        return "" if "error" in expected else str(error)
    missing = [name for name in expected.get("has", ()) if labels_of(name) not in zone.nodes]
    return f"without {missing}" if missing else "accepted" if "error" in expected else ""


async def reloaded(case: Case, content: Case) -> str:
    """What differs when a file has changed, or not."""
    files = files_of(case, content)
    if "loaded_serial" in case:
        held = ServedZone("miek.nl.")
        held.zone = zone_of(files["db"], "db", held.name, FakeWorld(files=files).read_text)
        version = newer_version("db", held, FakeWorld(files=files))
        return "" if held.zone.serial == case["loaded_serial"] and version is None else "taken again"
    setup = FakeWorld(files=files)
    server = server_of(case["config"], setup)
    await setup.prepared()
    (plugin,) = server.blocks[0].chain.plugins
    for step in case["steps"]:
        if "write" in step:
            setup.files |= step["write"]
            for held in plugin.zones:  # type: ignore[attr-defined] # the only directive is `file`
                version = newer_version("db", held, FakeWorld(files=setup.files))
                assert version
                plugin.renew(held, version.zone)  # type: ignore[attr-defined]
        zone = plugin.zones[0].zone  # type: ignore[attr-defined]
        count = sum(len(rrset.rdata) for rrset in zone.apex.rrsets.values())
        expected = step.get("expect_apex_records", count)
        if count != expected:
            return f"{count} records at the apex, recorded {expected}"
    return ""


async def looked_up(case: Case, content: Case) -> str:
    """What differs in the reply of a zone with a stub behind it."""
    setup = FakeWorld(files=files_of(case, content))
    server = server_of(case["config"], setup, Behind(lambda _: Response(SERVFAIL, plugin="behind")))
    await setup.prepared()
    limitless = {**case["query"], "proto": "tcp"}
    return difference(case["expect"], shown(await reply_to(server, limitless)))


async def given(case: Case) -> str:
    """What differs where a name that is no zone is to be transferred."""
    setup = FakeWorld(files={"db.miek.nl": "@ 60 IN SOA ns admin 1 1 1 1 1\nwww 60 IN A 192.0.2.1\n"})
    (plugin,) = server_of(case["config"], setup).blocks[0].chain.plugins
    assert isinstance(plugin, ZoneFiles)
    await setup.prepared()
    assert plugin.transfer("miek.nl.", None)
    return "transferred" if plugin.transfer(case["zone"], None) else ""


async def test_recorded_cases() -> None:
    content = recorded("file")

    def outcome(case: Case) -> str | Awaitable[str] | None:
        match case.get("op"):
            case None:
                return looked_up(case, content)
            case "func" if case["func"] not in {*GO_ONLY, "notify_accepted"}:
                got = function(case, content)
                return "" if got == case["expect"]["out"] else f"{got}"
            case "load":
                return loaded(case, content)
            case "reload":
                return reloaded(case, content)
            case "transfer_out":
                return given(case)
        return None  # for test_secondary.py, or of Go only

    await check_cases("file-cases.json", content["cases"], outcome, DEVIATIONS)
