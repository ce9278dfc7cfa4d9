"""`kdns up`: a DNS server, and a control plane in a process of its own.

The modules of the DNS server are imported while the control plane starts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final, Protocol

from kdns.apps.control_plane import ControlPlane, ControlPlaneOptions
from kdns.apps.resolvers import machine_resolv_conf, recipe
from kdns.cluster.io.kubeconfig import kubeconfig_content, write_kubeconfig
from kdns.cluster.source import ClientTLS, Source
from kdns.controlplane.server.io.secure_serving import read_tokens
from kdns.dnsserver.io.interfaces import reachable
from kdns.errors import CorefileError, InputError, ListenError
from kdns.net import HostPort, is_loopback, join_host_port
from kdns.runtime.connections import ConnectionKind, share_out
from kdns.runtime.files.permissions import open_folders, open_secrets
from kdns.runtime.process import gc_paused, reload_event, stop_event
from kdns.runtime.tasks import in_daemon_thread, log_failure, unless_stopped

if TYPE_CHECKING:
    from kdns.dnsserver.io.corefile import Corefile
    from kdns.dnsserver.io.server import DnsServer
    from kdns.proxy.takeover.io.choice import Choice
    from kdns.status.io.services import Details

KUBECONFIG: Final = "kdns.kubeconfig"

COREFILE: Final = """
{domain}:{port} in-addr.arpa:{port} ip6.arpa:{port} {{
    bind {host}
    errors
    {status}
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods verified
    }}
    loadbalance
}}
"""
"""Without --corefile: the names of the cluster. `status` is "" or that directive."""
STATUS: Final = "status localhost:0"

OUTSIDE: Final = """
.:{port} {{
    bind {host}
    errors
    forward . {resolv_conf}
    cache 30
    loop
    loadbalance
}}
"""
"""All other names, if this machine has resolvers and only this machine can send queries."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """`corefile` is a file, "" for the built-in one; `proxy` is a mode, "" for no dataplane."""

    control_plane: ControlPlaneOptions
    dns: HostPort
    kubeconfig: Path
    corefile: str = ""
    proxy: str = ""


class Output(Protocol):
    """The output of the command. After the start, a slow reader must not block it."""

    def say(self, text: str) -> None:
        """A line of the start: each address that is listened on, and then `ready`."""

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def show(self, text: str) -> None:
        """The current step of the start, "" at its end."""


async def up(options: UpOptions, output: Output) -> None:
    """Runs until SIGTERM, SIGINT or the end of the terminal. A start that fails leaves the kubeconfig unchanged."""
    node = (ConnectionKind.NODE_SITES, ConnectionKind.RELAYS) if options.proxy else ()
    share_out(ConnectionKind.DNS, ConnectionKind.SITES, ConnectionKind.UPSTREAMS, *node)
    stop = stop_event()
    reload_requested = reload_event(stop)
    plane = options.control_plane
    tls_key = plane.tls_key or plane.tls_cert  # one file may hold both
    secrets = {"--token-file": plane.token_file, "--tls-key": Path(tls_key) if tls_key else None}
    for problem in (*open_secrets(secrets), *open_folders({"--data": plane.data})):
        output.warn(problem)
    if plane.token_file and not plane.tls_cert:
        output.warn("--token-file without --tls-cert: kubectl sends no token over http, so the API answers it with 401")
    corefile = await unless_stopped(in_daemon_thread(partial(dns_config, options)), stop)
    if corefile is None:
        return
    with in_words_of_flags(options):
        corefile.checked()  # a mistake in a file ends the command here
    kubeconfig_content(options.kubeconfig)
    tokens = read_tokens(plane.token_file) if plane.token_file else {}
    own_token = next(iter(tokens), token_urlsafe() if plane.client_ca else "")
    plane = replace(plane, own_token=own_token)
    plane = await with_addresses(plane, options.proxy, output.warn) if options.proxy else plane
    control_plane = ControlPlane(plane, output.warn, output.note, output.show)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(control_plane.stop)
        with gc_paused():
            dns = await unless_stopped(
                _started(options, corefile, control_plane, stack, output, reload_requested, stop), stop
            )
            if dns:
                from kdns.apps.serve import say_ready  # noqa: PLC0415 - imported above

                output.show("listing what the API has")
                await say_ready(dns, output.say, stop)
        output.show("")
        await stop.wait()
        control_plane.check()


async def _started(
    options: UpOptions,
    corefile: Corefile,
    control_plane: ControlPlane,
    stack: AsyncExitStack,
    output: Output,
    reload_requested: asyncio.Event,
    stop: asyncio.Event,
) -> DnsServer:
    """Starts everything, then writes the kubeconfig; `stack` stops what was started."""
    lines: list[str] = []
    say = lines.append
    plane = control_plane.options
    await asyncio.gather(control_plane.start(), asyncio.to_thread(import_module, "kdns.apps.serve"))
    control_plane.when_ended(stop.set)
    output.show("starting DNS")
    from kdns.apps.serve import reloading, say_listeners, status_site  # noqa: PLC0415
    from kdns.dnsserver.io.server import DnsServer  # noqa: PLC0415 - imported above

    scheme, token = "https" if plane.tls_cert else "http", plane.own_token
    url = f"{scheme}://{reachable(*control_plane.address)}"
    say(f"api         {scheme}://{join_host_port(*control_plane.address)}")
    say(f"metrics     {url}/metrics")
    if plane.paths:
        say(f"manifests   {control_plane.applied} from {', '.join(map(str, plane.paths))}")
        for remark in control_plane.remarks:
            say(f"            {remark}")
    source = Source(endpoint=url, tls=ClientTLS(ca=plane.tls_cert), token=token)
    servers, sha512, page = corefile.checked(), corefile.sha512, status_site()
    dns = DnsServer(servers, dns_port=options.dns.port, default_source=source, sha512=sha512, status=lambda: page)
    stack.push_async_callback(dns.stop)
    with in_words_of_flags(options):
        await dns.start()
    control_plane.dns_at(*dns.address_with("kubernetes"))
    say_listeners(dns, say, column=12)
    if options.proxy:
        chosen, ways = await stack.enter_async_context(node_proxy(options, source))
        page.details.append(ways)
        say(f"proxy       {chosen.mode.name}")
        if chosen.fallback:
            say(f"            {chosen.fallback}")
    write_kubeconfig(options.kubeconfig, url, ca_file=plane.tls_cert, token=token)
    say(f"kubeconfig  {options.kubeconfig}")
    say_commands(dns, options, say)
    await stack.enter_async_context(reloading(dns, reload_requested, partial(dns_config, options), sha512))
    for line in lines:
        output.say(line)
    return dns


@contextmanager
def in_words_of_flags(options: UpOptions) -> Iterator[None]:
    """Errors name --dns, or the file of --corefile: the built-in Corefile is not a file."""
    try:
        yield
    except ListenError as error:
        raise ListenError(error.address, error.reason, options.corefile or "--dns") from error
    except CorefileError as error:
        if options.corefile:
            raise
        raise InputError(f"--dns {options.dns}: {error.reason.removeprefix('bind: ')}") from error


def say_commands(dns: DnsServer, options: UpOptions, say: Callable[[str], None]) -> None:
    at, domain = reachable(*dns.address_with("kubernetes")), options.control_plane.cluster.cluster_domain
    program = sys.argv[0] if Path(sys.argv[0]).name == "kdns" else "kdns"  # root may not find it in its PATH
    for number, line in enumerate(recipe(HostPort(at.host, at.port), domain, program=program)):
        say(f"{'' if number else 'names':12}{line}")
    say(f"try         dig @{at.host} -p {at.port} kubernetes.default.svc.{domain}")
    say(f"            kubectl --kubeconfig {options.kubeconfig} get services --all-namespaces")


async def with_addresses(plane: ControlPlaneOptions, mode: str, warn: Callable[[str], None]) -> ControlPlaneOptions:
    """The Node gets this machine's own addresses, at which it serves node ports."""
    from kdns.netlink.io.addresses import node_addresses, primary_addresses  # noqa: PLC0415 - only with --proxy
    from kdns.proxy.modes import relaying  # noqa: PLC0415 - the same

    with suppress(OSError):  # the dataplane logs it
        own, cidrs = await node_addresses(), plane.cluster.service_cidrs
        for address in own:
            if cidr := next(
                (network for network in cidrs if network.version == address.version and address in network), None
            ):
                warn(f"--service-cidr {cidr} has {address}, an address of this machine: no Service gets it here")
        if not own and not all(network.is_loopback for network in cidrs):
            advice = f"add a link with an address, or use --proxy-mode {relaying()} --service-cidr 127.96.0.0/16"
            reason = "this machine has loopback addresses only, so cluster IPs have no route"
            warn(f"--proxy-mode {mode}: {reason}; {advice}")
        addresses = tuple(map(str, primary_addresses(own)))
        return replace(plane, cluster=replace(plane.cluster, host_addresses=addresses))
    return plane


