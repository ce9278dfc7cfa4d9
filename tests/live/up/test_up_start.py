"""A start of `kdns up` that fails or succeeds, without the process of its control plane: what it leaves on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from kdns.aio.kube.kubeconfig import kubeconfig_server
from kdns.apps import up
from kdns.apps.control_plane import ControlPlaneOptions
from kdns.controlplane.meta.cluster_config import ClusterConfig
from kdns.errors import ApplyError, KdnsError
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
    """A control plane that has started, at an address where nobody listens."""

    def __init__(self, *_: object) -> None:
        self.address, self.applied = ("127.0.0.1", 9), 0

    async def start(self) -> None:
        """Nothing to wait for."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def dns_at(self, host: str, port: int) -> None:
        """Nobody asks."""

    def when_ended(self, call: object) -> None:
        """Never."""

    def check(self) -> None:
        """All is well."""


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


CASES = {
    "DNS port taken": ("bind 127.0.0.1", "", "cannot listen on"),
    "page taken": ("health 127.0.0.1:{taken}", "", "cannot listen on"),
    "Corefile broken late": ("forward . /no/such/file", "", "/no/such/file"),
    "mode impossible": ("whoami", "nftables", "not permitted"),
}


@pytest.mark.parametrize(("directive", "proxy", "reason"), CASES.values(), ids=CASES)
async def test_a_start_that_fails_leaves_the_kubeconfig_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int, directive: str, proxy: str, reason: str
) -> None:
    monkeypatch.setattr(up, "ControlPlane", Started)
    monkeypatch.setattr(up, "node_proxy", impossible)
    port = taken if directive.startswith("bind") else 0
    given = options(tmp_path, port, directive.format(taken=taken), proxy)
    given.kubeconfig.write_text(BEFORE)
    async with asyncio.timeout(60):
        with pytest.raises(KdnsError, match=reason):
            await up.up(given, print, print)
    assert given.kubeconfig.read_text() == BEFORE


async def test_the_kubeconfig_is_written_when_everything_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "ControlPlane", Started)
    given, said = options(tmp_path, 0, "whoami"), []

    def say(line: str) -> None:
        said.append((line.partition(" ")[0], given.kubeconfig.exists()))
        if line == "ready":
            os.kill(os.getpid(), signal.SIGTERM)

    async with asyncio.timeout(60):
        await up.up(given, say, print)
    assert dict(said) == {"api": False, "dns": False, "kubeconfig": True, "try": True, "": True, "ready": True}
    assert kubeconfig_server(str(given.kubeconfig), "") == "http://127.0.0.1:9"
