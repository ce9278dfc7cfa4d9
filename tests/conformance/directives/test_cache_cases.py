"""Recorded cases of `cache`: scenarios on a clock, with the table in front, from records and from upstreams' bytes."""

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from cache_world import Pause
from dns_chain import Behind, FakeWorld, held, plugin_of, read
from harness import (
    ANY_TTL,
    FLAGS,
    Case,
    cases_of,
    check_cases,
    client_of,
    difference,
    packet_of,
    response_of,
    server_of,
    shown,
)

from kdns.answers.answer import compile_answer
from kdns.answers.chain import Request, ServeResult
from kdns.answers.response import Message, Response
from kdns.dns.query import Query
from kdns.dns.rrset import RRset
from kdns.dns.zonefile import parse_record
from kdns.dnsserver.blocks import WireResponse
from kdns.plugins.changes.cache import plugin as cache
from kdns.plugins.changes.cache.config import STALE_TTL_S, Limits
from kdns.plugins.changes.cache.kinds import AnswerKind, contents
from kdns.plugins.changes.cache.store import Item, question_key
from kdns.values import evolve

MAY_2017_S = 1_493_596_800
"""When the recorded signatures count."""
SIGNATURE = re.compile(r'( RRSIG (?:[^ "]+ ){7}[^ "]+) [^ "]+')
"""Some are cut; they are not compared."""
COMPARED_FLAGS = ("aa", "tc", "ra", "ad")
IMMEDIATE_STEPS = 100
SLOW_S = 5.0
"""How long a slow upstream takes: longer than the time limits of all cases, but for those of SLOW."""
SLOW = {
    "cache/TestServeFromStaleCacheFetchVerifyTimeout/0",
    "cache/TestServeStaleFailureRecheckVerifyTimeoutCoalesces/0",
}

AA = "an answer from the cache has no AA (RFC 1035 §4.1.1); nothing else differs"
STALE_TTL = "stale records have a TTL of 30 s by default (RFC 8767 §4), not 0"
COALESCED = "the second question waits for the refresh that the first one began, instead of asking again"
SPELLING = "owners have the client's spelling, not the first client's"
DEVIATIONS = {
    "cache/TestServeStaleFailureRecheckVerifyTimeoutCoalesces/0": COALESCED,
    "cache/TestCacheInsertion/1": SPELLING,
}
"""AA and STALE_TTL are found in each case: nothing but that may differ there."""


@dataclass
class Clock(FakeWorld):
    """A clock that steps set, in the days of the recorded signatures."""

    def unix_s(self) -> float:
        return MAY_2017_S + self.clock_s


@dataclass
class Upstream:
    """Says what a step of a case has for it; `surplus` are questions that no step expects."""

    setup: FakeWorld
    as_bytes: bool
    is_slow: bool = False
    due: list[Case] = field(default_factory=list)
    surplus: int = 0
    wrong: str = ""

    def reply(self, request: Request) -> ServeResult:
        if not self.due:
            self.surplus += 1
            return None
        entry = self.due.pop(0)
        asked = {name for name in ("rd", "ad", "cd") if request.query.flags & FLAGS[name]}
        if asked != set(entry["flags"]):
            self.wrong = f"asked with {asked}, recorded {entry['flags']}"
        if "reply" not in entry:
            return None
        response = response_of(entry["reply"])
        response = of_bytes(request.query, response) if self.as_bytes else response
        return self.later(response) if self.is_slow else response

    async def later(self, response: Response) -> Response:
        end_s = self.setup.clock_s + SLOW_S
        while self.setup.clock_s < end_s:
            await Pause()
        return response


def of_bytes(query: Query, response: Response) -> Response:
    """The same as a message of an upstream."""
    wire = compile_answer(evolve(query, edns=None), response, 65535, ".", once=True).wire(query.packet)
    return Response(response.rcode, body=Message(wire))


