"""The recorded cases of autopath: whole replies, and what is below a search path."""

from dns_chain import Behind, FakeWorld
from harness import Case, Report, difference, recorded, reply_to, server_of, shown

from kdns.answers.chain import UNHANDLED, Request
from kdns.answers.response import Response
from kdns.dns.names import is_below, labels_of
from kdns.dns.types import NOERROR, NXDOMAIN, rcode_number
from kdns.dns.zonefile import parse_record

SOA = "example.org. 3600 IN SOA ns.example.org. host.example.org. 1 2 3 4 5"


def next_of(case: Case, request: Request) -> Response:
    """What the recorded next handler says."""
    behind, name = case["next"], request.query.name
    if name not in behind["rcodes"]:
        return UNHANDLED
    rcode = rcode_number(behind["rcodes"][name])
    if rcode == NXDOMAIN:
        return Response(rcode, authority=(parse_record(SOA),))
    return Response(NOERROR, answer=(parse_record(behind["answer"].format(qname=name)),))


async def outcome(case: Case) -> str:
    if "func" in case:
        name, first = labels_of(case["in"]["name"]), labels_of(case["in"]["search"][0])
        return "" if is_below(name, first) == case["expect"]["out"] else "otherwise"
    setup = FakeWorld(files=case["files"])
    server = server_of(case["config"], setup, Behind(lambda request: next_of(case, request)))
    got = shown(await reply_to(server, case["query"]))
    if case["expect"].get("no_message"):
        return "" if got["rcode"] == case["expect"]["handler_rcode"] else got["rcode"]
    return difference(case["expect"], got, with_flags=True)


async def test_autopath_cases() -> None:
    report = Report("misc-cases.json, autopath")
    for case in recorded("misc")["cases"]:
        if case["id"].startswith("autopath/"):
            report.add(case["id"], await outcome(case))
    assert report.counts.total() == 7
    report.check()
