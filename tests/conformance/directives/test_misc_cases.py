"""misc-cases.json, but for the directives that have a file of their own: a check for each directive."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from dns_chain import Behind, FakeWorld, plugin_of, read
from harness import (
    FLAGS,
    Case,
    cases_of,
    check_cases,
    client_of,
    difference,
    packet_of,
    reply_to,
    response_of,
    server_of,
    shown,
)

from kdns.answers.chain import UNHANDLED, Block, Chain, Reply, Request
from kdns.answers.response import Response
from kdns.corefile.address import zone_addresses
from kdns.corefile.lexer import Token
from kdns.dns.names import is_below, labels_of
from kdns.dns.types import NOERROR, NXDOMAIN, rcode_number
from kdns.dns.zonefile import parse_record
from kdns.dnsserver.blocks import Server, WireResponse
from kdns.errors import CorefileError
from kdns.plugins.guards.loop import Loop
from kdns.plugins.guards.view import ViewPlugin
from kdns.plugins.observers.metadata import is_label
from kdns.serverblocks.directive import NoConfig

NO_ADDRESS = "a client without an address gets no AAAA record without one"
DEVIATIONS = {
    "loop/TestParseServerBlockKeys/1": "a scheme that there is not is refused; CoreDNS takes its zone for the root",
    "minimal/TestMinimizeResponse/2": "recorded of SERVFAIL, which the case does not say",
    "whoami/TestWhoami/2": NO_ADDRESS,
    "whoami/TestWhoami/3": NO_ADDRESS,
}
"""Case → why kdns differs."""


async def replied(case: Case) -> str:
    """What differs in the reply, or whether the next directive was asked."""
    behind = Behind(lambda _request: response_of(case.get("next", {})))
    server = server_of(case["config"], FakeWorld(), behind)
    wire = await reply_to(server, case["query"])
    expected = case["expect"]
    if "passed" in expected:
        return "" if bool(behind.requests) == expected["passed"] else "the next directive was not asked"
    got = shown(wire)
    if options := expected.get("edns_options"):
        return "" if got["options"] == options else f"options {got['options']}"
    try:
        return difference(expected, got, with_flags=True)
    except ValueError as error:
        return str(error)  # a recorded record is none


async def header(case: Case) -> str:
    """What differs in the flags that the next directive and the client see."""
    behind = Behind(lambda _request: Response())
    server = server_of(case["config"], FakeWorld(), behind)
    wire = await reply_to(server, {"name": "example.org.", "type": "A", "flags": case["query"]["flags"]})
    (request,) = behind.requests
    expected = case["expect"]
    if "reply" in expected:
        return flags_differ(expected["reply"], int.from_bytes(wire[2:4], "big"))
    assert request.query.flags == int.from_bytes(request.query.packet[2:4], "big")
    return flags_differ(expected["next_sees"], request.query.flags)


def flags_differ(expected: Case, flags: int) -> str:
    wrong = [name for name in expected["flags_set"] if not flags & FLAGS[name]]
    wrong += [name for name in expected["flags_clear"] if flags & FLAGS[name]]
    return f"flags {flags:04x}: {wrong}" if wrong else ""


async def bufsize(case: Case) -> str:
    """What differs in the size that the next directive sees."""
    behind = Behind(lambda _request: Response())
    await reply_to(server_of(case["config"], FakeWorld(), behind), case["query"])
    edns = behind.requests[0].query.edns
    size = edns and edns.payload_bytes
    return "" if size == case["expect"]["next_sees"]["udp_size"] else f"the next directive sees {size}"


async def cancel(case: Case) -> str:
    """Whether what is behind is cancelled."""
    cancelled = False

    async def never() -> Reply:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise
        return None

    wire = await reply_to(server_of(case["config"], FakeWorld(), Behind(lambda _request: never())), case["query"])
    return "" if cancelled == case["expect"]["cancelled"] and shown(wire)["rcode"] == "SERVFAIL" else "not cancelled"


SOA = "example.org. 3600 IN SOA ns.example.org. host.example.org. 1 2 3 4 5"


def searched(case: Case, request: Request) -> Response:
    """What the recorded next handler says."""
    behind, name = case["next"], request.query.name
    if name not in behind["rcodes"]:
        return UNHANDLED
    rcode = rcode_number(behind["rcodes"][name])
    if rcode == NXDOMAIN:
        return Response(rcode, authority=(parse_record(SOA),))
    return Response(NOERROR, answer=(parse_record(behind["answer"].format(qname=name)),))


async def autopath(case: Case) -> str:
    if "func" in case:
        name, first = labels_of(case["in"]["name"]), labels_of(case["in"]["search"][0])
        return "" if is_below(name, first) == case["expect"]["out"] else "otherwise"
    setup = FakeWorld(files=case["files"])
    server = server_of(case["config"], setup, Behind(lambda request: searched(case, request)))
    got = shown(await reply_to(server, case["query"]))
    if case["expect"].get("no_message"):
        return "" if got["rcode"] == case["expect"]["handler_rcode"] else got["rcode"]
    return difference(case["expect"], got, with_flags=True)


async def loop(case: Case) -> str:
    """Which questions count as the server's own that came back, and that all go on."""
    if case.get("op") == "func":
        return server_zone(case)
    setup = FakeWorld(zones=tuple(case["server_zones"]))
    plugin = Loop(NoConfig(), setup)
    counted: list[str] = []
    passed: list[Request] = []

    def behind(request: Request) -> Reply:
        passed.append(request)
        return Response()

    plugin.expect(labels_of(case.get("probe_name", "3.4.example.org.")), lambda: counted.append(""))
    if "disabled" in case.get("state", ""):
        plugin.expect(labels_of(case["query"]["name"]), lambda: counted.append(""))
        setup.clock_s += 30
    plugin.serve(Request(read(packet_of(case["query"]))), behind)
    got = {"counted": bool(counted), "passed": bool(passed)}
    return "" if got == case["expect"] else f"{got}, recorded {case['expect']}"


def server_zone(case: Case) -> str:
    try:
        (address,) = zone_addresses([Token("Corefile", 1, case["in"] or ".")])
    except CorefileError as error:
        return str(error)
    return "" if address.zone == case["expect"]["out"] else address.zone


async def metadata(case: Case) -> str:
    found = is_label(case["in"])
    return "" if found == case["expect"]["out"] else f"{case['in']}: {found}"


async def view(case: Case) -> str:
    """Whether a query is for a block."""
    chain = Chain([plugin_of(ViewPlugin, case["config"], FakeWorld())])
    server = Server("dns://:53", [Block(".", chain)])
    outcome = server.respond(packet_of(case["query"]), server.table.partition("udp", 4), client_of(case["query"]))
    assert isinstance(outcome, WireResponse)
    is_chosen = outcome.request is not None
    return "" if is_chosen is case["expect"]["chosen"] else f"chosen: {is_chosen}"


Check = Callable[[Case], Coroutine[Any, Any, str]]
CHECKS: dict[str, Check] = {
    **dict.fromkeys(("any", "chaos", "local", "minimal", "nsid", "whoami"), replied),
    "autopath": autopath,
    "bufsize": bufsize,
    "cancel": cancel,
    "header": header,
    "loop": loop,
    "metadata": metadata,
    "view": view,
}


@pytest.mark.parametrize("directive", CHECKS)
async def test_recorded_cases(directive: str) -> None:
    cases = cases_of("misc", f"{directive}/")
    known = {case["id"]: DEVIATIONS[case["id"]] for case in cases if case["id"] in DEVIATIONS}
    await check_cases(f"misc-cases.json, {directive}", cases, CHECKS[directive], known)