@asynccontextmanager
async def node_proxy(options: UpOptions, source: Source) -> AsyncIterator[tuple[Choice, Details]]:
    """Yields the running mode, and the paths of packets. Removes its rules at the end, and leaves conntrack limits.

    Raises ApplyError.
    """
    from kdns.apps import proxy as node  # noqa: PLC0415 - only with --proxy
    from kdns.apps.node_addresses import report_addresses  # noqa: PLC0415 - the same
    from kdns.proxy.settings.settings import Settings  # noqa: PLC0415 - the same

    settings = Settings(
        mode=options.proxy,
        hostname_override=options.control_plane.cluster.node_name,
        cluster_cidr=",".join(map(str, options.control_plane.cluster.pod_cidrs)),
        node_port_addresses=("0.0.0.0/0", "::/0"),
        healthz_bind_address="",
        metrics_bind_address="",
    )
    proxy = node.NodeProxy(settings, source, owns_host=False)
    running, ready = asyncio.create_task(proxy.run(), name="dataplane"), asyncio.create_task(proxy.established.wait())
    reporting = asyncio.create_task(report_addresses(source, proxy.name), name="addresses")
    try:
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        running.add_done_callback(log_failure)
        reporting.add_done_callback(log_failure)
        assert proxy.chosen and proxy.status  # noqa: S101, PT018 - it is at work
        yield proxy.chosen, partial(proxy.status.packets, trace_path="")
    finally:
        tasks = running, ready, reporting
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def dns_config(options: UpOptions) -> Corefile:
    from kdns.dnsserver.io.corefile import corefile_of, read_corefile  # noqa: PLC0415 - late, as the DNS server
    from kdns.plugins.directives import BY_NAME  # noqa: PLC0415 - the same

    if options.corefile:
        return read_corefile(options.corefile, BY_NAME, dns_port=options.dns.port)
    port, host = options.dns.port, options.dns.host
    domain = options.control_plane.cluster.cluster_domain
    text = COREFILE.format(domain=domain, port=port, host=host, status=STATUS)
    if is_loopback(host) and (resolv_conf := machine_resolv_conf()):
        text += OUTSIDE.format(port=port, host=host, resolv_conf=resolv_conf)
    return corefile_of(text, "built-in Corefile", BY_NAME, dns_port=options.dns.port)
