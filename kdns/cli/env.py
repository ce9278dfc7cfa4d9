"""The command `kdns env`: service variables."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from kdns.aio.sources.services import default_kubeconfig, services_from_manifests, services_from_server
from kdns.cli.console import CONTEXT, reported_errors, warn
from kdns.cli.flags import check_one_source, source_options
from kdns.cluster.objects import Service
from kdns.env import FORMATS, service_variables, size_warning


@click.command("env", context_settings=CONTEXT)
@click.option("--namespace", "-n", default="default", show_default=True, help="Namespace the container runs in.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="sh",
    show_default=True,
    help="Lines for eval, lines for docker run --env-file, or a JSON object.",
)
@click.option("--no-service-links", is_flag=True, help="Only the variables of Service kubernetes in namespace default.")
@source_options
def env(
    namespace: str, form: str, no_service_links: bool, kubeconfig: str, server: str, manifests: tuple[Path, ...]
) -> None:
    """Print the service variables a container would get, as a kubelet sets them.

    Without --kubeconfig, --server or --manifests, the kubeconfig is the one kubectl uses.
    """
    check_one_source(manifests, server, kubeconfig)
    with reported_errors():
        services = _services(namespace, kubeconfig, server, manifests)
        variables = service_variables(services, namespace, enable_service_links=not no_service_links)
        text = FORMATS[form](variables)
    if warning := size_warning(variables):
        warn(warning)
    click.echo(text, nl=False)


def _services(namespace: str, kubeconfig: str, server: str, manifests: tuple[Path, ...]) -> list[Service]:
    if manifests:
        return services_from_manifests(manifests, warn)
    if not server:
        kubeconfig = kubeconfig or default_kubeconfig()
    return asyncio.run(services_from_server(server, kubeconfig, namespace))
