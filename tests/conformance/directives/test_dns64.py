"""The recorded cases of dns64."""

from ipaddress import IPv6Network, ip_address

from dns_chain import Behind, FakeWorld, plugin_of, read
from harness import (
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

from kdns.answers.chain import Request
from kdns.answers.response import Response
from kdns.dns.types import A
from kdns.plugins.changes import dns64


def directive_of(case: Case) -> dns64.Dns64:
    return plugin_of(dns64.Dns64, case["config"], FakeWorld())


async def outcome(case: Case) -> str:
    """What differs from the recorded case."""
    expect = case["expect"]
    match case.get("op"):
        case "func":
            prefix, address = case["in"]
            made = dns64.synthesized(IPv6Network(prefix), ip_address(address).packed)
            return "" if str(ip_address(made)) == expect["out"] else str(ip_address(made))
        case "intercept":
            request = Request(read(packet_of(case["query"])), (case["query"]["client"], 40212))
            return "" if directive_of(case).is_concerned(request) == expect["intercept"] else "otherwise"
        case "translate":
            translated = directive_of(case).is_translated(response_of(case["first_reply"]))
            return "" if translated == expect["translate"] else "otherwise"

    def reply(request: Request) -> Response:
        return response_of(case["a_reply" if request.query.qtype == A else "first_reply"])

    behind = Behind(reply)
    server = server_of(case["config"], FakeWorld(), behind)
    assert client_of(case["query"]) == ("::1", 40212)
    got = shown(await reply_to(server, case["query"]))
    asked_twice = "a_reply" in case
    if len(behind.requests) != 1 + asked_twice:
        return f"{len(behind.requests)} questions"
    return difference(expect, got, with_flags=True)


async def test_recorded_cases() -> None:
    await check_cases("dns64-cases.json", cases_of("dns64"), outcome)
