"""`kdns serve`: from configurations to running tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kdns import logs
from kdns.dnsserver.io.corefile import Corefile, read_corefile
from kdns.dnsserver.io.interfaces import Sharing
from kdns.dnsserver.io.reload import Reloader
from kdns.dnsserver.io.server import DnsServer, number_of_processes
from kdns.errors import ListenError
from kdns.net import join_host_port
from kdns.node_local.settings import NodeLocal
from kdns.plugins.directives import BY_NAME
from kdns.runtime.connections import ConnectionKind, share_out
from kdns.runtime.metrics import Counters
from kdns.runtime.process import die_with, exempt_from_gc, gc_paused, pid_file, reload_event, stop_event, trim_memory
from kdns.runtime.tasks import in_daemon_thread, restarted, unless_stopped
from kdns.serverblocks.config import TRANSPORTS
from kdns.status.paths import PATHS, STATUS

if TYPE_CHECKING:
    from kdns.dnsserver.io.supervisor import Supervisor
    from kdns.status.io.site import DnsStatus

log = logs.get(__name__)

WAITING: Final = "waiting for the API server: answers are SERVFAIL until it has been listed"
"""Printed first if `ready` has to wait for the API."""
LOOK_S: Final = 0.1
SETUP_ERRORS: Final = "coredns_nodecache_setup_errors"


class WorkerOf(NamedTuple):
    """The supervisor of this process, the socket for its pages, and how it binds addresses."""

    supervisor: int
    pages_fd: int
    sharing: Sharing


def say_listeners(server: DnsServer | Supervisor, say: Callable[[str], None], *, column: int) -> None:
    """Each address of DNS and HTTP, after a label padded to `column` characters."""
    for scheme, host, port in server.listened:
        say(f"{scheme:{column}}{join_host_port(host, port)} ({' and '.join(map(str.upper, TRANSPORTS[scheme]))})")
    paths = server.site_addresses
    for path, (host, port) in paths.items():
        if not any(path.startswith(f"{other}/") for other in paths):
            say(f"{'status' if path == STATUS else 'http':{column}}http://{join_host_port(host, port)}{path}")


def status_site() -> DnsStatus:
    from kdns.status.io.site import DnsStatus  # noqa: PLC0415 - few servers have them

    return DnsStatus()


def setup_errors(server: DnsServer | Supervisor) -> Counters:
    """The counters of the node-local cache, which are among the server's metrics from then on."""
    return server.counters(SETUP_ERRORS, "Repairs of the node-local cache that failed.", ("errortype",))


async def say_ready(server: DnsServer | Supervisor, say: Callable[[str], None], stop: asyncio.Event) -> None:
    """Says `ready` as soon as everything is listed, unless `stop` comes first."""
    if not server.is_synced:
        say(WAITING)
    while not (server.is_synced or stop.is_set()):  # noqa: ASYNC110 - kinds are listed one by one, in several places
        await asyncio.sleep(LOOK_S)
    if not stop.is_set():
        say("ready")


@asynccontextmanager
async def reloading(
    server: DnsServer | Supervisor,
    reload_requested: asyncio.Event,
    read: Callable[[], Corefile],
    last_hash: str = "",
    *,
    polls: bool = True,
) -> AsyncIterator[None]:
    """Reloads on request, and with `polls` when the file changes; `last_hash` is that of the present file."""
    task = restarted(Reloader(server, read, reload_requested, last_hash, polls).run, "reload")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def serve(
    corefile: str,
    *,
    dns_port: int,
    say: Callable[[str], None],
    pidfile: str = "",
    node_local: NodeLocal | None = None,
    workers: int = 1,
    worker_of: WorkerOf | None = None,
) -> None:
    """Runs the DNS server until SIGTERM, SIGINT or the end of the terminal, then `lameduck` seconds longer.

    With several `workers`, or with `multisocket`, this process supervises servers that it starts with its own command
    line; `worker_of` marks one of them.
    """
    if worker_of:
        die_with(worker_of.supervisor)
    stop = stop_event()
    reload_requested = reload_event(stop)
    with_variables = node_local.with_variables if node_local else str
    read = partial(read_corefile, corefile, BY_NAME, dns_port=dns_port, with_variables=with_variables)
    share_out(ConnectionKind.DNS, ConnectionKind.SITES, ConnectionKind.UPSTREAMS)
    first = await unless_stopped(in_daemon_thread(read), stop)
    if first is None:
        return
    server = _server(first, dns_port, workers, worker_of)
    del first  # reloads replace it
    listening: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    async with AsyncExitStack() as stack:
        if node_local and not worker_of:
            from kdns.node_local.io.upkeep import linked, untracked  # noqa: PLC0415 - netlink and nftables

            errors = setup_errors(server)
            await stack.enter_async_context(linked(node_local, errors))
            listening = partial(untracked, node_local, errors)
        try:
            reloads = partial(reloading, server, reload_requested, read, polls=not worker_of)
            await _serve(server, reloads, say, stop, pidfile, listening)
        except ListenError as error:
            raise ListenError(error.address, error.reason, corefile) from error


def _server(first: Corefile, dns_port: int, workers: int, worker_of: WorkerOf | None) -> DnsServer | Supervisor:
    """Imports the supervisor's modules only if they are needed. Raises CorefileError."""
    configs = first.checked()
    number = 1 if worker_of else number_of_processes(configs, workers)
    if number > 1:
        from kdns.dnsserver.io.supervisor import Supervisor  # noqa: PLC0415

        return Supervisor(configs, number, sys.orig_argv, sha512=first.sha512, status_pages=PATHS)
    sharing = worker_of.sharing if worker_of else Sharing.NONE
    server = DnsServer(configs, dns_port=dns_port, sha512=first.sha512, status=status_site, sharing=sharing)
    if worker_of:
        from kdns.dnsserver.io.supervisor import state_page  # noqa: PLC0415
        from kdns.runtime.http.relayed import RelayedSites  # noqa: PLC0415

        server.sites = RelayedSites(worker_of.pages_fd, state_page(server))
    return server


async def _serve(
    server: DnsServer | Supervisor,
    reloading: Callable[[str], AbstractAsyncContextManager[None]],
    say: Callable[[str], None],
    stop: asyncio.Event,
    pidfile: str,
    listening: Callable[[], AbstractAsyncContextManager[None]],
) -> None:
    try:
        with gc_paused():  # for `startup_timeout`, in which everything is listed as a rule
            await unless_stopped(server.start(), stop)
        if stop.is_set():
            return
        async with listening():
            with pid_file(pidfile):
                say_listeners(server, say, column=8)
                log.info("running configuration", sha512=server.sha512)
                async with reloading(server.sha512):
                    await say_ready(server, say, stop)
                    exempt_from_gc()
                    trim_memory()
                    await stop.wait()
                server.retire()
                if server.lameduck_s:
                    log.info("stopping", lameduck_s=server.lameduck_s)
                    await asyncio.sleep(server.lameduck_s)
    finally:
        await server.stop()
