"""Flags that several commands share, and the values of command-line texts.

An InputError names the flag, the text and the expected form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from ipaddress import ip_address, ip_network
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from kdns.apps.sources.source import ObjectSource
from kdns.cli.console import reported_errors
from kdns.cluster.io.kubeconfig import server_url
from kdns.controlplane.cluster_config import AddressRange, ClusterConfig
from kdns.controlplane.kinds.service.allocator import SHORTEST_IPV6_PREFIX
from kdns.errors import InputError
from kdns.net import Address, HostPort, Network, parse_port, split_host_port, unusable_addresses
from kdns.proxy.modes import MODES

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

SERVICE_CIDR: Final = "10.96.0.0/16,fd00:10:96::/112"
POD_CIDR: Final = "10.244.0.0/16,fd00:10:244::/64"
"""Defaults of `kdns up`."""
CLUSTER_OPTIONS: Final = {
    "--cluster-domain": ("cluster.local", "NAME"),
    "--service-cidr": (SERVICE_CIDR, "CIDR[,CIDR]"),
    "--pod-cidr": (POD_CIDR, "CIDR[,CIDR]"),
    "--node-port-range": ("30000-32767", "FROM-TO"),
}
"""Options of several commands: default and form."""


class NonEmptyPath(click.Path):
    """A path that may not be empty: the path of an unset variable would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty; the current folder is `.`", param, ctx)
        return super().convert(value, param, ctx)


PATH: Final = NonEmptyPath(path_type=Path)


def file_option(name: str, text: str) -> Decorator:
    """The value is text, "" by default."""
    return click.option(name, default="", metavar="FILE", type=click.Path(), help=text)


def path_option(name: str, text: str, metavar: str = "FILE") -> Decorator:
    """The value is a Path, None by default."""
    return click.option(name, type=PATH, metavar=metavar, help=text)


def cluster_option(name: str, text: str) -> Decorator:
    """One of CLUSTER_OPTIONS."""
    default, metavar = CLUSTER_OPTIONS[name]
    return click.option(name, default=default, show_default=True, metavar=metavar, help=text)


def output_option(text: str, formats: Iterable[str] = ("text", "json")) -> Decorator:
    """The first format is the default."""
    choice = click.Choice([*formats])
    return click.option("--output", "-o", type=choice, default=choice.choices[0], show_default=True, help=text)


def dns_port_option(text: str) -> Decorator:
    port = click.IntRange(0, 65535)
    names = ("--dns.port", "-dns.port", "-p", "dns_port")  # CoreDNS's own has one dash
    return click.option(*names, default=53, show_default=True, metavar="PORT", type=port, help=text)


_SOURCES: Final = (
    click.option(
        "--manifests",
        metavar="PATH",
        multiple=True,
        type=PATH,
        help="Read these files and folders, - for standard input; may be given several times.",
    ),
    click.option("--server", metavar="URL", default="", help="Use this API server, without credentials."),
    file_option("--kubeconfig", "Use the API server of this kubeconfig."),
    cluster_option(
        "--service-cidr", "With --manifests: the ranges of cluster IPs, the first one for the default family."
    ),
    cluster_option("--pod-cidr", "With --manifests: addresses of simulated Pods, in no range of cluster IPs."),
)

_DOMAIN = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*\Z")


