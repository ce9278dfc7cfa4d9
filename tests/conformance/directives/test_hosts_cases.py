"""Recorded cases of `hosts`: whole replies, look-ups of names and addresses, and entries in the block."""

from collections.abc import Awaitable
from ipaddress import ip_address

from configured import configured
from dns_chain import Behind, FakeWorld, only
from harness import Case, check_cases, difference, files_of, recorded, reply_to, response_of, server_of, shown

from kdns.answers.chain import Reply
from kdns.dns.names import labels_of
from kdns.dns.types import AAAA, A
from kdns.errors import CorefileError
from kdns.net import packed, unpacked
from kdns.plugins.sources import hosts
from kdns.plugins.sources.hosts import HostTable, read_entries

EMPTY_NON_TERMINAL = "a name above a wildcard exists: NODATA, not NXDOMAIN (RFC 4592 §2.2.2)"
DEVIATIONS = {"hosts/TestLookupA/9": EMPTY_NON_TERMINAL}


async def reply(case: Case, files: dict[str, str]) -> str:
    """What differs in a reply; what the next directive says comes from `next`."""
    setup = FakeWorld(files=files)
    rcode = case["next"]["rcode"]
    behind = Behind(lambda _request: said(rcode))
    server = server_of(case["config"], setup, behind)
    got = shown(await reply_to(server, case["query"]))
    expected = {**case["expect"]}
    if bool(behind.requests) != (expected.pop("from", "") == "next"):
        return f"next was {'' if behind.requests else 'not '}asked"
    return difference({**case.get("observed", {}), **expected}, got, with_flags=True)


def said(rcode: str) -> Reply:
    return response_of({"rcode": rcode})


def lookup(case: Case, table: HostTable) -> str:
    """What differs in the addresses of a name, in whatever case."""
    for name in (case["name"], case["name"].lower(), case["name"].upper()):
        by_type = table.by_type(tuple(map(bytes.lower, labels_of(name)))) or {}
        found = {key: [unpacked(one) for one in by_type.get(rtype, ())] for key, rtype in (("v4", A), ("v6", AAAA))}
        if found != case["expect"]:
            return f"{name}: {found}"
    return ""


def reverse(case: Case, table: HostTable) -> str:
    """What differs in the names of an address."""
    labels = labels_of(ip_address(case["address"]).reverse_pointer)
    names = list(table.names_of(labels))
    return "" if names == case["expect"]["names"] else f"{names}"


def inline(case: Case) -> str:
    """What differs in the entries of a block."""
    expected = case["expect"]
    try:
        (server,) = configured(f". {{\n{case['config']}\n}}\n")
    except CorefileError as error:
        return "" if expected["error"] else str(error)
    config = only(server, hosts.DIRECTIVE)
    found = {unpacked(entry.address): list(entry.names) for entry in config.inline}
    if expected["error"] or found != expected["addr"] or list(config.fallthrough) != expected["fallthrough"]:
        return f"{found}, {config.fallthrough}"
    return ""


def wildcard(case: Case) -> str:
    """Whether the wildcard that stands in for a name is where it is expected."""
    owner, name = case["expect"]["out"], case["in"]
    table = HostTable(read_entries(f"192.0.2.1 {owner}"), (".",))
    found = (table.by_type(labels_of(name)) or {}).get(A, {})
    return "" if bool(owner) == (packed("192.0.2.1") in found) else f"{found}"


async def test_recorded_cases() -> None:
    content = recorded("hosts")

    def outcome(case: Case) -> str | Awaitable[str]:
        files = files_of(case, content)
        table = HostTable(read_entries(files.get("hosts.txt", "")), (".",))
        match case.get("op"):
            case "lookup":
                return lookup(case, table)
            case "reverse":
                return reverse(case, table)
            case "inline":
                return inline(case)
            case "func":
                return wildcard(case)
        return reply(case, files)

    await check_cases("hosts-cases.json", content["cases"], outcome, DEVIATIONS)
