"""From one mode to the next: what goes on, what ends, and when what was there before is removed."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from fake_modes import answers, fake_row
from structlog.testing import capture_logs

from kdns.errors import ApplyError, KdnsError
from kdns.net import Family
from kdns.netlink.io.unix_sockets import user_of
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import CleanUp, Footprint, RuleAuthors, Runtime
from kdns.proxy.takeover.io import kube_proxy, owner
from kdns.proxy.takeover.io import takeover as takeover_module
from kdns.proxy.takeover.io.takeover import Takeover, remove_everything


class Kernel:
    """What is in the kernel: a clean-up removes everything else than what is kept, and fails so many times."""

    def __init__(self, done: list[str], *there: str, failures: int = 0) -> None:
        self.done, self.there, self.failures = done, list(there), failures
        self.owners = 0

    async def clean_up(self, settings: Settings, kept: Footprint) -> Sequence[str]:
        del settings
        if self.failures:
            self.failures -= 1
            raise ApplyError(("nft",), "busy")
        spared = {"kube-proxy"} if kept.keep_kube_proxy else set()
        gone = [each for each in self.there if each not in {*kept.parts, *spared}]
        self.there = [each for each in self.there if each not in gone]
        self.done.append(f"removed {' '.join(gone) or 'nothing'}")
        return gone

    def own(self) -> socket.socket:
        self.owners += 1
        return socket.socket(socket.AF_UNIX)


def takeover_of(
    kernel: Kernel, *, keep_rules: bool = True, alive: Callable[[], Awaitable[str]] | None = None
) -> Takeover:
    return Takeover(
        (CleanUp(kernel.clean_up),),
        keep_rules=keep_rules,
        is_kube_proxy=alive or answers([""]),
        own=kernel.own,
    )


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RETRY_S", "WATCH_S", "POLL_S"):
        monkeypatch.setattr(takeover_module, name, 0.0)


async def started(takeover: Takeover, row: Runtime) -> None:
    await takeover.start(row, Settings(mode=row.mode.name))


@pytest.mark.parametrize("keep_rules", [True, False])
async def test_what_was_before_is_removed_when_it_is_cleaned_up(keep_rules: bool) -> None:
    done: list[str] = []
    kernel = Kernel(done, "kube-proxy", "a", "b")
    async with takeover_of(kernel, keep_rules=keep_rules) as takeover:
        await started(takeover, fake_row("a", done))
        assert done == ["a started in mode a"]
        await takeover.clean_up(Settings(), lambda: done.append("flows"))
        assert done[1:] == ["removed kube-proxy b", "flows"]
    assert done[3:] == [f"a closed, rules {'stay' if keep_rules else 'go'}"]


async def test_rules_of_a_kube_proxy_stay_until_it_has_ended() -> None:
    done: list[str] = []
    kernel = Kernel(done, "kube-proxy", "old", "a")
    with capture_logs() as logged:
        async with takeover_of(kernel, alive=answers(["process 7", "process 7", ""])) as takeover:
            await started(takeover, fake_row("a", done))
            await takeover.clean_up(Settings())
    assert done[1:] == ["removed old", "removed nothing", "removed kube-proxy", "a closed, rules stay"]
    assert [(each["event"], each.get("seen")) for each in logged if each["log_level"] == "warning"] == [
        ("a kube-proxy is at work: its rules stay until it has ended", "process 7")
    ]


async def test_what_a_kube_proxy_leaves_that_comes_later_is_removed_too() -> None:
    done: list[str] = []
    kernel = Kernel(done, "a")
    signs = answers(["", "", "process 7", "process 7", "process 7", ""])
    async with takeover_of(kernel, alive=signs) as takeover:
        await started(takeover, fake_row("a", done))
        await takeover.clean_up(Settings())
        kernel.there.append("kube-proxy")
        watch = asyncio.create_task(takeover.watch_kube_proxy(Settings()))
        async with asyncio.timeout(30):
            while "kube-proxy" in kernel.there:  # noqa: ASYNC110 - the kernel of the test tells nobody
                await asyncio.sleep(0)
        watch.cancel()
    assert done[1:] == [*["removed nothing"] * 3, "removed kube-proxy", "a closed, rules stay"]


async def test_a_clean_up_that_fails_is_tried_again_and_told_once() -> None:
    done: list[str] = []
    kernel = Kernel(done, "old", failures=3)
    with capture_logs() as logged:
        async with takeover_of(kernel) as takeover:
            await started(takeover, fake_row("a", done))
            await takeover.clean_up(Settings())
    assert "removed old" in done
    assert [each["reason"] for each in logged if each["log_level"] == "warning"] == ["nft: busy"]


@pytest.mark.parametrize(("failures", "pauses"), [(1, [10.0]), (4, [10.0, 20.0, 40.0, 80.0]), (9, [10.0, 600.0])])
async def test_the_longer_a_clean_up_fails_the_later_it_is_tried_again(
    failures: int, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(takeover_module, "RETRY_S", 10.0)
    kernel = Kernel([], "old", failures=failures)
    async with takeover_of(kernel) as takeover:
        await started(takeover, fake_row("a", []))
        await takeover.clean_up(Settings())
    assert len(slept) == failures
    assert slept == pauses or [slept[0], slept[-1]] == pauses


async def test_a_mode_without_rules_owns_and_removes_nothing() -> None:
    done: list[str] = []
    kernel = Kernel(done, "old")
    async with takeover_of(kernel) as takeover:
        await started(takeover, fake_row("a", done, rules=False))
        await takeover.clean_up(Settings())
    assert (kernel.owners, kernel.there) == (0, ["old"])


async def test_who_finds_another_process_ends_and_leaves_its_rules() -> None:
    done: list[str] = []

    def taken() -> socket.socket:
        raise KdnsError("process 7 serves this network namespace already")

    async with Takeover((), keep_rules=False, own=taken) as takeover:
        with pytest.raises(KdnsError, match="process 7"):
            await started(takeover, fake_row("a", done))
    assert done == ["a started in mode a", "a closed, rules stay"]


def told(*found: RuleAuthors) -> Callable[[], Awaitable[RuleAuthors]]:
    """What the kernel holds, one look after the other; the last one stays."""
    left = list(found)

    async def authors() -> RuleAuthors:
        return left.pop(0) if len(left) > 1 else left[0]

    return authors


NOBODYS, OURS, THEIRS, BOTHS = (
    RuleAuthors(*each) for each in ((False, False), (True, False), (False, True), (True, True))
)


async def test_everything_of_kdns_is_removed_at_request_even_where_a_part_fails() -> None:
    done: list[str] = []
    nft, iptables = Kernel(done, "kdns", "kube-proxy"), Kernel(done, "chains", failures=1)
    clean_ups = (CleanUp(iptables.clean_up, told(BOTHS)), CleanUp(nft.clean_up))

    async def removed() -> list[str]:
        return await remove_everything(Settings(), clean_ups, is_kube_proxy=answers([""]), own=nft.own)

    with pytest.raises(ApplyError, match="busy"):
        await removed()
    assert (nft.there, iptables.there) == (["kube-proxy"], ["chains"])
    assert await removed() == ["chains"]
    assert await removed() == []


SHARED: frozenset[tuple[str, Family]] = frozenset({("nft", "IPv4"), ("nft", "IPv6")})
LOOKS: tuple[tuple[str, tuple[RuleAuthors, ...], list[str], str], ...] = (
    ("nothing of kdns", (NOBODYS,), ["process 7"], "removed nothing"),
    ("a kube-proxy's rules only", (THEIRS,), ["process 7"], "removed nothing"),
    ("both have rules", (BOTHS,), ["process 7"], "removed kdns"),
    ("both have rules, and the kube-proxy restarts", (BOTHS,), [""], "removed kdns"),
    ("a kube-proxy without rules", (OURS,), ["process 7"], ""),
    ("a kube-proxy that takes its ports late", (OURS,), ["", "", "process 7"], ""),
    ("a kube-proxy that writes its rules meanwhile", (OURS, OURS, BOTHS), ["", ""], "removed kdns"),
    ("kdns's chains beside a kube-proxy of another mode", (RuleAuthors(True, True, SHARED),), [""], "removed kdns"),
)


@pytest.mark.parametrize(("authors", "signs", "wanted"), [row[1:] for row in LOOKS], ids=[row[0] for row in LOOKS])
async def test_kdns_leaves_a_node_to_a_kube_proxy_that_has_rules(
    authors: tuple[RuleAuthors, ...], signs: list[str], wanted: str
) -> None:
    done: list[str] = []
    there = ["kdns"] if authors[0].has_kdns else []
    kernel, kept = Kernel(done, *there, "kube-proxy"), []

    async def clean_up(settings: Settings, footprint: Footprint) -> Sequence[str]:
        kept.append(footprint)
        return await kernel.clean_up(settings, footprint)

    with nullcontext() if wanted else pytest.raises(KdnsError, match="run --cleanup again"):
        await remove_everything(
            Settings(),
            (CleanUp(clean_up, told(*authors)),),
            is_kube_proxy=answers(signs),
            own=kernel.own,
            patience_s=600.0,
        )
    assert done == ([wanted] if wanted else [])
    assert kept == ([Footprint(keep_kube_proxy=True, marked=authors[-1].marked)] if wanted else [])


async def test_own_ports_are_told_from_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert port in kube_proxy.own_ports()
    assert port not in kube_proxy.own_ports()


PAGES = (
    ("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\niptables", r"(?:iptables|ipvs)\Z", True),
    ("HTTP/1.1 200 OK\r\n\r\niptables and more", r"(?:iptables|ipvs)\Z", False),
    ('HTTP/1.0 503 Service Unavailable\r\n\r\n{"lastUpdated": 1,"healthy":false}', r'\{.*"healthy"', True),
    ("HTTP/1.0 404 Not Found\r\n\r\niptables", r"iptables", False),
    ("hello", r"hello", False),
    ("", r"", False),
)


@pytest.mark.parametrize(("answer", "body", "is_one"), PAGES)
async def test_its_pages_say_whether_a_kube_proxy_is_there(
    monkeypatch: pytest.MonkeyPatch, answer: str, body: str, is_one: bool
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.write(answer.encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(kube_proxy, "PAGES", ((port, "/proxyMode", body.encode()),))
    monkeypatch.setattr(kube_proxy, "_process", lambda: 0)
    assert not await kube_proxy.kube_proxy(), "it is this process that listens there"
    monkeypatch.setattr(kube_proxy, "own_ports", set)
    monkeypatch.setattr(kube_proxy, "ROOT", os.getuid())
    assert bool(await kube_proxy.kube_proxy()) == is_one
    monkeypatch.setattr(kube_proxy, "ROOT", os.getuid() + 1)
    assert not await kube_proxy.kube_proxy(), "another user listens there"
    server.close()
    assert not await kube_proxy.kube_proxy()


def test_its_process_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_proxy, "PAGES", ())
    assert not asyncio.run(kube_proxy.kube_proxy())
    monkeypatch.setattr(kube_proxy, "NAME", Path("/proc/self/comm").read_text().strip())
    assert asyncio.run(kube_proxy.kube_proxy()).startswith("process ")


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(owner, "NAME", f"\0kdns/test/{os.getpid()}")
    return owner.NAME


@pytest.fixture(params=["bound", "full"])
def other(request: pytest.FixtureRequest, name: str) -> Iterator[str]:
    """A socket that has the name, and takes no connection."""
    with socket.socket(socket.AF_UNIX) as made, socket.socket(socket.AF_UNIX) as waiting:
        made.bind(name)
        if request.param == "full":
            made.listen(0)
            waiting.connect(name)
        yield name


def test_the_own_user_is_refused(other: str) -> None:
    assert other
    with pytest.raises(KdnsError, match="serves this network namespace already"):
        owner.own_network()


def test_another_user_does_not_count(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "user_of", lambda name: 65534 if name == other else None)
    owner.own_network().close()


def test_the_kernel_says_whose_it_is(other: str) -> None:
    assert user_of(other) in {os.getuid(), None}
