"""Mode ipvs as text to read, or to load: for each family what ipset, iptables-restore, ip and ipvsadm take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.net import FAMILIES, VERSION, Family, join_host_port
from kdns.netlink.addresses import VIRTUAL_LINK
from kdns.netlink.ipset import HASH_SIZE
from kdns.netlink.ipvs import VirtualServer, VirtualServerKey
from kdns.netlink.uapi import IP_VS_SVC_F_SCHED2
from kdns.proxy.ipvs.base_chains import JUMPS
from kdns.proxy.ipvs.ipvs import DEFAULTS, Ipvs, IpvsOptions
from kdns.proxy.ipvs.sets import BITMAP_PORT, IpSet
from kdns.proxy.plan.plan import Plan, printable
from kdns.proxy.xtables.rules import RESTORE, inserted

_INET: Final[dict[Family, str]] = {"IPv4": "inet", "IPv6": "inet6"}
_PROTOCOLS: Final = {"TCP": "-t", "UDP": "-u", "SCTP": "--sctp-service"}


def ipvs_text(plan: Plan, options: IpvsOptions = DEFAULTS) -> str:
    """Both families, each in the order in which it is to be loaded."""
    return "\n".join("\n".join((*_family(Ipvs(plan.of(family), options), family), "")) for family in FAMILIES)


def _family(ipvs: Ipvs, family: Family) -> Iterator[str]:
    yield f"# {family}: ipset restore -exist"
    for ip_set in ipvs.sets.values():
        yield _created(ip_set)
        yield from (f"add {ip_set.name} {entry}" for entry in ip_set.entries)
    yield ""
    yield f"# {family}: {RESTORE[family]} --noflush"
    yield ipvs.base_chains.rstrip("\n")
    yield ""
    yield f"# {family}: {RESTORE[family]} --noflush, for the jumps from built-in chains that are not there yet"
    yield inserted(JUMPS).rstrip("\n")
    yield ""
    yield f"# {family}: ipvsadm --restore, without the lines that begin with #"
    for key, server in ipvs.virtual_servers.items():
        front = ipvs.front_at(key)
        yield f"# {printable(f'{front.port.name}, {front.kind.value}')}" if front else "#"
        yield from _virtual_server(key, server)
    yield ""
    yield f"# {family}: ip -batch -, after ip link add {VIRTUAL_LINK} type dummy"
    bits = 32 if VERSION[family] == VERSION["IPv4"] else 128
    yield from (f"address add {address}/{bits} dev {VIRTUAL_LINK}" for address in sorted(ipvs.addresses))


def _created(ip_set: IpSet) -> str:
    if ip_set.type == BITMAP_PORT:
        return f"create {ip_set.name} {ip_set.type} range 0-65535"
    size = f"hashsize {HASH_SIZE} maxelem {ip_set.max_elements}"
    return f"create {ip_set.name} {ip_set.type} family {_INET[ip_set.family]} {size}"


def _virtual_server(key: VirtualServerKey, server: VirtualServer) -> Iterator[str]:
    at = f"{_PROTOCOLS[key.protocol]} {join_host_port(key.address, key.port)}"
    hashes_ports = " -b mh-port" if server.options.flags & IP_VS_SVC_F_SCHED2 else ""
    persistence = f" -p {server.options.persistence_s}" if server.options.persistence_s else ""
    yield f"-A {at} -s {server.options.scheduler}{hashes_ports}{persistence}"
    for name, destination in server.destinations.items():
        yield f"-a {at} -r {join_host_port(*name)} -m -w {destination.weight}"