@dataclass
class World:
    """One cache in a server, with an upstream behind it."""

    setup: Clock
    upstream: Upstream

    def __init__(self, config: str, *, as_bytes: bool, is_slow: bool = False) -> None:
        self.setup = Clock()
        self.upstream = Upstream(self.setup, as_bytes, is_slow)
        self.server = server_of(config, self.setup, Behind(self.upstream.reply))

    def ask(self, query: Case, now_s: float) -> bytes:
        """What a listener sends; time passes for who waits, and the background goes on."""
        self.setup.wait(max(0.0, now_s - self.setup.clock_s))
        packet = packet_of(query)
        partition = self.server.table.partition("udp", 4)
        if answer := held(partition, packet, self.setup.clock_s):
            return answer.wire(packet)
        outcome = self.server.respond(packet, partition, client_of(query), self.setup.clock_s)
        for _ in range(IMMEDIATE_STEPS):
            if isinstance(outcome, WireResponse):
                break
            try:
                outcome.send(None)
            except StopIteration as stop:
                outcome = stop.value
            self.setup.advance()
            self.setup.wait(0.0009)
        assert isinstance(outcome, WireResponse)
        self.setup.advance()
        return outcome.wire


def step_difference(world: World, step: Case, number: int, *, is_stale_immediate: bool) -> str:
    """What differs in one step, "" for nothing."""
    upstream = world.upstream
    upstream.due, upstream.surplus = list(step.get("next") or ()), 0
    wire = world.ask(step["query"], step["t"])
    expected = step["expect"]
    where = f"step {number} at {step['t']}: "
    if upstream.wrong:
        return where + upstream.wrong
    if [entry for entry in upstream.due if not entry.get("async")]:
        return f"{where}not asked"
    if upstream.surplus and not is_stale_immediate:
        return f"{where}asked"
    if "returned" in expected:
        return "" if not wire else f"{where}replied"
    if not wire:
        return f"{where}no reply"
    got = shown(wire)
    for message in (got, expected):
        message["flags"] = [flag for flag in message["flags"] if flag in COMPARED_FLAGS]
    wrong = difference(expected, got, with_flags=True)
    return wrong and where + wrong


def scenario(case: Case, *, as_bytes: bool) -> str:
    """What differs in a scenario; AA or STALE_TTL where nothing else does."""
    found = differences(case, as_bytes=as_bytes)
    others = [wrong for wrong in found if not is_only_aa(wrong)]
    if not others:
        return AA if found else ""
    stale = re.sub(r"(\"[^ \"]+) 0 IN", rf"\1 {STALE_TTL_S} IN", json.dumps(case))
    again = differences(json.loads(stale), as_bytes=as_bytes)
    return others[0] if [wrong for wrong in again if not is_only_aa(wrong)] else STALE_TTL


def differences(case: Case, *, as_bytes: bool) -> list[str]:
    """What differs in each step of a scenario.

    With `immediate` a stale answer asks for a new one in the background; of that, some recordings have nothing, or have
    it in a later step.
    """
    world = World(case["config"], as_bytes=as_bytes)
    is_immediate = "serve_stale" in case["config"] and "verify" not in case["config"]
    wrongs = []
    for number, step in enumerate(case["steps"]):
        world.upstream.is_slow = case["id"] in SLOW and number > 0
        wrongs.append(step_difference(world, step, number, is_stale_immediate=is_immediate and number > 0))
    return [wrong for wrong in wrongs if wrong]


def is_only_aa(wrong: str) -> bool:
    """Whether a difference is an AA that CoreDNS sets."""
    _, found, flags = wrong.partition("flags ")
    got, _, expected = flags.partition(", recorded ")
    return bool(found) and got == expected.replace("'aa', ", "").replace("'aa'", "")


def insertion(case: Case, *, as_bytes: bool) -> str:
    """What differs where one message is offered, and asked for again."""
    world = World(case["config"], as_bytes=as_bytes)
    flags = ["rd", *({"ad", "cd"} & set(case["in"]["flags"]))]
    query = {**case["query"], "flags": flags}
    if query.pop("do"):
        query["edns"] = {"udp_size": 4096, "do": True}
    question = {"flags": sorted({*flags, "ad"}), "reply": case["in"]}
    world.upstream.due = [question]
    world.ask(query, 0)
    world.upstream.due = [question]
    got = shown(world.ask(query, 0))
    is_cached = bool(world.upstream.due)
    if is_cached != case["expect"]["cached"]:
        return "cached" if is_cached else "not cached"
    expected = case["expect"]["out"]
    if expected is None:
        return ""
    for message in (got, expected):
        message["flags"] = [flag for flag in message["flags"] if flag in {"tc", "ra", "ad"}]
    expected["answer"] = [re.sub(r"^([^ ]+) [0-9]+", rf"\1 {ANY_TTL}", line) for line in expected["answer"]]
    return difference(expected, got, with_flags=True)


