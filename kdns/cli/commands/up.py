"""The command `kdns up`: a control plane, its controllers and DNS on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdns.cli import flags
from kdns.cli.command import command
from kdns.cli.console import reported_errors, run
from kdns.cli.progress import Progress
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.errors import InputError
from kdns.proxy.modes import MODES, relaying
from kdns.runtime.process import gc_paused, platform

if TYPE_CHECKING:
    from kdns.apps.up import UpOptions


@command(
    "up",
    "kdns up examples/",
    "helm template shop | kdns up -",
    "kdns up --add web=127.0.0.1:8000 --compose compose.yaml",
    "kdns up --data ~/.kdns --lb-pool 192.0.2.0/28 shop/",
    "kdns up --proxy-mode userspace --service-cidr 127.96.0.0/16 shop/",
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=flags.PATH)
@click.option(
    "--dns", default="127.0.0.1:1053", show_default=True, metavar="HOST:PORT", help="The address of the DNS server."
)
@click.option(
    "--api", default="127.0.0.1:8001", show_default=True, metavar="HOST:PORT", help="The address of the API server."
)
@click.option(
    "--add",
    multiple=True,
    metavar="[NS/]NAME=HOST:PORT[,...]",
    help="A Service of servers that run here or elsewhere; may be given several times.",
)
@flags.path_option("--compose", "A Service for each service of a compose file with published ports.")
@flags.path_option("--data", "Keep the objects in this folder, in an SQLite database.  [default: in memory]", "DIR")
@flags.path_option("--kubeconfig", "Where to write it.  [default: kdns.kubeconfig, in DIR with --data]")
@flags.file_option("--corefile", "The DNS configuration, instead of the built-in one for --dns.")
@flags.cluster_option("--cluster-domain", "The cluster's zone.")
@flags.cluster_option("--service-cidr", "Cluster IPs; the first range is the default family.")
@flags.cluster_option("--pod-cidr", "Addresses of simulated Pods.")
@flags.cluster_option("--node-port-range", "Node ports.")
@click.option(
    "--lb-pool",
    default="",
    metavar="CIDR[,CIDR]",
    help="Addresses for Services of type LoadBalancer, also as FIRST-LAST; without, they stay pending.",
)
@click.option(
    "--proxy-mode",
    type=click.Choice([*MODES]),
    help=f"Give Services their virtual IPs on this machine; all modes but {relaying()} need root.",
)
@click.option("--no-simulated-pods", is_flag=True, help="Do not simulate Pods; they stay Pending.")
@flags.path_option("--token-file", "Bearer tokens for the API: one per line, or in kube-apiserver's format.")
@flags.file_option(
    "--client-ca-file", "The authority of client certificates (PEM); their CN is the user, each O a group."
)
@flags.file_option("--tls-cert", "The API's certificate (PEM).")
@flags.file_option("--tls-key", "The certificate's key (PEM).  [default: in the certificate's file]")
def up(paths: tuple[Path, ...], **arguments: Any) -> None:
    """Run a control plane, its controllers and DNS on this machine.

    The manifests in each PATH (files and folders, YAML and JSON) are applied and followed: edit one, and the answers
    change. `-` is standard input, which is read once. Prints `ready` when everything answers. Ctrl-C or SIGTERM ends
    it, and without --data its objects are gone; SIGUSR1 or SIGHUP reads --corefile again.
    """
    with reported_errors(), gc_paused():  # the import makes 200,000 objects, and --help needs none of them
        from kdns.apps import up as app  # noqa: PLC0415
        from kdns.apps.control_plane import ControlPlaneOptions  # noqa: PLC0415
        from kdns.controlplane.manifests.io.files import texts_read_once  # noqa: PLC0415

        texts = texts_read_once(paths)
    data: Path | None = arguments["data"]
    try:
        own = own_texts(arguments)
        control_plane = ControlPlaneOptions(
            cluster=cluster_config(arguments),
            api=flags.host_port("--api", arguments["api"]),
            paths=(*paths, *own),
            texts=texts | own,
            trusted=frozenset(own),
            data=data,
            token_file=arguments["token_file"],
            tls_cert=arguments["tls_cert"],
            tls_key=arguments["tls_key"],
            client_ca=arguments["client_ca_file"],
        )
        options = app.UpOptions(
            control_plane=control_plane,
            dns=flags.host_port("--dns", arguments["dns"]),
            kubeconfig=arguments["kubeconfig"] or (data / app.KUBECONFIG if data else Path(app.KUBECONFIG)),
            corefile=arguments["corefile"],
            proxy=arguments["proxy_mode"] or "",
        )
    except InputError as error:
        raise click.UsageError(str(error)) from error
    from kdns.dnsserver.io.burst.event_loop import new_event_loop  # noqa: PLC0415 - as for the application

    run(_up(options), new_event_loop)


async def _up(options: UpOptions) -> None:
    from kdns.apps import up as app  # noqa: PLC0415 - imported above

    with Progress() as progress:
        await app.up(options, progress)


def own_texts(arguments: Mapping[str, Any]) -> dict[Path, str]:
    """Manifests for --add and --compose, by the name that messages give them in place of a path."""
    if not (arguments["add"] or arguments["compose"]):
        return {}
    from kdns.apps.additions import ADDED, added, composed, manifests  # noqa: PLC0415 - only with these options

    mode, compose = arguments["proxy_mode"], arguments["compose"]
    additions = {ADDED: added(arguments["add"])} if arguments["add"] else {}
    if compose:
        additions[compose] = composed(compose)
    relays = bool(mode) and MODES[mode].semantics.relays
    return {path: manifests(servers, has_relays=relays, has_proxy=bool(mode)) for path, servers in additions.items()}


def cluster_config(arguments: Mapping[str, Any]) -> ClusterConfig:
    """Raises InputError for ranges that overlap or lack a family."""
    service_cidrs, pod_cidrs = flags.service_and_pod_networks(arguments["service_cidr"], arguments["pod_cidr"])
    mode = arguments["proxy_mode"]
    if mode and not MODES[mode].semantics.relays and any(network.is_loopback for network in service_cidrs):
        reason = f"mode {mode} serves no loopback addresses; use mode {relaying()}, or a range such as 10.96.0.0/16"
        raise InputError(f"--service-cidr {arguments['service_cidr']!r}: {reason}")
    lb_pool = flags.address_ranges("--lb-pool", arguments["lb_pool"])
    flags.check_disjoint({"--service-cidr": service_cidrs, "--pod-cidr": pod_cidrs, "--lb-pool": lb_pool})
    return ClusterConfig(
        service_cidrs=service_cidrs,
        node_port_range=flags.node_port_range(arguments["node_port_range"]),
        pod_cidrs=pod_cidrs,
        cluster_domain=flags.cluster_domain(arguments["cluster_domain"]),
        simulate_pods=not arguments["no_simulated_pods"],
        lb_pool=lb_pool,
        platform=platform(),
    )
