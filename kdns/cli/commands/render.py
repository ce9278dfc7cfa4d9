"""The command `kdns render`: the rules of a mode for a node, without a change."""

from __future__ import annotations

import click

from kdns.cli.command import command
from kdns.cli.console import reported_errors, warn
from kdns.cli.node_plan import NodePlanOptions, node_plan, node_plan_options
from kdns.proxy.modes import MODES
from kdns.proxy.settings import validation


@command(
    "render",
    "kdns render --manifests examples/",
    "kdns render --proxy-mode iptables --node worker-1 --kubeconfig ~/.kube/config",
    "kubectl get nodes,svc,endpointslices -Ao yaml | kdns render --manifests -",
)
@node_plan_options
def render(options: NodePlanOptions) -> None:
    """Print what would be applied to a node, and apply nothing.

    Without --manifests, --server or --kubeconfig, the kubeconfig is the one kubectl uses.
    """
    with reported_errors():
        planned = node_plan(options)
        for remark in validation.remarks(planned.settings):
            if not options.config and remark.field != "mode":  # the mode is a choice
                warn(f"without --config: {remark}")
        click.echo(MODES[planned.settings.mode].text(planned.plan, planned.settings), nl=False)
