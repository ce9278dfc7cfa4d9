"""Recorded cases of whole servers with `cache` or `hosts`; of two servers the second one asks the first."""

import asyncio

from dns_chain import Behind, FakeWorld
from harness import Case, Report, difference, packet_of, reply_to, server_of, shown
from integration import cases, steps_otherwise

from kdns.answers.chain import Request
from kdns.answers.response import Response
from kdns.dnsserver.blocks import Server, WireResponse
from kdns.plugins.sources.forward.bailiwick import checked

ALONE = ("TestHostsInlineLookup", "TestCacheACLAuthorization", "TestACLAuthorizesAutopathExpandedName")
BEHIND_ANOTHER = ("TestLookupCache", "TestLookupCacheWithoutEdns")
ZONE = "example.org"


def asking(server: Server, request: Request) -> Response:
    """What another server says, as an upstream's bytes."""
    outcome = server.respond(request.query.packet, server.table.partition("udp", 4))
    assert isinstance(outcome, WireResponse)
    return checked(outcome.wire, request.query, "forward")


def body_of(case: Case, number: int) -> str:
    """The directives of a server with one block, without `forward`."""
    lines = str(case["servers"][number]["corefile"]).splitlines()[1:-1]
    return "\n".join(line for line in lines if not line.strip().startswith("forward"))


async def steps_behind_another_otherwise(case: Case, files: dict[str, str]) -> str:
    """The first step whose reply is not as recorded, "" for none; flags are not compared."""
    setup = FakeWorld(files=files)
    upstream = server_of(body_of(case, 0), setup, zone=ZONE)
    await setup.prepared()
    behind = Behind(lambda request: asking(upstream, request))
    server = server_of(body_of(case, 1), FakeWorld(), behind, zone=ZONE)
    for step in case["steps"]:
        if wrong := difference(step["reply"], shown(await reply_to(server, step["query"]))):
            return f"{packet_of(step['query']).hex()}: {wrong}"
    return "" if len(behind.requests) <= len(case["steps"]) else "asked too often"


def test_recorded_cases() -> None:
    report = Report("integration-cases.json, cache and hosts")
    for case, files in cases(ALONE):
        report.add(case["id"], asyncio.run(steps_otherwise(case, files)))
    for case, files in cases(BEHIND_ANOTHER):
        report.add(case["id"], asyncio.run(steps_behind_another_otherwise(case, files)))
    report.check()
