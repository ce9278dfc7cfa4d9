"""The command `kdns laptop`: this machine's programs resolve the cluster's names."""

from __future__ import annotations

import click

from kdns.apps import laptop as app
from kdns.apps.resolvers import DEFAULT_DNS, PAGE, ClusterNames
from kdns.cli import flags
from kdns.cli.command import command
from kdns.cli.console import reported_errors, run, say, warn


@command("laptop", "sudo kdns laptop on", "kdns laptop status", "sudo kdns laptop off")
@click.argument("action", type=click.Choice(["on", "off", "status"]))
@click.option("--dns", default=str(DEFAULT_DNS), show_default=True, metavar="HOST:PORT", help="Where kdns answers.")
@flags.cluster_option("--cluster-domain", "The domain of the cluster.")
@flags.cluster_option("--service-cidr", "The ranges of cluster IPs, whose addresses get names too.")
@flags.cluster_option("--pod-cidr", "The ranges of Pods, whose addresses get names too.")
def laptop(action: str, *, dns: str, cluster_domain: str, service_cidr: str, pod_cidr: str) -> None:
    """Point this machine's resolver at kdns (on), undo it (off), or show its state (status).

    It writes one file of systemd-resolved, dnsmasq or NetworkManager, which it removes again, and restarts that. The
    exit code of status is 1 if the cluster's names do not resolve.
    """
    with reported_errors():
        services, pods = flags.service_and_pod_networks(service_cidr, pod_cidr)
        domain = flags.cluster_domain(cluster_domain)
        names = ClusterNames(flags.host_port("--dns", dns), domain, (*services, *pods))
    if action == "off":
        removed = run(app.turn_off())
        say(f"removed     {removed}" if removed else "nothing to remove")
        return
    if action == "on":
        say(f"written     {run(app.turn_on(names, warn))}")
    _say_status(run(app.status(names)), str(names.dns), must_resolve=action == "status")


def _say_status(state: app.LaptopStatus, dns: str, *, must_resolve: bool) -> None:
    say(f"resolver    {state.service or f'none that kdns knows: {PAGE}'}")
    if state.file:
        say(f"file        {state.file}{'' if state.is_on else ' is not there: sudo kdns laptop on'}")
    say(f"kdns        {dns} {'answers' if state.answers else 'does not answer: kdns up'}")
    say(f"names       {state.name} {'is ' + ', '.join(state.addresses) if state.addresses else 'does not resolve'}")
    if must_resolve and not state.addresses:
        raise click.exceptions.Exit(1)
