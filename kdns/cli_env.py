"""The command `kdns env`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from kdns.aio.sources import default_kubeconfig, services_from_manifests, services_from_server
from kdns.cluster.objects import Service
from kdns.env import FORMATS, service_variables, size_warning
from kdns.errors import KdnsError


def warn(text: str) -> None:
    """Say it on standard error: standard output is for the variables."""
    click.echo(f"Warning: {text}", err=True)


@click.command("env", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--namespace", "-n", default="default", show_default=True, help="Namespace the container runs in.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="sh",
    show_default=True,
    help="Lines for eval, lines for docker run --env-file, or a JSON object.",
)
@click.option("--no-service-links", is_flag=True, help="Tell only of the Service kubernetes in namespace default.")
@click.option("--kubeconfig", metavar="FILE", default="", help="Ask the API server of this kubeconfig.")
@click.option("--server", metavar="URL", default="", help="Ask this API server, without credentials.")
@click.option(
    "--manifests",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Read files and folders instead; may be given several times.",
)
def env(
    namespace: str, form: str, no_service_links: bool, kubeconfig: str, server: str, manifests: tuple[Path, ...]
) -> None:
    """Print the service variables a container would get, as a kubelet sets them.

    Without --kubeconfig, --server or --manifests, the kubeconfig is the one kubectl uses.
    """
    if sum(map(bool, (kubeconfig, server, manifests))) > 1:
        raise click.UsageError("give only one of --kubeconfig, --server and --manifests")
    try:
        services = _services(namespace, kubeconfig, server, manifests)
        variables = service_variables(services, namespace, enable_service_links=not no_service_links)
        text = FORMATS[form](variables)
    except KdnsError as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(error.exit_code) from error
    if warning := size_warning(variables):
        warn(warning)
    click.echo(text, nl=False)


def _services(namespace: str, kubeconfig: str, server: str, manifests: tuple[Path, ...]) -> list[Service]:
    if manifests:
        return services_from_manifests(manifests, warn)
    if not server:
        kubeconfig = kubeconfig or default_kubeconfig()
    return asyncio.run(services_from_server(server, kubeconfig, namespace))
