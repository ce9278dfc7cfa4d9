"""Mode iptables without a kernel: what monitors make of messages, what restores leave, and which programs are taken."""
# ruff: noqa: SLF001 - the tests play the kernel

import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import pytest

from kdns.errors import ApplyError, BusyError
from kdns.net import FAMILIES, Family
from kdns.netlink.io import nfacct, xtables
from kdns.netlink.protocol import attribute, messages
from kdns.netlink.xtables import HOOKS, TableContent
from kdns.proxy.iptables.base_chains import JUMPS
from kdns.proxy.iptables.io import proxier as module
from kdns.proxy.iptables.io import start as floors
from kdns.proxy.iptables.io.proxier import IptablesProxier
from kdns.proxy.iptables.messages import changes_rules
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.state import ProxyState
from kdns.proxy.settings.settings import Conntrack, Settings
from kdns.proxy.sync.io.proxier import Footprint
from kdns.proxy.xtables.io import clean_up, programs
from kdns.proxy.xtables.io.programs import CHECK, Programs, choose, installed, rule_words
from kdns.proxy.xtables.io.restores import ExpectedRules
from kdns.proxy.xtables.rules import inserted

NEW_TABLE, DELETE_TABLE, NEW_CHAIN, DELETE_CHAIN, NEW_RULE, DELETE_RULE, GENERATION = 0, 2, 3, 5, 6, 8, 15


EXPRESSIONS = 4


def message(kind: int, *attributes: tuple[int, str], family: int = socket.AF_INET, port: int = 7) -> bytes:
    """A message; expressions are the chain that a verdict in them leads to."""
    rows = [(of, text.encode() + b"\0") for of, text in attributes]
    rows = [(of, attribute(2, text) if of == EXPRESSIONS else text) for of, text in rows]
    body = bytes((family, 0, 0, 0)) + b"".join(attribute(*row) for row in rows)
    return struct.pack("=IHHII", 16 + len(body), 10 << 8 | kind, 0, 0, port) + body


@pytest.mark.parametrize(
    ("kind", "attributes", "wanted"),
    [
        (NEW_RULE, ((1, "nat"), (2, "KUBE-SERVICES")), True),
        (DELETE_RULE, ((1, "nat"), (2, "KUBE-SVC-AAAAAAAAAAAAAAAA")), True),
        (DELETE_CHAIN, ((1, "mangle"), (3, "KUBE-PROXY-CANARY")), True),
        (NEW_CHAIN, ((1, "filter"), (3, "KUBE-NODEPORTS")), True),
        (DELETE_RULE, ((1, "filter"), (2, "FORWARD"), (EXPRESSIONS, "KUBE-FORWARD")), True),
        (DELETE_TABLE, ((1, "nat"),), True),
        (DELETE_TABLE, ((1, "raw"),), False),
        (NEW_TABLE, ((1, "nat"),), False),
        (NEW_RULE, ((1, "filter"), (2, "FORWARD"), (EXPRESSIONS, "KUBE-FORWARD")), False),
        (NEW_RULE, ((1, "filter"), (2, "KUBE-FIREWALL")), False),
        (NEW_RULE, ((1, "filter"), (2, "INPUT"), (EXPRESSIONS, "KUBE-FIREWALL")), False),
        (NEW_CHAIN, ((1, "filter"), (3, "KUBE-FIREWALL")), False),
        (DELETE_RULE, ((1, "filter"), (2, "KUBE-FIREWALL")), True),
        (DELETE_RULE, ((1, "filter"), (2, "INPUT"), (EXPRESSIONS, "KUBE-FIREWALL")), True),
        (DELETE_CHAIN, ((1, "filter"), (3, "KUBE-FIREWALL")), True),
        (DELETE_RULE, ((1, "nat"), (2, "KUBE-FIREWALL")), False),
        (NEW_RULE, ((1, "filter"), (2, "KUBE-ROUTER-INPUT")), False),
        (NEW_RULE, ((1, "filter"), (2, "cali-FORWARD")), False),
        (NEW_RULE, ((1, "raw"), (2, "KUBE-SERVICES")), False),
        (NEW_CHAIN, ((1, "mangle"), (3, "KUBE-KUBELET-CANARY")), False),
    ],
)
def test_which_changes_are_ours(kind: int, attributes: tuple[tuple[int, str], ...], wanted: bool) -> None:
    assert [changes_rules(each) for each in messages(message(kind, *attributes))] == [wanted]
    assert [changes_rules(each) for each in messages(message(kind, *attributes, family=1))] == [False]