def complete_mode(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    """Shell completion; unsupported modes are left out."""
    return [name for name in MODES if name.startswith(incomplete)]


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options of a command that reads a cluster once, which gets them as one ObjectSource `source`."""

    @wraps(command)
    def with_source(
        *, manifests: tuple[Path, ...], server: str, kubeconfig: str, service_cidr: str, pod_cidr: str, **others: Any
    ) -> None:
        with reported_errors():
            if sum(map(bool, (kubeconfig, server, manifests))) > 1:
                raise click.UsageError("give only one of --kubeconfig, --server and --manifests")
            if server:
                server_url("--server", server)
            service_cidrs, pod_cidrs = service_and_pod_networks(service_cidr, pod_cidr)
        cluster = ClusterConfig(service_cidrs, pod_cidrs=pod_cidrs)
        command(source=ObjectSource(manifests, server, kubeconfig, cluster), **others)

    options: Callable[..., None] = with_source
    for option in reversed(_SOURCES):
        options = option(options)
    return options


def host_port(flag: str, text: str) -> HostPort:
    """Forms such as 127.0.0.1:1053, [::1]:1053 or localhost:1053."""
    host, port_text = split_host_port(text) or ("", "")
    port = parse_port(port_text)
    if not host or port is None:
        raise InputError(f"{flag} {text!r}: expected HOST:PORT, such as 127.0.0.1:1053 or [::1]:1053")
    return HostPort("127.0.0.1" if host == "localhost" else host, port)


def addresses(flag: str, text: str) -> tuple[str, ...]:
    """Forms such as 169.254.20.10,10.96.0.10; empty for an empty text."""
    try:
        return tuple(dict.fromkeys(str(ip_address(part.strip())) for part in text.split(","))) if text else ()
    except ValueError as error:
        raise InputError(f"{flag} {text!r}: {error}; expected IP[,IP...], such as 169.254.20.10,10.96.0.10") from error


def networks(flag: str, text: str) -> tuple[Network, ...]:
    try:
        parsed = tuple(ip_network(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{flag} {text!r}: {error}; expected CIDR[,CIDR], such as 10.96.0.0/16") from error
    if len({network.version for network in parsed}) < len(parsed):
        raise InputError(f"{flag} {text!r}: expected at most one network of each IP family")
    if any(network.num_addresses < 8 for network in parsed):
        raise InputError(f"{flag} {text!r}: too small; expected networks of at least 8 addresses")
    return parsed


def service_networks(text: str) -> tuple[Network, ...]:
    """--service-cidr; an IPv6 network is /64 or smaller, as with kube-apiserver."""
    cidrs, option = networks("--service-cidr", text), f"--service-cidr {text!r}"
    if any(network.version == 6 and network.prefixlen < SHORTEST_IPV6_PREFIX for network in cidrs):
        raise InputError(f"{option}: too large; expected an IPv6 network of /{SHORTEST_IPV6_PREFIX} or longer")
    for network in cidrs:
        if what := unusable_addresses(network):
            raise InputError(f"{option}: has {what}; expected a range without, such as 10.96.0.0/16")
    return cidrs


def service_and_pod_networks(service_text: str, pod_text: str) -> tuple[tuple[Network, ...], tuple[Network, ...]]:
    """--service-cidr, and the networks of --pod-cidr in the same families; no two networks overlap."""
    service_cidrs = service_networks(service_text)
    families = {network.version for network in service_cidrs}
    pod_cidrs = tuple(network for network in networks("--pod-cidr", pod_text) if network.version in families)
    if missing := families - {network.version for network in pod_cidrs}:
        raise InputError(f"--pod-cidr {pod_text!r}: expected a network for IPv{missing.pop()} as in --service-cidr")
    check_disjoint({"--service-cidr": service_cidrs, "--pod-cidr": pod_cidrs})
    return service_cidrs, pod_cidrs


def address_ranges(flag: str, text: str) -> tuple[AddressRange, ...]:
    """The host addresses of networks (192.0.2.0/28), all addresses of FIRST-LAST."""
    return tuple(_address_range(flag, part.strip()) for part in text.split(",")) if text else ()


def _address_range(flag: str, text: str) -> AddressRange:
    try:
        if "-" in text:
            first, last = (ip_address(part.strip()) for part in text.split("-", 1))
        else:
            first, last = _host_addresses(ip_network(text))
    except ValueError as error:
        raise InputError(f"{flag} {text!r}: {error}; expected CIDR or FIRST-LAST, such as 192.0.2.0/28") from error
    if first.version != last.version or int(first) > int(last):
        raise InputError(f"{flag} {text!r}: expected two addresses of one IP family, the lower one first")
    return AddressRange(first.version, int(first), int(last), text)


def _host_addresses(network: Network) -> tuple[Address, Address]:
    """Without the network's own and, for IPv4, the broadcast address."""
    if network.num_addresses <= 2:
        return network[0], network[-1]
    return network[1], network[-2 if network.version == 4 else -1]


def check_disjoint(ranges: Mapping[str, Sequence[Network | AddressRange]]) -> None:
    """Raises InputError for the first range that overlaps an earlier one; it names both flags."""
    rows = [(flag, _as_range(network)) for flag, networks in ranges.items() for network in networks]
    for (other_flag, other), (flag, row) in combinations(rows, 2):
        if row.version == other.version and row.first <= other.last and other.first <= row.last:
            raise InputError(f"{flag} {row.text!r}: overlaps {other.text} of {other_flag}; expected disjoint ranges")


def _as_range(network: Network | AddressRange) -> AddressRange:
    if isinstance(network, AddressRange):
        return network
    return AddressRange(network.version, int(network[0]), int(network[-1]), str(network))


def node_port_range(text: str) -> range:
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if not match or not 0 < int(match[1]) <= int(match[2]) <= 65535:
        raise InputError(f"--node-port-range {text!r}: expected FROM-TO within 1-65535, such as 30000-32767")
    return range(int(match[1]), int(match[2]) + 1)


def cluster_domain(text: str) -> str:
    """Without its trailing dot, in lower case."""
    name = text.lower().removesuffix(".")
    if len(name) > 200 or not _DOMAIN.match(name):
        raise InputError(f"--cluster-domain {text!r}: expected a domain name, such as cluster.local")
    return name
