"""forward-cases.json: whom stanzas ask and in which order, health checks, and how upstreams are written."""

import re
from collections.abc import Callable
from typing import Any, Final

from harness import Case, cases_of, check_cases, difference, response_of, shown
from scripted_upstream import ForwardSetup, Script, answer, forward_of, wire_of

from kdns.answers.chain import Request
from kdns.answers.response import Response
from kdns.corefile.lexer import Token
from kdns.dns.names import labels_of
from kdns.dns.query import RD, Query, query_for
from kdns.dns.types import type_name, type_number
from kdns.errors import CorefileError
from kdns.plugins.sources.forward.targets import File, Target, split_zone, target_of
from kdns.upstream.upstream import Transport, UpstreamTimeoutError

NO_LIMIT: Final = "the counter has no largest value that it would have to stay at"
DEVIATIONS: Final = {"pkg/proxy/TestProxyIncrementFails/0": NO_LIMIT}
"""Case → why kdns differs."""
FILES: Final = {"test_resolv.conf": "nameserver 10.10.255.252\n", "commented_resolv.conf": "# nameserver 10.0.0.1\n"}


def at_addresses(config: str) -> str:
    """U0 is 192.0.2.1:53, and so on."""
    return re.sub(r"\bU(\d)\b", lambda found: f"192.0.2.{int(found[1]) + 1}", config)


def named(address: str) -> str:
    return f"U{int(address.removesuffix(':53').rpartition('.')[2]) - 1}"


async def scenario(case: Case) -> str:
    """Whom a question goes to, and what comes back."""
    setup = ForwardSetup()
    answers: dict[str, list[Case]] = {}
    for step in case["asked"]:
        answers.setdefault(step["upstream"], []).append(step["reply"])

    def script(name: str) -> Script:
        return lambda _query, _transport: response_of(answers[name].pop(0))

    setup.scripts = {f"192.0.2.{number + 1}:53": script(f"U{number}") for number in range(case["upstreams"])}
    asked: list[tuple[str, Transport]] = []
    plugin = forward_of(at_addresses(case["config"]), setup)
    response = await answer(plugin, case["query"]["name"], case["query"]["type"])
    for name, upstream in setup.scripted.items():
        asked += [(named(name), transport) for _, transport in upstream.asked]
    expected = [(step["upstream"], step["proto"]) for step in case["asked"]]
    if asked != expected:
        return f"asked {asked}, recorded {expected}"
    query = query_for(labels_of(case["query"]["name"]), type_number(case["query"]["type"]))
    return difference(case["expect"], shown(response.wire or wire_of(query, response)), with_flags=True)


async def health(case: Case) -> str:
    """What an upstream is asked after it did not answer."""
    config = at_addresses(case["config"])
    if "NoRecursion" in case["id"]:  # the recorded stanza lacks what the test set
        config = config.replace("health_check 500ms", "health_check 500ms no_rec")
    setup = ForwardSetup()
    health_queries: list[Case] = []
    seen: list[Query] = []

    def script(query: Query, transport: Transport) -> Response | UpstreamTimeoutError:
        shown_question = f"{query.name} IN {type_name(query.qtype)}"
        seen.append(query)
        is_first = len(seen) == 1
        if not is_first and query.name != case["query"]["name"]:
            health_queries.append({"question": shown_question, "rd": bool(query.flags & RD), "proto": transport})
            kind = "health_query"
        else:
            kind = "first_query" if is_first else "other_queries"
        return UpstreamTimeoutError("") if case["upstream"].get(kind, "no answer") == "no answer" else Response()

    setup.script = script
    plugin = forward_of(config, setup)
    query = case["query"]
    response = await answer(plugin, query["name"], query["type"], transport=query.get("proto", "udp"))
    await setup.pass_time(0.02)
    expected = case["expect"]
    count = expected.get("health_query_count")
    wrong = ""
    if "upstreams_asked_after_down" in expected:
        await setup.pass_time(5.0, 50)
        before = len([one for one in seen if one.name == query["name"]])
        response = await answer(plugin, query["name"], query["type"])
        after = len([one for one in seen if one.name == query["name"]])
        if (after - before, response.rcode) != (expected["upstreams_asked_after_down"], 2):
            wrong = f"{after - before} asked, rcode {response.rcode}"
    elif "down" in expected:
        await setup.pass_time(5.0, 50)
        is_down = plugin.forwarders[0].group.members[0].is_down
        if is_down != expected["down"] or health_queries[:1] != expected["health_queries"]:
            wrong = f"down: {is_down}, {health_queries}"
    elif health_queries != expected["health_queries"] or len(health_queries) != count:
        wrong = f"{health_queries}"
    setup.stop()
    return wrong


def entries(row: Case) -> object:
    """How many of the words are upstreams, and how many are names that have to be resolved."""
    setup = ForwardSetup(files={**FILES, "/etc/resolv.conf": "nameserver 192.0.2.99\n"})
    try:
        plugin = forward_of(f"forward . {' '.join(row['input'])}", setup)
    except CorefileError:
        return {"wantStatic": 0, "wantDynamic": 0}
    static = len(plugin.forwarders[0].group.members)
    dynamic = len(setup.works)
    return {"wantStatic": static, "wantDynamic": dynamic}


def host_entry(row: Case) -> object:
    absent = {"hostname": "", "port": "", "transport": "", "zone": "", "wantOK": False}
    try:
        target = target_of(Token("Corefile", 1, row["input"]))
    except CorefileError:
        return absent
    if isinstance(target, File) or not target.is_name:
        return absent
    port = str(target.port)
    return {"hostname": target.host, "port": port, "transport": target.scheme, "zone": target.zone, "wantOK": True}


def format_address(row: Case) -> object:
    target = Target(row["ip"], int(row["port"]), row["trans"], row["zone"])
    return {"expected": str(target)}


def split(row: Case) -> object:
    host, zone = split_zone(row["input"])
    return {"expectedHost": host, "expectedZone": zone}


def protocol(row: Case) -> object:
    options = {"ForceTCP": "force_tcp", "PreferUDP": "prefer_udp"}
    chosen = [word for option, word in options.items() if row["opts"][option]]
    plugin = forward_of("forward . 192.0.2.1 {\n" + "\n".join(chosen) + "\n}", ForwardSetup())
    request = Request(query_for((), 1), transport="tcp" if row["requestTCP"] else "udp")
    return {"expectedProto": plugin.forwarders[0].transport(request)}


FUNCTIONS: Final[dict[str, Callable[[Case], object]]] = {
    "forward_to_entries": entries,
    "forward_parse_host_entry": host_entry,
    "forward_format_address": format_address,
    "forward_split_tls_zone": split,
    "proxy_protocol": protocol,
}


async def function(case: Case) -> str:
    if case["func"] == "proxy_count_fail":
        return NO_LIMIT if case["in"]["fails"] else ""
    expected: dict[str, Any] = case["expect"]["out"]
    got = FUNCTIONS[case["func"]](case["in"])
    assert isinstance(got, dict)
    wrong = {key: value for key, value in got.items() if value != expected[key]}
    return f"{wrong}, recorded {expected}" if wrong else ""


async def test_recorded_cases() -> None:
    kinds = {"scenario": scenario, "health": health, "func": function}
    await check_cases("forward-cases.json", cases_of("forward"), lambda case: kinds[case["op"]](case), DEVIATIONS)