def separation(case: Case, *, as_bytes: bool) -> str:
    """Whether one question's item answers another question."""
    world = World(case["config"], as_bytes=as_bytes)
    replies = []
    for asked in (case["first"], case["then"]):
        query: Case = {"name": asked["name"], "type": asked["type"], "flags": ["rd", *(["cd"] if asked["cd"] else [])]}
        if asked.get("aa"):
            query["flags"].append("aa")
        if asked["do"]:
            query["edns"] = {"do": True}
        rdata = {"A": "192.0.2.1", "AAAA": "2001:db8::1", "MX": "1 ."}[asked["type"]]
        world.upstream.due = [
            {
                "flags": [*(set(query["flags"]) - {"aa"}), "ad"],
                "reply": {"answer": [f"{asked['name']} 60 IN {asked['type']} {rdata}"]},
            }
        ]
        replies.append(world.ask(query, 0))
    is_hit = bool(world.upstream.due)
    return "" if is_hit == case["expect"]["hit"] else f"hit is {is_hit}"


def pick(case: Case) -> str:
    """Which of several items answers."""
    setup = Clock(clock_s=1000.0)
    plugin = plugin_of(cache.Cache, case["config"], setup)
    query = read(packet_of({"name": "example.org.", "type": "A"}))
    key = question_key(Request(query))
    for entry in case["entries"]:
        response = response_of(entry["message"])
        kind = contents(query, response, setup.unix_s).kind
        item = Item.of(key, kind, response, setup.clock_s - entry["stored_ago"], entry["ttl"])
        (plugin.items.success if kind.value == "success" else plugin.items.denial).put(item, lambda _: False)
    item_or_none = plugin.items.pick(key, setup.clock_s + case["second"])
    assert item_or_none is not None
    return difference(case["expect"], shown(of_bytes(query, item_or_none.response).wire), ())


def in_class(line: str) -> RRset:
    """A record; of class CH with the rdata of class IN, as the case has it."""
    rrset = parse_record(line.replace(" CH ", " IN "))
    return replace(rrset, rclass=3 if " CH " in line else 1)


def function(case: Case) -> str:
    """What differs in a function."""
    given = case["in"]
    if case["func"] == "cached_ttl":
        found: Any = Limits(1, given["max"], given["min"]).clamped(given["message_ttl"])
    else:
        query = read(packet_of(given["question"]))
        rrsets = tuple(in_class(line) for line in given["answer"])
        found = contents(query, Response(answer=rrsets), float).kind is AnswerKind.SUCCESS
    return "" if found == case["expect"]["out"] else f"{found}"


@pytest.mark.parametrize("as_bytes", [False, True], ids=["records", "bytes"])
async def test_recorded_cases(*, as_bytes: bool) -> None:
    cases = json.loads(SIGNATURE.sub(r"\1 AAAA", json.dumps(cases_of("cache"))))
    kinds = {"scenario": scenario, "insertion": insertion, "key": separation}
    outcomes: dict[str, str] = {}
    for case in cases:
        if kind := kinds.get(case["op"]):
            outcomes[case["id"]] = kind(case, as_bytes=as_bytes)
        else:
            outcomes[case["id"]] = pick(case) if case["op"] == "pick" else function(case)
    ours = {name: wrong for name, wrong in outcomes.items() if wrong in {AA, STALE_TTL}}
    title = f"cache-cases.json, {'bytes' if as_bytes else 'records'}"
    await check_cases(title, cases, lambda case: outcomes[case["id"]], {**ours, **DEVIATIONS})
