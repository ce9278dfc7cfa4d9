"""The command `kdns env`: service variables."""

from __future__ import annotations

import asyncio

import click

from kdns.apps.sources.services import services_of
from kdns.apps.sources.source import ObjectSource
from kdns.cli.command import command
from kdns.cli.console import reported_errors, warn
from kdns.cli.flags import output_option, source_options
from kdns.env import FORMATS, service_variables, size_warning


@command(
    "env",
    'eval "$(kdns env --namespace shop)"',
    "kdns env --manifests examples/ --output docker > web.env",
    "kdns env --server http://127.0.0.1:8001 -o json",
    "kdns env -o fish | source",
)
@click.option(
    "--namespace", "-n", default="default", show_default=True, metavar="NS", help="The namespace of the container."
)
@output_option(
    "Lines for a POSIX shell, fish or PowerShell, lines for docker run --env-file, a JSON object, the field envs "
    "of a CRI container, or the field env of a Pod's container.",
    FORMATS,
)
@click.option(
    "--no-service-links",
    is_flag=True,
    help="Only the variables of Service kubernetes in namespace default, as with enableServiceLinks: false in a Pod.",
)
@source_options
def env(namespace: str, output: str, *, no_service_links: bool, source: ObjectSource) -> None:
    """Print the service variables a container would get, as a kubelet sets them.

    Without --kubeconfig, --server or --manifests, the kubeconfig is the one kubectl uses.
    """
    with reported_errors():
        services = asyncio.run(services_of(source, namespace, warn))
        variables = service_variables(services, namespace, enable_service_links=not no_service_links)
        text = FORMATS[output](variables)
    if warning := size_warning(variables):
        warn(warning)
    click.echo(text, nl=False)
