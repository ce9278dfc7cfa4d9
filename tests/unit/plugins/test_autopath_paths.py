"""`autopath`: whose path is walked, that nobody gets another client's answer, and what is counted."""

import pytest
from cluster_objects import pod, service, state_of
from dns_chain import Behind, FakeWorld, ask, plugin_of, server_of

from kdns.answers.chain import Reply, Request, Sees
from kdns.answers.response import Response
from kdns.cluster.objects import Meta, Namespace, Pod
from kdns.dns.names import labels_of
from kdns.dns.rrset import RRset
from kdns.dns.types import NXDOMAIN, A
from kdns.dnsserver.blocks import Server
from kdns.plugins.changes.autopath import Autopath, AutopathConfig, search_of
from kdns.plugins.changes.cache.plugin import Cache
from kdns.plugins.sources.kubernetes.options import Options, PodMode
from kdns.plugins.sources.kubernetes.plugin import Kubernetes

SHOP, BANK, SHARED, NOBODY = "10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.9"
OUTSIDE = "example.net.shop.svc.cluster.local."


async def outside(request: Request) -> Reply:
    """Names of the outside: example.net exists."""
    name = request.query.name
    if name in {"example.net.", "named.corp."}:
        return Response(answer=(RRset(name, A, 300, (b"\xc0\x00\x02\x01",)),))
    return Response(NXDOMAIN)


def served(pods: PodMode = PodMode.VERIFIED, *, cached: bool = False) -> tuple[Server, Behind, FakeWorld]:
    places = (("a", "shop", SHOP), ("b", "bank", BANK), ("c", "shop", SHARED), ("d", "bank", SHARED))
    pods_of = [pod(name, ip, namespace=namespace) for name, namespace, ip in places]
    state = state_of(Namespace(Meta("bank")), service("web", "10.96.0.1"), *pods_of)
    state.synced.add(Pod)
    setup, behind = FakeWorld(state=state, files={"/etc/resolv.conf": "search corp\n"}), Behind(outside, Sees.PACKET)
    caches = [plugin_of(Cache, "cache", setup)] if cached else []
    cluster = Kubernetes(state, Options(pods=pods), setup)
    setup.built = (Autopath(AutopathConfig((".",)), setup), *caches, cluster, behind)
    server = server_of(*setup.built)
    setup.servers.append(server)
    return server, behind, setup


async def names(server: Server, name: str, client: str) -> str:
    """Owners of the answer, or the rcode of an empty one."""
    response = await ask(server, name, client=client)
    return " ".join(rrset.owner for rrset in response.answer) or response.rcode


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    ("name", "client", "expected"),
    [
        (OUTSIDE, SHOP, f"{OUTSIDE} example.net."),
        (OUTSIDE, BANK, "NXDOMAIN"),
        (OUTSIDE, SHARED, "NXDOMAIN"),
        (OUTSIDE, NOBODY, "NXDOMAIN"),
        ("named.shop.svc.cluster.local.", SHOP, "named.shop.svc.cluster.local. named.corp."),
        ("web.shop.svc.cluster.local.", SHOP, "web.shop.svc.cluster.local."),
        ("web.shop.bank.svc.cluster.local.", BANK, "web.shop.bank.svc.cluster.local. web.shop.svc.cluster.local."),
        ("none.shop.svc.cluster.local.", SHOP, "NXDOMAIN"),
        ("shop.svc.cluster.local.", SHOP, "NOERROR"),
        ("example.net.", SHOP, "example.net."),
    ],
)
async def test_paths_of_pods(name: str, client: str, expected: str, *, cached: bool) -> None:
    server, _, _ = served(cached=cached)
    for other in (SHOP, BANK, NOBODY):
        await ask(server, name, client=other)
    assert await names(server, name, client) == expected


async def test_what_outside_says_is_cached_by_its_own_name() -> None:
    server, behind, setup = served(cached=True)
    for _ in range(3):
        assert await names(server, OUTSIDE, SHOP) == f"{OUTSIDE} example.net."
    assert [request.query.name for request in behind.requests].count("example.net.") == 1
    assert setup.counted["coredns_autopath_success"].tally("dns://:53").count == 3
    assert len(server.table) == 0


async def test_expansions_are_counted() -> None:
    server, _, setup = served()
    for name in (OUTSIDE, "web.shop.svc.cluster.local.", "none.shop.svc.cluster.local.", OUTSIDE):
        await ask(server, name, client=SHOP)
    for partition in server.table.partitions.values():
        partition.totals()
    assert setup.counted["coredns_autopath_success"].tally("dns://:53").count == 2
    assert len(server.table) == 1  # the Service


async def test_without_verified_pods_there_are_no_paths() -> None:
    server, _, setup = served(PodMode.INSECURE)
    assert await names(server, OUTSIDE, SHOP) == "NXDOMAIN"
    plugin = setup.built[0]
    assert isinstance(plugin, Autopath)
    await plugin.check()
    assert [line["directive"] for line in setup.lines] == ["autopath"]


@pytest.mark.parametrize(
    ("text", "search"),
    [
        ("", ()),
        ("nameserver 1.1.1.1\nsearch A.org b.org. a.org\n", ("a.org.", "b.org.")),
        ("search a.org\ndomain b.org c.org\n", ("b.org.",)),
        ("search . a..org \\999 ok", ("ok.",)),
        ("#search a.org\n", ()),
        ("search\ta.org", ("a.org.",)),
    ],
)
def test_search_of_a_file(text: str, search: tuple[str, ...]) -> None:
    assert search_of(text) == tuple(map(labels_of, search))
