"""`kdns up`: a control plane and the DNS server beside it, as one process.

What DNS needs is imported while the API answers already.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kdns import logs
from kdns.aio.interfaces import reachable
from kdns.aio.loading import loading
from kdns.aio.localcluster import LocalCluster
from kdns.aio.ownkubeconfig import NAME, write_kubeconfig
from kdns.aio.process import raise_open_files_limit, stop_event
from kdns.aio.rest_guard import RestConfig
from kdns.aio.source import Source
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.corefile.address import HostPort
from kdns.errors import InputError

if TYPE_CHECKING:
    from kdns.aio.dnsserver import DnsServer
    from kdns.plugins.registry import ServerConfig

log = logs.get(__name__)

KUBECONFIG: Final = "kdns.kubeconfig"

COREFILE: Final = """
{domain}:{port} in-addr.arpa:{port} ip6.arpa:{port} {{
    bind {host}
    errors
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods verified
    }}
    loadbalance
}}
"""
"""The DNS configuration without --corefile: the cluster's names, and nothing else."""

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What the command line of `kdns up` says."""

    paths: tuple[Path, ...]
    cluster: ClusterConfig
    dns: HostPort
    api: HostPort
    kubeconfig: Path
    data: Path | None = None
    corefile: str = ""
    token_file: Path | None = None
    tls_cert: str = ""
    tls_key: str = ""
    proxy: str = ""


async def up(options: UpOptions, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT; says what listens where, then `ready`."""
    raise_open_files_limit()
    stop = stop_event()
    tokens = read_tokens(options.token_file) if options.token_file else ()
    servers = corefile_of(options) if options.corefile else ()
    served = rest_config(options, tokens)
    cluster = replace(options.cluster, root_ca=certificates(options.tls_cert) if options.tls_cert else "")
    local = LocalCluster(cluster, served, options.data)
    with ExitStack() as starting:
        starting.enter_context(loading())
        await local.start()
        stack = AsyncExitStack()
        dns: DnsServer | None = None
        try:
            applied = await local.apply(options.paths, lambda problem: warn(str(problem))) if options.paths else None
            scheme = "https" if options.tls_cert else "http"
            url = f"{scheme}://{reachable(*local.address)}"
            write_kubeconfig(options.kubeconfig, url, ca_file=options.tls_cert, token=tokens[0] if tokens else "")
            say(f"api         {scheme}://{HostPort(*local.address)}")
            say(f"kubeconfig  {options.kubeconfig}")
            if applied:
                say(f"manifests   {applied.applied} objects from {', '.join(map(str, options.paths))}")
            app = await asyncio.to_thread(import_module, "kdns.app")
            servers = servers or corefile_of(options)
            source = Source(str(options.kubeconfig), NAME)  # whatever context the user makes current later
            dns = app.DnsServer(servers, dns_port=options.dns.port, default_source=source)
            await dns.start()
            local.dns_at(*dns.addresses[0])
            for host, port in dns.addresses:
                say(f"dns         {host} port {port} (UDP and TCP)")
            for path, (host, port) in dns.site_addresses.items():
                say(f"http        {host} port {port} {path}")
            if options.proxy:
                await stack.enter_async_context(virtual_ips(options))
                say(f"proxy       {options.proxy}")
            host, port = dns.addresses[0]
            say(f"try         dig @{host} -p {port} kubernetes.default.svc.{options.cluster.cluster_domain}")
            say(f"            kubectl --kubeconfig {options.kubeconfig} get services --all-namespaces")
            await app.say_ready(dns, say, stop)
            starting.close()
            await stop.wait()
        finally:
            await stack.aclose()
            if dns:
                await dns.stop()
            await local.stop()


@asynccontextmanager
async def virtual_ips(options: UpOptions) -> AsyncIterator[None]:
    """The dataplane of this machine as the cluster's node, which takes its rules along when the cluster ends.

    ApplyError where the mode cannot work here. Limits of the machine stay as they are.
    """
    from kdns import node  # noqa: PLC0415 - only with --proxy
    from kdns.proxy.settings import ClientConnection, Settings  # noqa: PLC0415

    settings = Settings(
        mode=options.proxy,
        hostname_override=options.cluster.node_name,
        cluster_cidr=",".join(map(str, options.cluster.pod_cidrs)),
        node_port_addresses=("0.0.0.0/0", "::/0"),
        healthz_bind_address="",
        metrics_bind_address="",
        client_connection=ClientConnection(kubeconfig=str(options.kubeconfig)),
    )
    proxy = node.NodeProxy(settings, replace(node.api_source(settings), context=NAME), owns_host=False)
    running, ready = asyncio.create_task(proxy.run()), asyncio.create_task(proxy.established.wait())
    try:
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        running.add_done_callback(_told)
        yield
    finally:
        ready.cancel()
        running.cancel()
        await asyncio.wait((running, ready))


def _told(ended: asyncio.Task[None]) -> None:
    """Say that the dataplane has ended by itself."""
    if not ended.cancelled() and (error := ended.exception()):
        log.error("virtual IPs follow the cluster no more", reason=str(error), exc_info=error)


def corefile_of(options: UpOptions) -> tuple[ServerConfig, ...]:
    """The DNS server's configuration: the file given, or the built-in one."""
    from kdns.aio.corefiles import load_corefile, parse_corefile  # noqa: PLC0415 - see above

    if options.corefile:
        return load_corefile(options.corefile, dns_port=options.dns.port)
    text = COREFILE.format(domain=options.cluster.cluster_domain, port=options.dns.port, host=options.dns.host)
    return parse_corefile(text, "built-in Corefile", dns_port=options.dns.port)


def rest_config(options: UpOptions, tokens: tuple[str, ...]) -> RestConfig:
    """The API's listener; InputError for certificates that cannot be used."""
    context = None
    if options.tls_key and not options.tls_cert:
        raise InputError(f"--tls-key {options.tls_key}: wanted --tls-cert too")
    if options.tls_cert:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(options.tls_cert, options.tls_key or None)
        except (OSError, ssl.SSLError) as error:
            given = f"--tls-cert {options.tls_cert}" + (f", --tls-key {options.tls_key}" if options.tls_key else "")
            missing = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
            why = error.strerror if missing else "wanted a certificate (PEM) and the key that belongs to it"
            raise InputError(f"{given}: {why}") from error
    return RestConfig(options.api.host, options.api.port, tokens, context)


def certificates(path: str) -> str:
    """The certificates of a PEM file, without the keys that it may hold too."""
    text = Path(path).read_text(encoding="ascii", errors="replace")
    return "".join(f"{found}\n" for found in _CERTIFICATE.findall(text))


def read_tokens(path: Path) -> tuple[str, ...]:
    """The bearer tokens of a file, one a line; blank lines and lines that begin with # do not count."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text; wanted one token a line"
        raise InputError(f"--token-file {path}: {reason}") from error
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise InputError(f"--token-file {path}: holds no token; wanted one a line")
    return tokens
