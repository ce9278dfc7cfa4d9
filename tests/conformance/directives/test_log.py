"""`log` with its formats, and `errors`: whether a line is written, and what it says."""

from collections.abc import Awaitable
from itertools import groupby
from typing import Final

import pytest
from dns_chain import Behind, FakeWorld, response_to
from harness import FLAGS, Case, cases_of, check_cases, client_of, packet_of, response_of, server_of

from kdns.answers.chain import Request
from kdns.answers.response import Response
from kdns.dns.query import AA, AD, RA, TC, read_query
from kdns.dns.types import SERVFAIL, rcode_number
from kdns.dnsserver.blocks import WireResponse
from kdns.plugins.observers import errors
from kdns.plugins.observers.log import Field, compiled, line_of

LEVELS: Final = {"error": "ERROR", "warning": "WARNING", "info": "INFO", "debug": "DEBUG"}


async def exchange(config: str, query: Case, reply: Response, setup: FakeWorld) -> None:
    """A query, answered like this, and sent."""
    server = server_of(config, setup, Behind(lambda _request: reply))
    outcome = server.respond(packet_of(query), server.table.partition("udp", 4), client_of(query), 0.0)
    (await response_to(outcome)).sent(0.001)


async def logged(case: Case) -> str:
    """What differs in the line of a query."""
    setup = FakeWorld()
    await exchange(case["config"], case["query"], response_of(case["next"]), setup)
    lines = [str(line["line"]) for line in setup.lines if line["event"] == "query"]
    expected = case["expect"]
    if bool(lines) != expected["logged"]:
        return f"lines {lines}"
    text = "\n".join(lines)
    has, has_not = expected.get("has"), expected.get("has_not")
    return f"line {text!r}" if (has and has not in text) or (has_not and has_not in text) else ""


def replaced(case: Case) -> str:
    """What differs in the text that a format becomes."""
    query = read_query(packet_of(case["query"], message_id=case["query"].get("id", 1)))
    assert not hasattr(query, "rcode")
    request = Request(
        query, client_of(case["query"]), case["query"].get("server", ""), metadata=case.get("metadata", {})
    )
    response, wire = None, b""
    if reply := case.get("reply"):
        flags = sum(FLAGS[flag] for flag in reply["flags"])
        response = Response(rcode_number(reply["rcode"]), flags & (AA | TC | RA | AD))
        header = request.query.packet[:2] + flags.to_bytes(2, "big") + request.query.packet[4:]
        wire = header
    text = line_of(compiled(case["format"]), request, response, wire, 0.0005)
    return "" if text == case["expect"]["text"] else f"{text!r}, recorded {case['expect']['text']!r}"


def read_format(case: Case) -> str:
    """What differs in the parts of a format; texts that follow each other are one."""
    parts = [
        (isinstance(piece, Field), piece.name if isinstance(piece, Field) else piece) for piece in compiled(case["in"])
    ]
    recorded_parts = []
    for part in case["expect"]["out"]:
        is_field = part["kind"] != "literal"
        value = part["value"].strip("{}") if part["kind"] == "label" else part["value"]
        recorded_parts.append((is_field, f"/{value}" if part["kind"] == "metadata" else value))
    merged = [
        (is_field, value)
        for is_field, run in groupby(recorded_parts, lambda part: part[0])
        for value in ([value for _, value in run] if is_field else ["".join(value for _, value in run)])
    ]
    return "" if parts == merged else f"{parts}, recorded {merged}"


async def failed(case: Case) -> str:
    """What differs in the lines of `errors`."""
    setup = FakeWorld()
    expected = case["expect"]
    if "query" in case:
        reply = Response(rcode_number(case["next"]["rcode"]), error=case["next"]["error"] or "")
        await exchange(case["config"], case["query"], reply, setup)
        text = " ".join(str(line["error"]) for line in setup.lines)
        return "" if (expected["log_has"] in text if "log_has" in expected else not text) else f"line {text!r}"
    reply = Response(SERVFAIL, error="error!")
    server = server_of(case["config"], setup, Behind(lambda _request: reply))
    for _ in range(case["errors"]):
        outcome = server.respond(
            packet_of({"name": "example.org."}), server.table.partition("udp", 4), ("10.240.0.1", 1), 0.0
        )
        assert isinstance(outcome, WireResponse)
        outcome.sent(0.0)
    first = [line for line in setup.lines if line["event"] == "query failed"]
    setup.wait(2)
    summaries = [
        f"[{LEVELS[str(line['log_level'])]}] {line['line']}"
        for line in setup.lines
        if line["event"] == "queries failed"
    ]
    if bool(first) != expected.get("first_logged", False):
        return f"first line: {first}"
    wanted = expected.get("log_has") or expected.get("summary_has")
    return "" if (any(wanted in line for line in summaries) if wanted else not summaries) else f"lines {summaries}"


@pytest.mark.parametrize("prefix", ["log/", "errors/", "pkg/replacer/"])
async def test_recorded_cases(prefix: str) -> None:
    def outcome(case: Case) -> str | Awaitable[str]:
        if prefix == "pkg/replacer/":
            return replaced(case) if case.get("op") == "replace" else read_format(case)
        return logged(case) if prefix == "log/" else failed(case)

    assert errors.LEVELS.keys() == LEVELS.keys()
    await check_cases(f"misc-cases.json, {prefix}", cases_of("misc", prefix), outcome)
