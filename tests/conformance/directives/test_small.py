"""The small directives of misc-cases.json: any, bufsize, cancel, chaos, header, local, minimal, nsid, whoami."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from dns_chain import Behind, FakeWorld
from harness import FLAGS, Case, Report, difference, recorded, reply_to, response_of, server_of, shown

from kdns.answers.chain import Reply
from kdns.answers.response import Response

DIRECTIVES = ("any", "bufsize", "cancel", "chaos", "header", "local", "minimal", "nsid", "whoami")
NO_ADDRESS = "a client without an address gets no AAAA record without one"
DEVIATIONS = {
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


Check = Callable[[Case], Coroutine[Any, Any, str]]
CHECKS: dict[str, Check] = {"header": header, "bufsize": bufsize, "cancel": cancel}


@pytest.mark.parametrize("directive", DIRECTIVES)
async def test_recorded_cases(directive: str) -> None:
    known = {case_id: reason for case_id, reason in DEVIATIONS.items() if case_id.startswith(f"{directive}/")}
    report = Report(f"misc-cases.json, {directive}", known)
    cases = [case for case in recorded("misc")["cases"] if case["id"].startswith(f"{directive}/")]
    assert cases
    for case in cases:
        report.add(case["id"], await CHECKS.get(directive, replied)(case))
    report.check()
