"""What CoreDNS was seen to answer, quirks included; where kdns is right and CoreDNS not, the case is a deviation."""

from typing import Any

import pytest
from dns_harness import difference, directive_of, server_of, state_of
from harness import reply_to
from recorded_cases import each_case, recorded

Case = dict[str, Any]
RECORDED = recorded("dns-observed-coredns.json")

DEVIATIONS: dict[str, str] = {
    "a name that exists is NODATA for a type it lacks, not NXDOMAIN (RFC 8020)": """
        cluster.local. TXT, testns.svc.cluster.local. TXT, ns.dns.cluster.local. TXT, dns-version.cluster.local. A,
        dns-version.cluster.local. AAAA, dns-version.cluster.local. SRV, 1.0.0.10.in-addr.arpa. A""",
    "ANY gets the records of one type, not the claim that there are none (RFC 8482 4.1)": """
        cluster.local. ANY, cip.testns.svc.cluster.local. ANY, hds.testns.svc.cluster.local. ANY,
        dns-version.cluster.local. ANY, 1.0.0.10.in-addr.arpa. ANY""",
    "an empty non-terminal exists: NODATA, not NXDOMAIN (RFC 4592 2.2.2, RFC 8020)": """
        _tcp.cip.testns.svc.cluster.local. SRV, _tcp.cip.testns.svc.cluster.local. A, dns.cluster.local. A,
        0.10.in-addr.arpa. PTR, 0.10.in-addr.arpa. NS, 0.10.in-addr.arpa. A, 1.0.10.in-addr.arpa. PTR""",
    "the apex has NS records also under `bind`, where CoreDNS cannot read its own address": """
        cluster.local. NS, in-addr.arpa. NS""",
    "the additional owner is a pointer to the question, so it comes in the client's spelling": """
        CIP.TestNS.svc.cluster.local. SRV""",
    "_port._proto owns SRV records only; addresses belong to the target": """
        _http._tcp.cip.testns.svc.cluster.local. A, _http._tcp.hds.testns.svc.cluster.local. A""",
    "port and protocol labels begin with an underscore (RFC 2782)": """
        http.tcp.cip.testns.svc.cluster.local. SRV, http.tcp.cip.testns.svc.cluster.local. A""",
    "a CNAME answers every type (RFC 1034 3.6.2)": """
        hfqdn.testns.svc.cluster.local. SRV, ext.testns.svc.cluster.local. SRV, ext.testns.svc.cluster.local. TXT,
        ext.testns.svc.cluster.local. MX, extint.testns.svc.cluster.local. SRV""",
    "a CNAME stays in the answer when its target has no such record, does not exist or loops (RFC 6604)": """
        extint.testns.svc.cluster.local. AAAA, extloopa.testns.svc.cluster.local. A,
        extself.testns.svc.cluster.local. A, extmiss.testns.svc.cluster.local. A""",
    "an externalName of digits is a name, as the Kubernetes documentation says": """
        extip.testns.svc.cluster.local. A, extip.testns.svc.cluster.local. CNAME""",
    "a Service without an address yet has no records, not a CNAME to the root": """
        noclusterip.testns.svc.cluster.local. A""",
    "an EndpointSlice without a Service has no name, and the query gets a reply": """
        1.14.0.172.in-addr.arpa. PTR, 2.14.0.172.in-addr.arpa. PTR""",
    "a pod has no ports, so no SRV": """
        10-244-0-11.testns.pod.cluster.local. SRV""",
    "a pod's name has one label; more do not exist": """
        x.10-244-0-11.testns.pod.cluster.local. A""",
    "an answer over UDP has at most 1232 bytes where `bufsize` says nothing, and TC (DNS flag day 2020)": """
        big.testns.svc.cluster.local. A""",
    "a label that begins with a dash is no host name (RFC 952)": """
        --1.testns.pod.cluster.local. AAAA""",
}
"""Reason → the questions it explains."""
HIDDEN = ("namespace_labels", "1.0.0.10.in-addr.arpa. PTR", "a hidden namespace is hidden in reverse zones too")


def reason_of(case: Case) -> str:
    """Why kdns answers otherwise, "" where it should not."""
    question = f"{case['qname']} {case['qtype']}"
    if (case["group"], question) == HIDDEN[:2]:
        return HIDDEN[2]
    for reason, questions in DEVIATIONS.items():
        if question in {one.strip() for one in questions.split(",")}:
            return reason
    return ""


async def test_what_is_cut_over_udp_is_as_recorded_over_tcp() -> None:
    cases = [case for case in RECORDED["cases"] if "1232 bytes" in reason_of(case)]
    for case in cases:
        server = server_of(
            state_of(RECORDED["objects"]), directive_of(f"{case['stanza']} {{\n{case['options'] or ''}\n}}")
        )
        assert not difference(case, await reply_to(server, {"name": case["qname"], "proto": "tcp"}))
    assert cases


@each_case(RECORDED["cases"], lambda case: f"{case['group']}: {case['qname']} {case['qtype']}")
async def test_dns_observed(name: str, case: Case) -> None:
    directive = directive_of(f"{case['stanza']} {{\n{case['options'] or ''}\n}}")
    state = state_of(
        RECORDED["objects"],
        labels=directive.labels,
        namespace_labels=directive.namespace_labels,
        synced=case["api_state"] == "synced",
    )
    query = {"name": case["qname"], "type": case["qtype"], "edns": {}}
    wrong = difference(case, await reply_to(server_of(state, directive), query))
    if wrong and (reason := reason_of(case)):
        pytest.xfail(reason)
    assert not wrong, name