async def test_sizes_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {("IPv4", "nat"): (5, 1000)}
    monkeypatch.setattr(xtables, "legacy_tables", lambda _family: ["nat", "raw"])

    def size(family: Family, table: str) -> tuple[int, int]:
        assert threading.current_thread() is not threading.main_thread()  # the kernel may keep it waiting
        return sizes[family, table]

    monkeypatch.setattr(xtables, "legacy_size", size)
    proxier: Any = IptablesProxier(Programs("legacy", (1, 8, 9), "-legacy"), FAMILIES[:1])
    assert (proxier.is_polled, proxier.pause_s) == (True, module.POLL_S)
    looks: Iterator[str | OSError] = iter([BlockingIOError(), "changed before the first look", "changed"])

    def difference() -> str:
        look = next(looks)
        if isinstance(look, OSError):
            raise look
        return look

    monkeypatch.setattr(proxier._restores, "difference", difference)
    with pytest.raises(BlockingIOError):
        await proxier.difference()
    assert await proxier.difference() == "changed before the first look"
    assert [await proxier.difference() for _ in range(3)] == [""] * 3
    sizes["IPv4", "nat"] = 7, 1400
    assert await proxier.difference() == "changed"


@pytest.mark.parametrize("changes", [0, 3])
def test_a_table_that_changes_while_it_is_read(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    refusals = [BlockingIOError()] * changes

    def read(_family: Family, _table: str) -> TableContent:
        if refusals:
            raise refusals.pop()
        return TableContent(Counter(INPUT=1))

    monkeypatch.setattr(xtables, "_legacy_content", read)
    assert xtables.legacy_content("IPv4", "filter").rules == {"INPUT": 1}


WHOLE = """*filter
:KUBE-FORWARD - [0:0]
-A KUBE-FORWARD -j ACCEPT
COMMIT
*nat
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
-A KUBE-SVC-A -m comment --comment ":KUBE -X" -j KUBE-SEP-A
-A KUBE-SEP-A -j RETURN
-A KUBE-SEP-A -j RETURN
COMMIT
"""
PARTIAL = """*nat
:KUBE-SVC-B - [0:0]
:KUBE-SVC-A - [0:0]
-A KUBE-SVC-B -j RETURN
-I KUBE-SEP-A -j RETURN
-D KUBE-SEP-A -j ACCEPT
-X KUBE-SVC-A
COMMIT
"""


def test_what_restores_leave() -> None:
    rules = ExpectedRules()
    rules.restored(WHOLE)
    assert rules.rules == {"filter": {"KUBE-FORWARD": 1}, "nat": {"KUBE-SVC-A": 1, "KUBE-SEP-A": 2}}
    assert (rules.written, rules.total("nat"), rules.total("mangle")) == ({"filter": 1, "nat": 3}, 3, 0)
    rules.restored(PARTIAL)
    assert rules.rules == {"filter": {"KUBE-FORWARD": 1}, "nat": {"KUBE-SVC-B": 1, "KUBE-SEP-A": 2}}
    assert rules.written == {"nat": 2}
    jumps = [jump for jump in JUMPS if jump.chain == "POSTROUTING"]
    there = TableContent(
        Counter({"KUBE-SVC-B": 1, "KUBE-SEP-A": 2, "OTHERS": 9}), {("POSTROUTING", "KUBE-POSTROUTING")}
    )
    assert list(rules.missing("nat", there, jumps)) == []
    assert list(rules.missing("nat", TableContent(Counter({"KUBE-SVC-B": 2})), jumps)) == [
        "no nat KUBE-SEP-A",
        "nat KUBE-SVC-B has 2 rules, not 1",
        "nat POSTROUTING does not lead to KUBE-POSTROUTING",
    ]
    rules.restored("*filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL -j DROP\nCOMMIT\n")
    for count, wanted in ((2, []), (1, []), (0, ["filter KUBE-FIREWALL has 0 rules, not 1"])):
        assert (
            list(rules.missing("filter", TableContent(Counter({"KUBE-FIREWALL": count, "KUBE-FORWARD": 1})), ()))
            == wanted
        )


# Programs.

Run = Callable[..., Any]


class FakePrograms:
    """What each program is asked, and how it answers: exit code, output and errors by a word of its arguments."""

    def __init__(self, *names: str, version: str = "v1.8.9") -> None:
        self.names, self.version = names, version
        self.calls: list[str] = []
        self.restored: list[str] = []
        self.answers: dict[str, tuple[int, str, str]] = {}

    def path(self, name: str) -> str | None:
        return name if name.startswith(self.names or "/") else None

    async def run(
        self, argv: tuple[str, ...], restored: str | None = None, *, changes: object = None
    ) -> programs.Result:
        del changes
        self.calls.append(" ".join(argv))
        if argv[1:] == ("--version",):
            return programs.Result(0, f"{argv[0]} {self.version} (nf_tables)", "")
        if restored is not None:
            self.restored.append(restored)
        found = next((self.answers[word] for word in self.answers if word in self.calls[-1]), (0, "", ""))
        return programs.Result(*found)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakePrograms]:
    def make(*names: str, **how: str) -> FakePrograms:
        made = FakePrograms(*names, **how)
        monkeypatch.setattr(programs, "_path", made.path)
        monkeypatch.setattr(programs, "_run", made.run)
        monkeypatch.setattr(programs, "preferred_backend", lambda: "nft")
        return made

    return make


