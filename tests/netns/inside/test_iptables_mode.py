"""Mode iptables in the kernel, in both back ends: what it writes, what it heals, and what it finds and leaves."""

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.cluster.objects import Key, Object, Service
from kdns.cluster.state import Change, State
from kdns.errors import ApplyError
from kdns.net import FAMILIES
from kdns.netlink.xtables import Backend
from kdns.proxy.iptables.io import proxier as module
from kdns.proxy.iptables.io import start as floors
from kdns.proxy.iptables.io.proxier import IptablesProxier
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.tables import Tables
from kdns.proxy.plan.plan import PortName
from kdns.proxy.plan.planner import Planner, plan
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Footprint
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.xtables.io.clean_up import ROUTE_LOCALNET, IptablesPart, remove_chains
from kdns.proxy.xtables.io.programs import Programs, installed, preferred_backend
from kdns.proxy.xtables.names import endpoint_chain, port_chains
from kdns.runtime.metrics import MetricFamilies

BACKENDS: Final[tuple[Backend, ...]] = ("nft", "legacy")
PROGRAMS: Final = [f"iptables-{backend}" for backend in BACKENDS]
pytestmark = pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason=f"needs the programs {PROGRAMS}")
IN_MODE: Final = replace(CONFIG, mode=IPTABLES, node_port_addresses=())
ENDS: Final = ("p1", "p2", "r1")
FIRST: Final = PortName("shop", "s1", "tcp", "TCP")
SHARED: Final = ("-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL")
DEADLINE_S: Final = 60.0


