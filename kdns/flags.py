"""Command-line texts to values; InputError names the flag, what was found and what was wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

from kdns.controlplane.addresses import SHORTEST_IPV6_PREFIX
from kdns.controlplane.clusterconfig import Address, AddressRange, ClusterConfig, Network
from kdns.corefile.address import HostPort
from kdns.errors import InputError
from kdns.up import KUBECONFIG, UpOptions

_DOMAIN = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*\Z")


def host_port(flag: str, text: str) -> HostPort:
    """127.0.0.1:1053, [::1]:1053 or localhost:1053."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise InputError(f"{flag} {text!r}: wanted HOST:PORT, such as 127.0.0.1:1053 or [::1]:1053")
    return HostPort("127.0.0.1" if host == "localhost" else host, int(port))


def networks(flag: str, text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """One or two networks, of different families."""
    try:
        found = tuple(ip_network(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{flag} {text!r}: {error}; wanted CIDR[,CIDR], such as 10.96.0.0/16") from error
    if len({network.version for network in found}) < len(found):
        raise InputError(f"{flag} {text!r}: wanted at most one network of each IP family")
    if any(network.num_addresses < 8 for network in found):
        raise InputError(f"{flag} {text!r}: too small; wanted networks of at least 8 addresses")
    return found


def service_networks(flag: str, text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Networks whose addresses can be allocated: as by kube-apiserver, none of IPv6 that is shorter than /64."""
    found = networks(flag, text)
    if any(network.version == 6 and network.prefixlen < SHORTEST_IPV6_PREFIX for network in found):
        raise InputError(f"{flag} {text!r}: too large; wanted an IPv6 network of /{SHORTEST_IPV6_PREFIX} or longer")
    return found


def address_ranges(flag: str, text: str) -> tuple[AddressRange, ...]:
    """192.0.2.0/28,192.0.2.100-192.0.2.120,2001:db8::/120: of networks the addresses for hosts, of ranges all."""
    return tuple(_address_range(flag, part.strip()) for part in text.split(",")) if text else ()


def _address_range(flag: str, text: str) -> AddressRange:
    try:
        if "-" in text:
            first, last = (ip_address(part.strip()) for part in text.split("-", 1))
        else:
            first, last = _host_addresses(ip_network(text))
    except ValueError as error:
        raise InputError(f"{flag} {text!r}: {error}; wanted CIDR or FIRST-LAST, such as 192.0.2.0/28") from error
    if first.version != last.version or int(first) > int(last):
        raise InputError(f"{flag} {text!r}: wanted two addresses of one IP family, the lower one first")
    return AddressRange(first.version, int(first), int(last), text)


def _host_addresses(network: Network) -> tuple[Address, Address]:
    """The first and the last address, without the network's own and, for IPv4, the broadcast address."""
    if network.num_addresses <= 2:
        return network[0], network[-1]
    return network[1], network[-2 if network.version == 4 else -1]


def _check_apart(flag: str, pool: tuple[AddressRange, ...], taken: Mapping[str, tuple[Network, ...]]) -> None:
    """InputError where the pool holds addresses that the cluster gives to others."""
    for each in pool:
        for other, network in ((other, network) for other, found in taken.items() for network in found):
            if network.version == each.version and each.first <= int(network[-1]) and int(network[0]) <= each.last:
                raise InputError(f"{flag} {each.text!r}: overlaps {network} of {other}; wanted addresses of its own")


def port_range(flag: str, text: str) -> range:
    """30000-32767."""
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if not match or not 0 < int(match[1]) <= int(match[2]) <= 65535:
        raise InputError(f"{flag} {text!r}: wanted FROM-TO within 1-65535, such as 30000-32767")
    return range(int(match[1]), int(match[2]) + 1)


def domain(flag: str, text: str) -> str:
    """A zone name without its trailing dot, in lower case."""
    name = text.lower().removesuffix(".")
    if len(name) > 200 or not _DOMAIN.match(name):
        raise InputError(f"{flag} {text!r}: wanted a domain name, such as cluster.local")
    return name


def up_options(paths: tuple[Path, ...], given: Mapping[str, Any]) -> UpOptions:
    """The options of `kdns up`."""
    data: Path | None = given["data"]
    service_cidrs = service_networks("--service-cidr", given["service_cidr"])
    pod_cidrs = networks("--pod-cidr", given["pod_cidr"])
    families = {network.version for network in service_cidrs}
    cluster = ClusterConfig(
        service_cidrs=service_cidrs,
        node_port_range=port_range("--node-port-range", given["node_port_range"]),
        pod_cidrs=tuple(network for network in pod_cidrs if network.version in families),
        cluster_domain=domain("--cluster-domain", given["cluster_domain"]),
        simulate_pods=not given["no_simulated_pods"],
        lb_pool=address_ranges("--lb-pool", given["lb_pool"]),
    )
    missing = families - {network.version for network in cluster.pod_cidrs}
    if missing:
        raise InputError(
            f"--pod-cidr {given['pod_cidr']!r}: wanted a network for IPv{missing.pop()} as in --service-cidr"
        )
    _check_apart("--lb-pool", cluster.lb_pool, {"--service-cidr": service_cidrs, "--pod-cidr": cluster.pod_cidrs})
    return UpOptions(
        paths=paths,
        cluster=cluster,
        dns=host_port("--dns", given["dns"]),
        api=host_port("--api", given["api"]),
        kubeconfig=given["kubeconfig"] or (data / KUBECONFIG if data else Path(KUBECONFIG)),
        data=data,
        corefile=given["corefile"],
        token_file=given["token_file"],
        tls_cert=given["tls_cert"],
        tls_key=given["tls_key"],
        proxy=given["proxy"] or "",
    )
