"""Recorded cases of `template`: matching, records, expressions, variables and fallthrough."""

from collections.abc import Awaitable

from configured import configured
from dns_chain import Behind, FakeWorld, plugin_of, response_to
from harness import Case, Metadata, cases_of, check_cases, client_of, difference, packet_of, response_of, shown

from kdns.answers.chain import Block, Chain, Reply, Request
from kdns.answers.response import Response
from kdns.dns.types import class_name, type_name
from kdns.dnsserver.blocks import Server
from kdns.plugins.sources.template import plugin
from kdns.plugins.sources.template.stencil import stencil_of
from kdns.serverblocks.expressions.values import EvaluationError

PASSED_ON = 77
"""The response code of what is behind the directive: a query that gets it fell through."""


def looked_up(case: Case, request: Request) -> Reply:
    """What the recorded server finds for a CNAME's target; SERVFAIL where it has nothing."""
    query = request.query
    question = f"{query.name} {class_name(query.qclass)} {type_name(query.qtype)}"
    for message in case.get("upstream") or ():
        if message["question"] == question:
            return response_of({**message, "flags": ["tc"] if message.get("tc") else []})
    return Response(2)


async def wrong(case: Case) -> str:
    """What differs from the recorded outcome, "" for nothing."""
    setup = FakeWorld()
    setup.resolve = lambda request: looked_up(case, request)  # type: ignore[method-assign] # stands in for the server
    zones = " ".join(case.get("server_zones") or ["."])
    template = plugin_of(plugin.TemplatePlugin, case["config"], setup, zones)
    behind = Behind(lambda _request: Response(PASSED_ON & 15))
    chain = Chain([Metadata(case.get("metadata") or {}), template, behind])
    query = {**case["query"], "edns": case["query"].get("edns", {})}
    server = Server("dns://:53", [Block(".", chain)], "127.0.0.1", port=53)
    outcome = server.respond(packet_of(query), server.table.partition("udp", 4), client_of(query))
    wire = (await response_to(outcome)).wire
    expected = case["expect"]
    if expected.get("fallthrough"):
        return "" if behind.requests else f"not passed on: {shown(wire)}"
    if behind.requests:
        return "passed on"
    if "tc" in expected and not wire[2] & 2:
        return "TC is not set"
    return difference(expected, shown(wire)) or otherwise_explained(expected, wire)


def otherwise_explained(expected: Case, wire: bytes) -> str:
    """Whether the Extended DNS Error is another one; recorded as 15=CODE (NAME): (REASON)."""
    for text in expected.get("edns_options") or ():
        code, reason = text.removeprefix("15=").split(" ", 1)
        data = int(code).to_bytes(2, "big") + reason.rpartition("(")[2].rstrip(")").encode()
        if f"15={data.hex()}" not in shown(wire)["options"]:
            return f"options {shown(wire)['options']}, recorded {text}"
    return ""


def matched_otherwise(case: Case) -> str:
    """Whether the stanza itself matches otherwise, or has other variables."""
    (config,) = configured(f". {{\n{case['config']}\n}}\n")
    stencil = stencil_of(config.configs(plugin.DIRECTIVE)[0])
    requests: list[Request] = []
    server = Server("dns://:53", [Block(".", Chain([Behind(requests.append)]))])
    server.respond(packet_of(case["query"]), server.table.partition("udp", 4), client_of(case["query"]))
    expected = case["expect"]
    try:
        subject = stencil.subject(requests[0], stencil.zone_of(requests[0].query))
    except EvaluationError:
        return "" if not expected["match"] and not expected["fallthrough"] else "an expression failed"
    if (subject is not None) is not expected["match"]:
        return f"matches: {subject is not None}"
    if subject is None:
        return "" if bool(stencil.fallthrough) is expected["fallthrough"] else "falls through otherwise"
    return "" if dict(subject.variables) == expected.get("vars", {}) else f"variables {subject.variables}"


async def test_recorded_cases() -> None:
    def outcome(case: Case) -> str | Awaitable[str]:
        return matched_otherwise(case) if case.get("op") == "match" else wrong(case)

    await check_cases("template-cases.json", cases_of("template"), outcome)