def run(command: str, text: str | None = None) -> str:
    done = subprocess.run(command.split(), input=text, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{command}: {done.stderr}"
    return done.stdout


def saved(backend: Backend) -> dict[str, list[str]]:
    """The rules of both families by chain, without what was counted; sorted where Services stand in any order."""
    found: dict[str, list[str]] = {}
    for program in ("iptables", "ip6tables"):
        table = ""
        for line in run(f"{program}-{backend}-save").splitlines():
            if line.startswith("*"):
                table = f"{program} {line[1:]}"
            elif line.startswith(":"):
                found[f"{table} {line[1:].split()[0]}"] = []
            elif line.startswith("-A"):
                found[f"{table} {line.split()[1]}"].append(line)
    return {chain: sorted(rules) if chain.endswith(SHARED) else rules for chain, rules in found.items()}


def objects(*ends: str, count: int = 2, **spec: Any) -> list[Object]:
    return [
        each for number in range(1, count + 1) for each in service(number, endpoints(number, *(ends or ENDS)), **spec)
    ]


def changed(known: State, some: list[Object]) -> list[Change]:
    return [done for each in some if (done := known.upsert(each))]


def names(some: list[Object]) -> list[tuple[type[Service], Key]]:
    return [(Service, each.key) for each in some if isinstance(each, Service)]


@pytest.fixture(autouse=True)
def nothing_before(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    yield
    for program in ("iptables", "ip6tables"):
        for backend in BACKENDS:
            for table in ("filter", "nat", "mangle"):
                for what in ("F", "X"):
                    run(f"{program}-{backend} -t {table} -{what}")
    del loop


def started(loop: asyncio.AbstractEventLoop, backend: Backend) -> IptablesProxier:
    async def start() -> IptablesProxier:
        programs = (await installed())[backend]
        return IptablesProxier(programs, FAMILIES, await floors.features(programs, Settings()))

    return loop.run_until_complete(start())


@pytest.mark.parametrize("backend", BACKENDS)
def test_changes_lead_where_a_start_leads(loop: asyncio.AbstractEventLoop, backend: Backend) -> None:
    proxier, known = started(loop, backend), state(objects())
    planner = Planner(known, NODE_VIEW, IN_MODE)

    async def follow() -> None:
        await proxier.sync_full(planner.plan)
        for some in (
            objects("p1"),
            objects("p1", "r2", sessionAffinity="ClientIP"),
            objects("r1", external="Local", internal="Local"),
            objects("p2 unready"),
            objects("p2", loadBalancerSourceRanges=["192.0.2.0/24"]),
            objects("p1", count=3),
        ):
            differences = planner.changed(changed(known, some))
            await proxier.sync_partial(planner.plan, differences)
        change = known.delete(*names(objects(count=3))[-1])
        assert change
        differences = planner.changed([change])
        await proxier.sync_partial(planner.plan, differences)

    loop.run_until_complete(follow())
    followed = saved(backend)
    assert proxier._restores.difference() == ""  # noqa: SLF001 - what a look at the kernel says
    loop.run_until_complete(started(loop, backend).sync_full(planner.plan))
    again = saved(backend)
    assert loop.run_until_complete(remove_chains(None, Footprint()))
    assert not [chain for chain in saved(backend) if "KUBE" in chain]
    assert not any(saved(backend).values())
    loop.run_until_complete(started(loop, backend).sync_full(planner.plan))
    assert followed == saved(backend) == again
    assert Path("/proc/sys", ROUTE_LOCALNET).read_text() == "1\n"


CHAIN: Final = port_chains(FIRST).cluster
FLUSHES: Final = {
    "table nat": ("-t nat -F", "-t nat -X"),
    "table filter": ("-F", "-X"),
    "the chain of a Service": (f"-t nat -F {CHAIN}",),
    "a rule of it": (f"-t nat -D {CHAIN} 1",),
    "the chain of all Services": ("-t nat -F KUBE-SERVICES",),
    "a jump": ("-t nat -D OUTPUT 1",),
    "all jumps of a chain": ("-F FORWARD",),
    "what keeps others from loopback addresses": ("-F KUBE-FIREWALL",),
    "the jump to it": ("-D INPUT -j KUBE-FIREWALL",),
    "the canary": ("-t mangle -F", "-t mangle -X"),
}
FEW: Final = 4
"""Of these in the back end that is polled, whose look at the rules is the other's."""
OF_OTHERS: Final = (
    "-N MINE",
    "-A MINE -j ACCEPT",
    "-A INPUT -j MINE",
    "-t nat -A OUTPUT -j RETURN",
    "-D INPUT -j MINE",
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_others_flush_is_written_again(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.2)
    proxier, known = started(loop, backend), state(objects())

    async def heal() -> None:
        runner = SyncRunner(known, proxier, lambda: (NODE_VIEW, IN_MODE), SyncTiming(0.0), kinds=frozenset())
        with ExitStack() as stack:
            stack.enter_context(proxier.watch(runner.foreign_change))
            work = asyncio.create_task(runner.run())
            try:
                await runner.established.wait()
                whole = saved(backend)
                for number in range(3):
                    runner.changed(changed(known, objects(*ENDS[: number + 1])))
                    await until(lambda: not proxier._turn.locked() and not proxier._restores.difference())  # noqa: SLF001
                for line in OF_OTHERS:
                    run(f"iptables-{backend} {line}")
                await asyncio.sleep(2.0 if backend == "legacy" else 0.1)  # so long as it takes to be noticed
                assert runner.stats.foreign_changes == 0
                for line in ("-t nat -D OUTPUT -j RETURN", "-F MINE", "-X MINE"):
                    run(f"iptables-{backend} {line}")
                for what, lines in FLUSHES.items() if backend == "nft" else list(FLUSHES.items())[:FEW]:
                    before = runner.stats.foreign_changes
                    while runner.stats.foreign_changes == before:  # a sync of the flush before may write this one's too
                        for line in lines:
                            with suppress(AssertionError) if "-X" in line else ExitStack():
                                run(f"iptables-{backend} {line}")
                        await until(lambda: saved(backend) == whole, what, every_s=0.1)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    loop.run_until_complete(heal())


async def until(is_so: Callable[[], bool], what: str = "", *, every_s: float = 0.02) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s, what
        await asyncio.sleep(every_s)


KUBE_PROXYS: Final = """*mangle
:KUBE-PROXY-CANARY - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:MINE - [0:0]
-A KUBE-FIREWALL -s 192.0.2.66/32 -m comment --comment "a kubelet's" -j DROP
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A INPUT -j MINE
-A MINE -j RETURN
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m comment --comment "shop/gone" -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SERVICES -d 10.96.0.99/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
"""
"""What a kube-proxy may have left, beside the chains of a kubelet and of others."""


@pytest.mark.parametrize("backend", BACKENDS)
def test_rules_of_kube_proxy_are_taken_over(loop: asyncio.AbstractEventLoop, backend: Backend) -> None:
    run(f"iptables-{backend}-restore", KUBE_PROXYS)
    loop.run_until_complete(started(loop, backend).sync_full(plan(state(objects()), NODE_VIEW, IN_MODE)))
    found = saved(backend)
    assert not [chain for chain in found if chain.endswith(("SVC-AAAAAAAAAAAAAAAA", "SEP-AAAAAAAAAAAAAAAA"))]
    for chain in ("filter INPUT", "filter FORWARD", "filter OUTPUT", "nat PREROUTING", "nat OUTPUT", "nat POSTROUTING"):
        rules = found[f"iptables {chain}"]
        assert len(rules) == len(set(rules)), rules
    assert not any("10.96.0.99" in rule for rule in found["iptables nat KUBE-SERVICES"])
    loop.run_until_complete(remove_chains(None, Footprint()))
    left = {chain: rules for chain, rules in saved(backend).items() if rules or "KUBE" in chain}
    assert {chain for chain in left if not chain.endswith(("PUT", "FORWARD", "ROUTING"))} == {
        "iptables mangle KUBE-KUBELET-CANARY",
        "iptables filter KUBE-FIREWALL",
        "iptables filter MINE",
    }
    assert left["iptables filter INPUT"] == ["-A INPUT -j KUBE-FIREWALL", "-A INPUT -j MINE"]
    assert left["iptables filter OUTPUT"] == ["-A OUTPUT -j KUBE-FIREWALL"]


ODD: Final = (
    "two\nlines",
    'it\'s "quoted" \\',
    "stands before -j KUBE-SERVICES",
    "\u2028",
)
"""Comments of others' rules."""


@pytest.mark.parametrize("backend", BACKENDS)
def test_rules_of_others_may_have_any_comment(loop: asyncio.AbstractEventLoop, backend: Backend) -> None:
    for chain in ("INPUT", "FORWARD"):
        for text in ODD:
            argv = [f"iptables-{backend}", "-A", chain, "-m", "comment", "--comment", text, "-j", "ACCEPT"]
            subprocess.run(argv, check=True)
    before = run(f"iptables-{backend}-save")
    loop.run_until_complete(started(loop, backend).sync_full(plan(state(objects()), NODE_VIEW, IN_MODE)))
    whole = saved(backend)
    loop.run_until_complete(started(loop, backend).sync_full(plan(state(objects()), NODE_VIEW, IN_MODE)))
    assert saved(backend) == whole
    assert loop.run_until_complete(remove_chains(None, Footprint()))
    after = run(f"iptables-{backend}-save")
    assert [line for line in after.splitlines() if line[:1] not in ":#*C"] == [
        line for line in before.splitlines() if line[:1] not in ":#*C"
    ]


class Refused(Tables):
    """Rules of which the kernel refuses those of one Service, for a reason that the program does not see."""

    def whole(self, existing: Any) -> str:
        return self._spoilt(super().whole(existing))

    def follow(self, family_plan: Any, difference: Any) -> str:
        return self._spoilt(super().follow(family_plan, difference))

    def _spoilt(self, text: str) -> str:
        return text.replace("-m recent --set", "-m nfacct --nfacct-name nonesuch -m recent --set")


@pytest.mark.parametrize("backend", BACKENDS)
def test_while_the_kernel_refuses_something_the_rules_of_before_stay(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    monkeypatch.setattr(module, "Tables", Refused)
    known, proxier = state(objects(count=6)), started(loop, backend)

    async def find() -> None:
        runner = SyncRunner(known, proxier, lambda: (NODE_VIEW, IN_MODE), SyncTiming(0.0), kinds=frozenset())
        work = asyncio.create_task(runner.run())
        try:
            await until(runner.established.is_set, "rules are written")
            before = saved(backend)
            runner.changed(changed(known, [*service(7, endpoints(7, *ENDS), sessionAffinity="ClientIP")]))
            await until(lambda: runner.stats.failures > 1, "it is tried again")
            assert saved(backend) == before
            assert set(runner.rejected) == ({("shop", "s7")} if backend == "nft" else set())
            runner.changed(changed(known, [*service(7, endpoints(7, *ENDS))]))
            await until(lambda: not (runner.rejected or runner.stats.services.pending), "it is served")
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    loop.run_until_complete(find())
    followed = saved(backend)
    assert not [chain for chain in followed if "KDNS" in chain]
    loop.run_until_complete(remove_chains(None, Footprint()))
    loop.run_until_complete(started(loop, backend).sync_full(plan(state(objects(count=7)), NODE_VIEW, IN_MODE)))
    assert {chain for chain in followed if "KUBE" in chain} == {chain for chain in saved(backend) if "KUBE" in chain}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_chain_that_others_use_stays_and_is_empty(loop: asyncio.AbstractEventLoop, backend: Backend) -> None:
    loop.run_until_complete(started(loop, backend).sync_full(plan(state(objects()), NODE_VIEW, IN_MODE)))
    run(f"iptables-{backend}-restore --noflush", "*nat\n:MINE - [0:0]\n-A MINE -j KUBE-MARK-MASQ\nCOMMIT\n")
    loop.run_until_complete(remove_chains(None, Footprint()))
    found = saved(backend)
    assert [chain for chain in found if "KUBE" in chain] == ["iptables nat KUBE-MARK-MASQ"]
    assert found["iptables nat KUBE-MARK-MASQ"] == []
    run(f"iptables-{backend} -t nat -F MINE")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rule_of_others_that_leads_to_a_service_stops_nothing(
    loop: asyncio.AbstractEventLoop, backend: Backend
) -> None:
    loop.run_until_complete(remove_chains(None, Footprint()))
    used, proxier = port_chains(FIRST).cluster, started(loop, backend)
    without = plan(state(objects(count=0)), NODE_VIEW, IN_MODE)
    loop.run_until_complete(proxier.sync_full(without))
    fresh = saved(backend)
    loop.run_until_complete(proxier.sync_full(plan(state(objects()), NODE_VIEW, IN_MODE)))
    run(f"iptables-{backend}-restore --noflush", f"*nat\n:MINE - [0:0]\n-A MINE -j {used}\nCOMMIT\n")
    loop.run_until_complete(proxier.sync_full(without))
    found = saved(backend)
    assert found.pop(f"iptables nat {used}") == []
    assert found.pop("iptables nat MINE")
    assert found == fresh
    run(f"iptables-{backend} -t nat -F MINE")
    run(f"iptables-{backend} -t nat -X MINE")
    loop.run_until_complete(proxier.sync_full(without))
    assert saved(backend) == fresh


def test_a_node_that_uses_the_other_back_end_now(loop: asyncio.AbstractEventLoop) -> None:
    made = plan(state(objects()), NODE_VIEW, IN_MODE)
    for before, now in (BACKENDS, BACKENDS[::-1]):
        loop.run_until_complete(started(loop, before).sync_full(made))
        proxier = started(loop, now)
        loop.run_until_complete(proxier.sync_full(made))
        whole = saved(now)
        removed = loop.run_until_complete(remove_chains(None, proxier.footprint))
        assert all(each.endswith(f"iptables-{before}") for each in removed)
        assert not [chain for chain in saved(before) if "KUBE" in chain]
        assert saved(now) == whole
        assert loop.run_until_complete(remove_chains(None, proxier.footprint)) == []
        loop.run_until_complete(remove_chains(None, Footprint()))


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ((), "nft"),
        (("iptables-legacy -t mangle -N KUBE-KUBELET-CANARY",), "legacy"),
        (("ip6tables-legacy -t mangle -N KUBE-IPTABLES-HINT",), "legacy"),
        (("iptables-legacy -t mangle -N KUBE-KUBELET-CANARY", "ip6tables-nft -t mangle -N KUBE-IPTABLES-HINT"), "nft"),
        (("iptables-legacy -A INPUT -j ACCEPT",), "legacy"),
        (("iptables-legacy -A INPUT -j ACCEPT", "ip6tables-nft -A INPUT -j ACCEPT"), "nft"),
    ],
)
def test_which_back_end_a_node_uses(loop: asyncio.AbstractEventLoop, lines: tuple[str, ...], wanted: str) -> None:
    for line in lines:
        run(line)
    assert preferred_backend() == wanted
    assert loop.run_until_complete(floors.unsupported(Settings())) == ""
    assert loop.run_until_complete(floors.start(Settings())).footprint.part(IptablesPart)
    assert not any("KDNS" in chain for backend in BACKENDS for chain in saved(backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_clients_with_affinity_are_kept(loop: asyncio.AbstractEventLoop, backend: Backend) -> None:
    proxier, known = started(loop, backend), state(objects(sessionAffinity="ClientIP"))
    planner = Planner(known, NODE_VIEW, IN_MODE)
    loop.run_until_complete(proxier.sync_full(planner.plan))
    clients = Path("/proc/self/net/xt_recent", endpoint_chain(FIRST, "10.1.0.2:8080"))
    clients.write_text("+192.0.2.7")
    for ends in (("p1", "r1"), ENDS):
        differences = planner.changed(changed(known, objects(*ends, sessionAffinity="ClientIP")))
        loop.run_until_complete(proxier.sync_partial(planner.plan, differences))
    loop.run_until_complete(proxier.sync_full(planner.plan))
    loop.run_until_complete(started(loop, backend).sync_full(planner.plan))
    assert clients.read_text().startswith("src=192.0.2.7 ")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_has_the_line_that_is_wrong(loop: asyncio.AbstractEventLoop, backend: Backend) -> None:
    programs: Programs = loop.run_until_complete(installed())[backend]
    text = "*filter\n:MINE - [0:0]\n-A MINE -p nonsense -j ACCEPT\nCOMMIT\n"
    with pytest.raises(ApplyError, match="-A MINE -p nonsense -j ACCEPT"):
        loop.run_until_complete(programs.restore("IPv4", text))
    with pytest.raises(ApplyError, match="-A MINE -p nonsense -j ACCEPT"):
        loop.run_until_complete(programs.restore("IPv6", text))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_counted(loop: asyncio.AbstractEventLoop, backend: Backend) -> None:
    proxier, known = started(loop, backend), state(objects())
    planner = Planner(known, NODE_VIEW, IN_MODE)
    rows = MetricFamilies()
    proxier.counters.register(rows)

    async def sync() -> None:
        await proxier.sync_full(planner.plan)
        differences = planner.changed(changed(known, objects("p1")))
        await proxier.sync_partial(planner.plan, differences)
        run(f"iptables-{backend} -t nat -F KUBE-SERVICES")
        differences = planner.changed([known.delete(*names(objects())[0])])  # type: ignore[list-item]
        with pytest.raises(ApplyError):
            await proxier.sync_partial(planner.plan, differences)
        await proxier.sync_full(planner.plan)
        await proxier.sync_partial(planner.plan, planner.changed([]))
        await proxier.counters.read(planner.plan)

    loop.run_until_complete(sync())
    samples = {
        (sample.name, *sample.labels.values()): sample.value for family in rows.collect() for sample in family.samples
    }
    for family, program in zip(FAMILIES, ("iptables", "ip6tables"), strict=True):
        for table in ("nat", "filter"):
            own = (
                len(rules) for chain, rules in saved(backend).items() if chain.startswith(f"{program} {table} KUBE-")
            )
            assert samples["kubeproxy_sync_proxy_rules_iptables_total", family, table] == sum(own) > 0
            assert samples["kubeproxy_sync_proxy_rules_iptables_last", family, table] > 0
    failures = "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total"
    assert [samples[failures, family] for family in FAMILIES] == [1, 0]
    if proxier._features.nfacct:  # noqa: SLF001 - whether the kernel has it
        assert samples["kubeproxy_iptables_ct_state_invalid_dropped_packets_total",] == 0
        assert samples["kubeproxy_iptables_localhost_nodeports_accepted_packets_total",] == 0
