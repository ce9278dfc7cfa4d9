"""Names that an ExternalName Service or a CNAME leads to: the whole server is asked, within limits."""

import pytest
from cluster_objects import external_name, state_of
from configured import configured
from decoded_message import Decoded
from dns_chain import FakeWorld, ask, server_of_blocks
from scripted_upstream import ForwardSetup, Says, Script, says

from kdns.dns.query import Query
from kdns.dns.types import CNAME, A
from kdns.dnsserver.blocks import Server
from kdns.upstream.upstream import Transport, UpstreamTimeoutError

COREFILE = """\
. {
    errors
    hosts {
        192.0.2.80 www.example.net
        fallthrough
    }
    kubernetes cluster.local
    forward . 192.0.2.1
}
corp.example {
    hosts {
        192.0.2.90 db.corp.example
    }
}
"""


def server(corefile: str, setup: FakeWorld, **external_names: str) -> Server:
    """The blocks of a Corefile; the Services of `shop` are ExternalNames."""
    setup.state = state_of(*(external_name(name, target) for name, target in external_names.items()))
    return server_of_blocks(configured(corefile), lambda: setup)


def shown(answered: Decoded) -> tuple[str, list[tuple[int, object]]]:
    return answered.rcode, [(rrset.rtype, rdata) for rrset in answered.answer for rdata in rrset.rdata]


# fmt: off
TARGETS = [
    ("www.example.org", "NOERROR", [(CNAME, "www.example.org."), (A, bytes((192, 0, 2, 99)))]),
    ("alias.example.org", "NOERROR",
     [(CNAME, "alias.example.org."), (CNAME, "www.example.org."), (A, bytes((192, 0, 2, 99)))]),
    ("www.example.net", "NOERROR", [(CNAME, "www.example.net."), (A, bytes((192, 0, 2, 80)))]),
    ("db.corp.example", "NOERROR", [(CNAME, "db.corp.example."), (A, bytes((192, 0, 2, 90)))]),
    ("no.example.org", "NXDOMAIN", [(CNAME, "no.example.org.")]),
    ("silent.example.org", "SERVFAIL", [(CNAME, "silent.example.org.")]),
]
# fmt: on


def upstream() -> Script:
    www = "www.example.org. 60 IN A 192.0.2.99"
    records = {
        "www.example.org.": [www],
        "alias.example.org.": ["alias.example.org. 60 IN CNAME www.example.org.", www],
    }
    soa = "example.org. 60 IN SOA ns.example.org. host.example.org. 1 2 3 4 5"

    def script(query: Query, _transport: Transport) -> Says:
        name = query.name
        if name == "silent.example.org.":
            return UpstreamTimeoutError("no response")
        return says(*records[name]) if name in records else says(rcode=3, authority=[soa])

    return script


@pytest.mark.parametrize(("target", "rcode", "records"), TARGETS)
async def test_an_external_name_has_the_addresses_of_its_target(
    target: str, rcode: str, records: list[tuple[int, object]]
) -> None:
    setup = ForwardSetup(script=upstream())
    answered = await ask(server(COREFILE, setup, ext=target), "ext.shop.svc.cluster.local.")
    assert shown(answered) == (rcode, records)
    assert [rrset.owner for rrset in answered.authority] == (["example.org."] if rcode == "NXDOMAIN" else [])
    setup.stop()


async def test_where_nobody_answers_for_the_target_the_cname_is_the_answer() -> None:
    setup = ForwardSetup()
    clusters = server(". {\nerrors\nkubernetes cluster.local\n}", setup, ext="www.example.org")
    assert shown(await ask(clusters, "ext.shop.svc.cluster.local.")) == ("NOERROR", [(CNAME, "www.example.org.")])
    clusters = server("cluster.local {\nkubernetes\n}", setup, ext="www.example.org")
    assert shown(await ask(clusters, "ext.shop.svc.cluster.local.")) == ("NOERROR", [(CNAME, "www.example.org.")])


async def test_a_circle_of_names_in_two_clusters_ends() -> None:
    setup = ForwardSetup()
    clusters = server(
        "one.local {\nkubernetes one.local\n}\ntwo.local {\nkubernetes two.local\n}",
        setup,
        a="b.shop.svc.two.local",
        b="a.shop.svc.one.local",
    )
    answered = await ask(clusters, "a.shop.svc.one.local.")
    assert {rrset.rtype for rrset in answered.answer} == {CNAME}
    assert len(answered.answer) <= 12
