"""Recorded cases of `view`: whether a query is for a block."""

from dns_chain import FakeWorld, plugin_of
from harness import Case, Report, client_of, packet_of, recorded

from kdns.answers.chain import Block, Chain
from kdns.dnsserver.blocks import Server, WireResponse
from kdns.plugins.guards import view


def chosen_otherwise(case: Case) -> str:
    chain = Chain([plugin_of(view.ViewPlugin, case["config"], FakeWorld())])
    server = Server("dns://:53", [Block(".", chain)])
    outcome = server.respond(packet_of(case["query"]), server.table.partition("udp", 4), client_of(case["query"]))
    assert isinstance(outcome, WireResponse)
    is_chosen = outcome.request is not None
    return "" if is_chosen is case["expect"]["chosen"] else f"chosen: {is_chosen}"


def test_recorded_cases() -> None:
    report = Report("misc-cases.json, view")
    for case in recorded("misc")["cases"]:
        if case["id"].startswith("view/"):
            report.add(case["id"], chosen_otherwise(case))
    report.check()
