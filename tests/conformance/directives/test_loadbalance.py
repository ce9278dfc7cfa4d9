"""`loadbalance`: the order of kinds, whose turn it is at the front, preferred networks, and weight files."""

from collections import Counter
from collections.abc import Awaitable, Callable

from configured import configured
from dns_chain import Behind, FakeWorld
from harness import Case, cases_of, check_cases, reply_to, response_of, server_of, shown

from kdns.answers.order import Order, Weights
from kdns.dns.zonefile import parse_record, rdata_text
from kdns.errors import CorefileError
from kdns.net import packed
from kdns.plugins.changes import loadbalance

KINDS = {"CNAME": 0, "A": 1, "AAAA": 1, "MX": 2}
NO_NAME = "a comma is in no name of a host: kdns refuses it where a zone is wanted"
DEVIATIONS = {"loadbalance/TestWeightFileUpdate/1": NO_NAME}
ASKED = 8


async def answered(case: Case) -> str:
    """What differs in the answers to equal questions."""
    setup = FakeWorld(files=case.get("files", {}))
    server = server_of(case["config"], setup, Behind(lambda _request: response_of(case["next"])))
    expected = case["expect"]
    total = case.get("random", {}).get("sum") or ASKED
    tops: Counter[str] = Counter()
    for _ in range(total):
        got = shown(await reply_to(server, case["query"]))
        for section in ("answer", "additional"):
            types = [line.split()[3] for line in got[section]]
            if wrong := wrong_order(types, expected, case["next"].get(section) or [], got[section]):
                return f"{section}: {wrong}"
            if counts_of(types) != expected[f"{section}_counts"]:
                return f"{section} has {types}"
        tops[next((line.split()[-1] for line in got["answer"] if line.split()[3] in {"A", "AAAA"}), "")] += 1
    if top := expected.get("top"):
        weight = weight_of(case["files"]["weights"], top)
        return "" if tops[top] == weight else f"{top} was {tops[top]} of {total} times the first, weight {weight}"
    return ""


def wrong_order(types: list[str], expected: Case, before: list[str], lines: list[str]) -> str:
    if expected.get("unchanged_order"):
        return "" if lines == before else f"{lines}"
    kinds = [KINDS.get(name, 3) for name in types]
    return "" if kinds == sorted(kinds) else f"{types}"


def counts_of(types: list[str]) -> dict[str, int]:
    addresses = sum(name in {"A", "AAAA"} for name in types)
    return {"CNAME": types.count("CNAME"), "address": addresses, "MX": types.count("MX")}


def weight_of(text: str, address: str) -> int:
    return next((int(words[1]) for words in map(str.split, text.splitlines()) if words[:1] == [address]), 1)


def preferred(case: Case) -> str:
    """What differs in the order without rotation."""
    (config,) = configured(f". {{\n{case['config']}\n}}")
    (found,) = config.configs(loadbalance.DIRECTIVE)
    rrsets = Order(prefer=found.prefer).arranged(tuple(map(parse_record, case["next"]["answer"])))
    order = [rdata_text(rrset.rtype, rdata) for rrset in rrsets for rdata in rrset.rdata]
    return "" if order == case["expect"]["data_order"] else f"{order}"


def read_weights(case: Case) -> str:
    """What differs in what a weight file says."""
    expected = case["expect"]
    try:
        weights: Weights = loadbalance.parse_weights(case["files"]["weights"], "weights")
    except CorefileError as error:
        return "" if expected["error"] else f"refused: {error}"
    if expected["error"]:
        return f"accepted: {weights}"
    wanted = {
        name: {packed(address["address"]): address["weight"] for address in addresses}
        for name, addresses in (expected["domains"] or {}).items()
    }
    return "" if weights == wanted else f"{weights}"


async def test_recorded_cases() -> None:
    checks: dict[str, Callable[[Case], str]] = {"TestWeightFileUpdate": read_weights, "TestSortPreferred": preferred}

    def outcome(case: Case) -> str | Awaitable[str]:
        check = checks.get(case["id"].split("/")[1])
        return check(case) if check else answered(case)

    await check_cases("misc-cases.json, loadbalance", cases_of("misc", "loadbalance/"), outcome, DEVIATIONS)
