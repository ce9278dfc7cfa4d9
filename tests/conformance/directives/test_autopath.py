"""The recorded cases of autopath: whole replies, what is below a search path, and what acl says of its names."""

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


async def test_acl_judges_the_names_of_a_path() -> None:
    """The EDE goes to a client that sent an OPT only, so the queries here have one."""
    report = Report("integration-cases.json, autopath and acl")
    for case in recorded("integration")["cases"]:
        if case["id"].startswith("test/TestACLAuthorizesAutopath"):
            corefile = case["servers"][0]["corefile"].split("{", 1)[1].rsplit("}", 1)[0].split("hosts")[0]
            answer = Response(answer=(parse_record("secret.protected.example. 5 IN A 192.0.2.123"),))
            absent = Response(NXDOMAIN)
            held = Behind(lambda request: answer if request.query.name == "secret.protected.example." else absent)  # noqa: B023
            server = server_of(corefile, FakeWorld(files=case["files"]), held)
            for step in case["steps"]:
                got = shown(await reply_to(server, step["query"] | {"edns": {}}))
                wrong = difference(step["reply"], got, with_flags=True)
                report.add(
                    f"{case['id']} {step['query']['name']}",
                    wrong or ("" if got["options"] == ["15=000f"] else "no EDE"),
                )
    assert report.counts.total() == 2
    report.check()
