"""A start of `kdns up` that fails or succeeds, without the process of its control plane: what it leaves on disk."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from kdns.apps import up
from kdns.apps.control_plane import ControlPlaneOptions
from kdns.apps.serve import serve
from kdns.cluster.io.kubeconfig import kubeconfig
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.errors import ApplyError, CorefileError, KdnsError, ListenError
from kdns.net import HostPort

BEFORE = """
apiVersion: v1
kind: Config
current-context: kdns
clusters: [{name: kdns, cluster: {server: "http://127.0.0.1:8001"}}]  # of the one that runs
users: [{name: kdns, user: {}}]
contexts: [{name: kdns, context: {cluster: kdns, user: kdns}}]
"""


class Started:
    """A control plane that has started, at an address where nobody listens; `dns` is what it was told of DNS."""

    dns = "", 0

    def __init__(self, options: ControlPlaneOptions, *_: object) -> None:
        self.options = options
        self.address, self.applied, self.remarks = ("127.0.0.1", 9), "", ()

    async def start(self) -> None:
        """Nothing to wait for."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def dns_at(self, host: str, port: int) -> None:
        Started.dns = host, port

    def when_ended(self, call: object) -> None:
        """Never."""

    def check(self) -> None:
        """All is well."""


class Said:
    """The lines of the start, each with whether there is a kubeconfig; SIGTERM after the last one."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig, self.lines = kubeconfig, list[tuple[str, bool]]()

    def say(self, text: str) -> None:
        self.lines.append((text, self.kubeconfig.exists()))
        if text == "ready":
            os.kill(os.getpid(), signal.SIGTERM)

    def note(self, text: str) -> None:
        raise AssertionError(text)

    warn = note

    def show(self, text: str) -> None:
        """Nobody looks."""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on, also for UDP."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        yield port


def options(folder: Path, port: int, directive: str, proxy: str = "") -> up.UpOptions:
    (folder / "Corefile").write_text(f".:{port} {{\n bind 127.0.0.1\n {directive}\n}}\n")
    given = ControlPlaneOptions(ClusterConfig(), HostPort("127.0.0.1", 0))
    at = HostPort("127.0.0.1", port)
    return up.UpOptions(given, at, folder / "kdns.kubeconfig", str(folder / "Corefile"), proxy)


def impossible(*_: object) -> AbstractAsyncContextManager[None]:
    raise ApplyError(("nft",), "not permitted")


@pytest.mark.parametrize(
    ("corefile", "raised", "said"),
    [
        ("", ListenError("127.0.0.1:1053", "taken"), "--dns: cannot listen on 127.0.0.1:1053: taken"),
        ("C", ListenError("127.0.0.1:1053", "taken"), "C: cannot listen on 127.0.0.1:1053: taken"),
        ("", CorefileError("built-in", 2, "", "bind: no interface 'x'"), "--dns x:1053: no interface 'x'"),
        ("C", CorefileError("C", 2, "", "bind: no interface 'x'"), "C:2: bind: no interface 'x'"),
    ],
)
def test_errors_of_dns_name_the_flag_or_the_users_corefile(corefile: str, raised: KdnsError, said: str) -> None:
    given = ControlPlaneOptions(ClusterConfig(), HostPort("127.0.0.1", 0))
    options = up.UpOptions(given, HostPort("x", 1053), Path("kdns.kubeconfig"), corefile)
    with pytest.raises(KdnsError) as caught, up.in_words_of_flags(options):
        raise raised
    assert str(caught.value) == said


async def test_a_port_that_is_taken_names_the_corefile_of_serve(tmp_path: Path, taken: int) -> None:
    path = tmp_path / "Corefile"
    path.write_text(f".:{taken} {{\nbind 127.0.0.1\nwhoami\n}}\n")
    async with asyncio.timeout(60):
        with pytest.raises(ListenError, match=rf"^{path}: cannot listen on 127\.0\.0\.1:{taken}: {IN_USE}"):
            await serve(str(path), dns_port=53, say=print)


IN_USE = r"Address already in use by \S+ \(process \d+\); take another port, or 0 for any that is free$"
CASES = {
    "DNS port taken": ("bind 127.0.0.1", "", rf"Corefile: cannot listen on 127\.0\.0\.1:\d+: {IN_USE}"),
    "page taken": ("health 127.0.0.1:{taken}", "", "Corefile: cannot listen on"),
    "Corefile broken late": ("forward . /no/such/file", "", "/no/such/file"),
    "mode impossible": ("whoami", "nftables", "not permitted"),
}


@pytest.mark.parametrize(("directive", "proxy", "reason"), CASES.values(), ids=CASES)
async def test_a_start_that_fails_says_nothing_and_leaves_the_kubeconfig_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int, directive: str, proxy: str, reason: str
) -> None:
    monkeypatch.setattr(up, "ControlPlane", Started)
    monkeypatch.setattr(up, "node_proxy", impossible)
    port = taken if directive.startswith("bind") else 0
    given = options(tmp_path, port, directive.format(taken=taken), proxy)
    given.kubeconfig.write_text(BEFORE)
    said = Said(given.kubeconfig)
    async with asyncio.timeout(60):
        with pytest.raises(KdnsError, match=reason):
            await up.up(given, said)
    assert said.lines == []
    assert given.kubeconfig.read_text() == BEFORE


async def ready(_: object, say: Callable[[str], None], __: object) -> None:
    """The API is not waited for: nobody is there."""
    say("ready")


async def test_the_kubeconfig_is_written_when_everything_listens_and_before_anything_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "ControlPlane", Started)
    monkeypatch.setattr("kdns.apps.serve.say_ready", ready)
    cluster = "cluster.local:0 {\n bind 127.0.0.2\n kubernetes {\n startup_timeout 1ms\n }"
    given = options(tmp_path, 0, f"whoami\n}}\n{cluster}")
    said = Said(given.kubeconfig)
    async with asyncio.timeout(60):
        await up.up(given, said)
    labels = [line[:12].rstrip() for line, _ in said.lines if line[:12].strip()]
    assert list(dict.fromkeys(labels)) == ["api", "metrics", "dns", "kubeconfig", "names", "try", "ready"]
    assert all(exists for _, exists in said.lines)
    assert ("metrics     http://127.0.0.1:9/metrics", True) in said.lines
    assert kubeconfig(str(given.kubeconfig), "")[1] == "http://127.0.0.1:9"
    host, port = Started.dns
    assert host == "127.0.0.2"  # where the block with `kubernetes` is, which is not the first one
    assert any(line.startswith(f"try         dig @{host} -p {port} ") for line, _ in said.lines)