async def test_which_programs_there_are(fake: Callable[..., FakePrograms]) -> None:
    fake("ip")
    assert [(each.backend, each.suffix) for each in (await installed()).values()] == [
        ("nft", "-nft"),
        ("legacy", "-legacy"),
    ]
    fake("iptables-legacy", "ip6tables-legacy")
    assert list(await installed()) == ["legacy"]
    only = fake()
    only.path = lambda name: name if "-nft" not in name and "-legacy" not in name else None  # type: ignore[method-assign]
    programs._path = only.path
    assert [(each.backend, each.suffix, each.version) for each in (await installed()).values()] == [
        ("nft", "", (1, 8, 9))
    ]


async def test_why_a_machine_has_no_mode_iptables(fake: Callable[..., FakePrograms]) -> None:
    fake("none")
    assert await floors.unsupported(Settings()) == (
        "iptables-restore is not installed; install the package iptables, 1.6.2 or later"
    )
    fake("ip", version="v1.6.1")
    assert await floors.unsupported(Settings()) == "iptables is 1.6.1; expected 1.6.2 or later"
    refusing = fake("ip")
    refusing.answers["restore"] = (4, "", "Permission denied (you must be root)\nmore")
    assert await floors.unsupported(Settings()) == (
        "iptables-nft: Permission denied (you must be root); requires the capability CAP_NET_ADMIN, "
        "as root has it or a container is given it"
    )
    lacking = fake("ip")
    lacking.answers["restore"] = (1, "", "iptables-restore: line 3 failed")
    assert "iptables-nft: iptables-restore: line 3 failed (-A KDNS-CHECK -m comment" in await floors.unsupported(
        Settings()
    )
    lacking.answers = {"iptables-nft-restore": (1, "", "no nf_tables here")}
    found, reason = await choose()
    assert (found and found.backend, reason) == ("legacy", "")


