"""misc-cases.json, `loop`: which questions count as the server's own that came back, and that all go on."""

from typing import Final

from dns_chain import FakeWorld, read
from harness import Case, Report, packet_of, recorded

from kdns.answers.chain import Reply, Request
from kdns.answers.response import Response
from kdns.corefile.address import zone_addresses
from kdns.corefile.lexer import Token
from kdns.dns.names import labels_of
from kdns.errors import CorefileError
from kdns.plugins.guards.loop import Loop
from kdns.serverblocks.directive import NoConfig

DEVIATIONS: Final = {
    "loop/TestParseServerBlockKeys/1": "a scheme that there is not is refused; CoreDNS takes its zone for the root",
}
"""Case → why kdns differs."""


def question(case: Case) -> str:
    setup = FakeWorld(zones=tuple(case["server_zones"]))
    loop = Loop(NoConfig(), setup)
    counted: list[str] = []
    passed: list[Request] = []

    def behind(request: Request) -> Reply:
        passed.append(request)
        return Response()

    loop.expect(labels_of(case.get("probe_name", "3.4.example.org.")), lambda: counted.append(""))
    if "disabled" in case.get("state", ""):
        loop.expect(labels_of(case["query"]["name"]), lambda: counted.append(""))
        setup.clock_s += 30
    loop.serve(Request(read(packet_of(case["query"]))), behind)
    got = {"counted": bool(counted), "passed": bool(passed)}
    return "" if got == case["expect"] else f"{got}, recorded {case['expect']}"


def zone(case: Case) -> str:
    try:
        (address,) = zone_addresses([Token("Corefile", 1, case["in"] or ".")])
    except CorefileError as error:
        return str(error)
    return "" if address.zone == case["expect"]["out"] else address.zone


def test_loop_cases() -> None:
    report = Report("misc-cases.json, loop", DEVIATIONS)
    for case in recorded("misc")["cases"]:
        if case["id"].startswith("loop/"):
            report.add(case["id"], zone(case) if case.get("op") == "func" else question(case))
    report.check()
