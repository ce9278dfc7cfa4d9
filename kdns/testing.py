"""A cluster for tests: an API server, its controllers and DNS in a thread of this process, on ports of loopback.

with kdns.testing.cluster(Path("manifests/")) as c:
    assert c.resolve("web").short() == "10.96.0.20"
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias, TypeVar

import dnslib
import msgspec

from kdns import logs
from kdns.apps.sources.snapshot import KINDS
from kdns.apps.up import COREFILE, KUBECONFIG
from kdns.cli import flags
from kdns.cluster.io.kubeconfig import write_kubeconfig
from kdns.cluster.source import Source
from kdns.cluster.state import State
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.io.local_cluster import LocalCluster
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.registry import Request
from kdns.dns import message
from kdns.dns.types import type_number
from kdns.dnsserver.io.corefile import corefile_of
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import InputError, ManifestError
from kdns.explain.search import cluster_resolver
from kdns.net import HostPort
from kdns.plugins.directives import BY_NAME

__all__ = ["Cluster", "Manifests", "cluster"]

Manifests: TypeAlias = Path | str | Mapping[str, Any]
"""A file or folder, the text of a file in YAML or JSON, or one object."""

T = TypeVar("T")

_LOOPBACK: Final = "127.0.0.1"
_DOMAIN: Final = "cluster.local"
_PAYLOAD_BYTES: Final = 1232
_ANSWER_S: Final = 10.0
_WAIT_S: Final = 60.0
"""How long DNS may take to show a change: more than it ever needs."""
_POLL_S: Final = 0.001


class Cluster:
    """A running cluster, from `cluster`. Its methods may be called by any thread.

    `dns` is the address of the DNS server, over UDP and TCP; `api` the URL of the API server; `kubeconfig` a file for
    kubectl and for clients. Pods are simulated: no containers run.
    """

    def __init__(self, local: LocalCluster, server: DnsServer, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.dns: Final = HostPort(*server.address_with("kubernetes"))
        self.api: Final = f"http://{HostPort(*local.address)}"
        self.kubeconfig: Final = folder / KUBECONFIG
        self._local, self._server, self._loop = local, server, loop
        self._texts = count(1)
        write_kubeconfig(self.kubeconfig, self.api)

    def apply(self, *manifests: Manifests) -> None:
        """Creates or changes the objects of the manifests, as `kubectl apply` does.

        Returns when the controllers have reacted and DNS answers accordingly. Raises InputError, whose text has
        every mistake with its file, line and field; the valid objects are applied.
        """
        self._call(self._apply(manifests))

    def resolve(self, name: str, qtype: str = "A", *, namespace: str = "default") -> dnslib.DNSRecord:
        """Returns the DNS server's response to a Pod of `namespace`, after every change that the API has accepted.

        A name that ends in neither a dot nor the cluster's domain is completed by the search path of a Pod; NXDOMAIN
        is the response for the last domain of it. Raises ValueError for a name or a type that does not exist.
        """
        try:
            rtype = type_number(qtype.upper())
        except KeyError:
            raise ValueError(f"expected a type such as A, AAAA, SRV or TYPE65, got {qtype!r}") from None
        self.wait()
        search = cluster_resolver(namespace, _DOMAIN).searches
        is_complete = name.endswith(".") or f".{name}".endswith(f".{_DOMAIN}")
        for whole in [name] if is_complete else [f"{name}.{domain}" for domain in search]:
            response = self._query(whole, rtype)
            if response.header.rcode != dnslib.RCODE.NXDOMAIN:
                break
        return response

    def wait(self) -> None:
        """Waits until the controllers are idle and DNS has everything that the API has, whoever wrote it.

        Raises TimeoutError after a minute.
        """
        self._call(self._wait())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _query(self, name: str, rtype: int) -> dnslib.DNSRecord:
        query = dnslib.DNSRecord.parse(message.query(name, rtype, payload_bytes=_PAYLOAD_BYTES))
        for tcp in (False, True):
            packet = query.send(self.dns.host, self.dns.port, tcp=tcp, timeout=_ANSWER_S)
            response = dnslib.DNSRecord.parse(packet)
            if not response.header.tc:
                break
        return response

    async def _apply(self, manifests: Iterable[Manifests]) -> None:
        texts: dict[Path, str] = {}
        paths: list[Path] = []
        for source in manifests:
            if isinstance(source, Path):
                paths.append(source)
            else:
                path = Path(f"manifest-{next(self._texts)}")
                texts[path] = source if isinstance(source, str) else json.dumps(source)
                paths.append(path)
        problems: list[ManifestError] = []
        if paths:
            await self._local.apply(paths, texts, problems.append)
        await self._wait()
        if problems:
            raise InputError("\n".join(map(str, problems)))

    async def _wait(self) -> None:
        async with asyncio.timeout(_WAIT_S):
            await self._local.finished()
            while not self._is_shown():
                await asyncio.sleep(_POLL_S)
                await self._local.finished()

    def _is_shown(self) -> bool:
        """Whether DNS has the objects of the API."""
        for followed in self._server.clusters:
            stored = State()
            for kind in followed.kinds:
                for obj in self._local.api.list(Request(KINDS[kind])).items:
                    stored.upsert(msgspec.convert(obj, kind))
            if any(stored.objects(kind) != followed.state.objects(kind) for kind in followed.kinds):
                return False
        return True


@contextmanager
def cluster(*manifests: Manifests) -> Iterator[Cluster]:
    """Runs a cluster with these manifests while the context is open.

    Files and folders are followed: an edited file is applied within half a second. Nothing is written but the
    kubeconfig, in a folder of its own. Raises InputError for invalid manifests.
    """
    logs.warnings_only()
    started: Future[tuple[Cluster, Callable[[], object]]] = Future()
    with TemporaryDirectory(prefix="kdns-") as folder, ThreadPoolExecutor(1, "kdns") as thread:
        running = thread.submit(asyncio.run, _run(Path(folder), started))
        running.add_done_callback(lambda done: started.set_exception(done.exception()) if not started.done() else None)
        made, stop = started.result()
        try:
            made.apply(*manifests)
            yield made
        finally:
            stop()
            running.result()


async def _run(folder: Path, started: Future[tuple[Cluster, Callable[[], object]]]) -> None:
    """Runs a cluster until `stop` is called, which `started` gets."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    async with AsyncExitStack() as stack:
        service_cidrs, pod_cidrs = flags.service_and_pod_networks(flags.SERVICE_CIDR, flags.POD_CIDR)
        local = LocalCluster(ClusterConfig(service_cidrs=service_cidrs, pod_cidrs=pod_cidrs), RestConfig(port=0))
        await local.start()
        stack.push_async_callback(local.stop)
        text = COREFILE.format(domain=_DOMAIN, port=0, host=_LOOPBACK, status="")
        servers = corefile_of(text, "built-in Corefile", BY_NAME, dns_port=0).checked()
        source = Source(endpoint=f"http://{HostPort(*local.address)}")
        server = DnsServer(servers, dns_port=0, default_source=source)
        await server.start()
        stack.push_async_callback(server.stop)
        local.dns_at(*server.address_with("kubernetes"))
        made = Cluster(local, server, folder, loop)
        started.set_result((made, lambda: loop.call_soon_threadsafe(stopped.set)))
        await stopped.wait()