async def test_a_lock_is_waited_for_before_a_back_end_is_chosen(
    fake: Callable[..., FakePrograms], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_PAUSE_S", 0.0)
    made = fake("ip")
    run, refusals = made.run, [4, 4, 4]

    async def busy(argv: tuple[str, ...], *rest: Any, **how: Any) -> programs.Result:
        if "iptables-legacy-restore" in argv and refusals:
            return programs.Result(refusals.pop(), "", "Another app is currently holding the xtables lock")
        return await run(argv, *rest, **how)

    monkeypatch.setattr(programs, "_run", busy)
    monkeypatch.setattr(programs, "preferred_backend", lambda: "legacy")
    found, reason = await choose()
    assert (found and found.backend, reason) == ("legacy", "")
    refusals.extend([4] * 100)
    assert found
    with pytest.raises(BusyError):
        await found.restore("IPv4", "")
    assert "holding the xtables lock" in await found.refusal("IPv4")
    assert await found.refusal("IPv6") == ""
    made.answers["-S"] = (4, "", "Another app is currently holding the xtables lock")
    with pytest.raises(BusyError):
        await found.rules("IPv4", "nat", "OUTPUT")


async def test_what_a_start_finds(
    fake: Callable[..., FakePrograms], monkeypatch: pytest.MonkeyPatch, logs: list[MutableMapping[str, Any]]
) -> None:
    def no_counters(_names: object) -> None:
        raise OSError

    monkeypatch.setattr(nfacct, "ensure_counters", lambda _: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    made = fake("ip")
    proxier: Any = await floors.start(Settings(conntrack=Conntrack(tcp_be_liberal=True)))
    found = proxier._features
    assert (proxier._families, found.nfacct, found.tcp_be_liberal) == (FAMILIES, True, True)
    made.answers["ip6tables"] = (3, "", "can't initialize ip6tables table `nat'")
    logs.clear()
    made.answers["iptables-nft-restore"] = (0, "", "")
    assert (await floors.start(Settings()))._families == ("IPv4",)
    assert [line["reason"] for line in logs if line["event"] == "virtual IPs of IPv6 are not served"] == [
        "ip6tables-nft: can't initialize ip6tables table `nat'"
    ]
    monkeypatch.setattr(nfacct, "ensure_counters", no_counters)
    assert not (await floors.start(Settings()))._features.nfacct


async def test_a_sync_is_one_restore_and_then_the_jumps(
    fake: Callable[..., FakePrograms], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fake("ip")
    there = next(jump for jump in JUMPS if jump.chain == "POSTROUTING")
    made.answers["-S POSTROUTING"] = (0, f"-P POSTROUTING ACCEPT\n-A POSTROUTING {there}\n", "")
    targets = {"POSTROUTING": {"KUBE-POSTROUTING"}, "INPUT": {"KUBE-NODEPORTS", "KUBE-ROUTER"}}
    monkeypatch.setattr(xtables, "jump_targets", lambda _backend, _family, _table, chain: targets.get(chain, set()))
    monkeypatch.setattr(xtables, "chains_by_table", lambda *_: {"nat": ["KUBE-SEP-AAAAAAAAAAAAAAAA", "MINE"]})
    proxier = IptablesProxier(Programs("nft", (1, 8, 9), "-nft"), FAMILIES[:1])
    empty = plan(ProxyState(), NodeView(), ProxyConfig(mode=IPTABLES))
    await proxier.sync_full(empty)
    first, *_, last = made.calls
    assert first == last == "iptables-nft-restore -w 5 --noflush"
    whole, jumps = made.restored
    assert "-X KUBE-SEP-AAAAAAAAAAAAAAAA" in whole
    assert "MINE" not in whole
    assert jumps == inserted([jump for jump in JUMPS if jump != there])
    made.calls.clear()
    targets |= {chain: {jump.rule[-1] for jump in JUMPS if jump.chain == chain} for chain in HOOKS}
    await proxier.sync_full(empty)
    assert made.calls == [first]  # its own jumps are not examined again
    made.answers = {"restore": (1, "", "Another app is currently holding the xtables lock")}
    with pytest.raises(ApplyError, match="holding the xtables lock"):
        await proxier.sync_full(empty)


async def test_rules_are_tried_where_nothing_leads(fake: Callable[..., FakePrograms]) -> None:
    made = fake("ip")
    nft = Programs("nft", (1, 8, 9), "-nft")
    rule = f"-A {CHECK} -j RETURN"
    assert await nft.check("IPv4", {"nat": (rule,), "filter": ()}) == ""
    begin = f":{CHECK} - [0:0]\n"
    removal = "".join(f"*{table}\n{begin}-X {CHECK}\nCOMMIT\n" for table in ("nat", "filter"))
    assert made.restored == [f"*nat\n{begin}{rule}\nCOMMIT\n*filter\n{begin}COMMIT\n", removal]
    made.restored.clear()
    made.answers = {"restore": (4, "", "line 3: RULE_APPEND failed (No such file or directory)")}
    assert (
        await nft.check("IPv4", {"nat": (rule,)}) == f"line 3: RULE_APPEND failed (No such file or directory) ({rule})"
    )
    assert len(made.restored) == 2
    made.answers = {"restore": (1, "", "Another app is currently holding the xtables lock")}
    with pytest.raises(BusyError, match="holding the xtables lock"):
        await nft.check("IPv4", {"nat": (rule,)})


@pytest.mark.parametrize(
    ("errors", "wanted"),
    [
        ("line 3: RULE_APPEND failed (No such file or directory)", {("shop", "web")}),
        ("Another app is currently holding the xtables lock", set()),
        ("line 2 failed", set()),
    ],
)
async def test_the_service_whose_rule_is_refused_is_named(
    fake: Callable[..., FakePrograms], errors: str, wanted: set[tuple[str, str]]
) -> None:
    fake("ip").answers["restore"] = (1, "", errors)
    proxier: Any = IptablesProxier(nft := Programs("nft", (1, 8, 9), "-nft"), FAMILIES[:1])
    with pytest.raises(ApplyError):
        async with proxier._syncing():
            await nft.restore("IPv4", '*nat\n:A - [0:0]\n-A A -m comment --comment "shop/web:http" -m recent\n')
    assert proxier.rejected.keys() == wanted
    async with proxier._syncing():
        pass
    assert not proxier.rejected


@pytest.mark.parametrize(
    "answer",
    [
        (4, "", "Another app is currently holding the xtables lock; still 0s 0us time ahead"),
        (-9, "", ""),
        (1, "", "iptables-restore: Cannot allocate memory"),
    ],
)
async def test_what_is_no_verdict_about_rules(fake: Callable[..., FakePrograms], answer: tuple[int, str, str]) -> None:
    fake("ip").answers["restore"] = answer
    with pytest.raises(BusyError):
        await Programs("legacy", (1, 8, 9), "-legacy").check("IPv4", {"nat": ()})


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (
            '-A INPUT -m comment --comment "two words" -j KUBE-A',
            ["-m", "comment", "--comment", "two words", "-j", "KUBE-A"],
        ),
        ('-A INPUT -m comment --comment "it\\\'s \\"x\\" \\\\ a', []),
        ("-A INPUT", []),
    ],
)
def test_arguments_of_listed_rules(rule: str, wanted: list[str]) -> None:
    assert rule_words(rule) == wanted


@pytest.mark.parametrize(
    ("table", "chain", "wanted"),
    [
        ("nat", "KUBE-SERVICES", True),
        ("nat", "KUBE-SVC-AAAAAAAAAAAAAAAA", True),
        ("nat", "KUBE-FIREWALL", False),
        ("nat", "KUBE-LOAD-BALANCER", True),
        ("filter", "KUBE-IPVS-FILTER", True),
        ("mangle", "KUBE-PROXY-CANARY", True),
        ("mangle", "KUBE-KUBELET-CANARY", False),
        ("filter", "KUBE-ROUTER-INPUT", False),
        ("filter", "KUBE-SVC-AAAAAAAAAAAAAAAA", False),
        ("raw", "KUBE-SERVICES", False),
        ("nat", "KDNS-CHECK", True),
        ("raw", "KDNS-CHECK", False),
    ],
)
def test_chains_of_proxies(table: str, chain: str, wanted: bool) -> None:
    assert clean_up.is_proxys(table, chain) == wanted


async def test_everything_else_is_removed_where_a_part_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []

    async def remove(of: Programs, family: str, *_: object) -> list[str]:
        if not done:
            done.append(("nothing", family))
            raise ApplyError(("iptables-restore",), "busy")
        done.append((of.backend, family))
        return []

    async def programs_here() -> dict[str, Programs]:
        return {backend: Programs(backend, (1, 8, 9), "") for backend in programs.BACKENDS}

    monkeypatch.setattr(xtables, "chains_by_table", lambda _backend, _family: {"nat": ["KUBE-SERVICES"]})
    monkeypatch.setattr(clean_up, "installed", programs_here)
    monkeypatch.setattr(clean_up, "remove_stale", remove)
    with pytest.raises(ApplyError, match="busy"):
        await clean_up.remove_chains(None, Footprint())
    assert done == [("nothing", "IPv4"), ("nft", "IPv6"), ("legacy", "IPv4"), ("legacy", "IPv6")]


LOCKS = (
    ("Fatal: can't open lock file /run/xtables.lock: Read-only file system\n", "NET_RAW"),
    ("Fatal: can't open lock file /run/xtables.lock: Permission denied\n", "NET_RAW"),
    ("iptables: Permission denied (you must be root)\n", "NET_ADMIN"),
    ("Another app is currently holding the xtables lock\n", ""),
)


@pytest.mark.parametrize(("errors", "advice"), LOCKS)
def test_a_lock_that_cannot_be_had_is_told_with_what_it_takes(errors: str, advice: str) -> None:
    reason = programs._reason(programs.Result(4, "", errors))
    assert reason.startswith(errors.strip())
    assert ("requires" in reason or "CAP" in reason) == bool(advice)
    assert advice in reason
