"""What kdns's table has whatever the Services are: its sets and maps, its hooks, and the way through them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kdns.proxy.nftables import NFT_FAMILY, PROTOCOLS, RELAYED, SIDES, TABLE, collapsed
from kdns.proxy.plan import FamilyPlan, Masquerade


def frame(half: FamilyPlan, mark: int) -> str:
    """Everything that does not depend on any Service: the sets and maps, the hooks, and the way through them.

    Differs: kube-proxy refuses TCP with an ICMP message too. One that a Pod of this node gets while it still is in
    connect() is lost, and it waits a second for the next; and the kernel sends few such messages at a time.
    """
    ip = NFT_FAMILY[half.family]
    body = "\n".join((*_maps(half, ip), *_chains(half, ip, mark)))
    return f"table {ip} {TABLE} {{\n{body}\n}}"


def _maps(half: FamilyPlan, ip: str) -> Iterator[str]:
    for side in SIDES:
        key = side.key.format(ip=ip)
        yield _set("map", side.services, f"{key} : verdict", "counter")
        yield _set("map", side.refused, f"{key} : verdict", "counter")
        yield _set("map", f"any-endpoint{side.suffix}", f"{key} : verdict")
        yield _set("map", f"local-endpoint{side.suffix}", f"{key} : verdict")
        for protocol in RELAYED if half.mode.relays else PROTOCOLS:
            place = side.place.format(ip=ip, protocol=protocol)
            if half.mode.relays:
                yield _set("map", f"relays{side.suffix}-{protocol}", f"{place} : {protocol} dport")
                yield _set("map", f"relays-local{side.suffix}-{protocol}", f"{place} : {protocol} dport")
                continue
            drawn, endpoint = f"{place} . numgen random mod 65536", f"{ip} daddr . {protocol} dport"
            for kind in (f"{side.suffix}-{protocol}", f"-local{side.suffix}-{protocol}"):
                yield _set("map", f"endpoints{kind}", f"{drawn} : {endpoint}")
                yield _set("map", f"numbers{kind}", f"{drawn} : meta priority")
                yield _set("map", f"numbered{kind}", f"{place} . meta priority : {endpoint}")
    front = SIDES[0].key.format(ip=ip)
    yield _set("set", "cluster-ips", f"{ip} daddr")
    if half.mode.relays:
        yield from (_set("set", f"relay-ports-{protocol}", f"{protocol} dport") for protocol in RELAYED)
    else:
        yield _set("set", "hairpin-connections", f"{ip} saddr . {ip} daddr")
    yield _set("set", "firewalled", front)
    yield _set("set", "firewall-ranges", f"{front} . {ip} saddr", "flags interval")


def _set(what: str, name: str, of: str, *options: str) -> str:
    return "\n".join((f"\t{what} {name} {{", *(f"\t\t{line}" for line in (f"typeof {of}", *options)), "\t}"))


def _chains(half: FamilyPlan, ip: str, mark: int) -> Iterator[str]:
    front, port = (side.key.format(ip=ip) for side in SIDES)
    local_pods = _local_pods(half, ip)
    node_port = _node_port_destination(half, ip)
    chains: Mapping[str, Iterable[str]] = {
        "mark-for-masquerade": (f"meta mark set meta mark or {mark:#x}",),
        "reject-chain": ("meta l4proto tcp reject with tcp reset", "reject"),
        "firewall-check": (f"{front} @firewalled {front} . {ip} saddr != @firewall-ranges drop",),
        "nodeport-endpoints-check": (f"{node_port} {port} vmap @no-endpoint-nodeports",) if node_port else (),
        "service-endpoints-check": (f"{front} vmap @no-endpoint-services",),
        "cluster-ips-check": (f"{ip} daddr @cluster-ips goto reject-chain", *_unallocated(half, ip)),
        **{
            f"external-local{side.suffix}": _external_local(half, side.key.format(ip=ip), side.suffix, local_pods)
            for side in SIDES
        },
        "services": (
            *_cluster_ip_masquerade(half, ip, local_pods),
            f"{front} vmap @service-ips",
            *((f"{node_port} {port} vmap @service-nodeports",) if node_port else ()),
        ),
        "masquerading": ()
        if half.mode.relays
        else (
            f"meta mark and {mark:#x} != 0 meta mark set meta mark xor {mark:#x} masquerade fully-random",
            f"ct status dnat {ip} saddr . {ip} daddr @hairpin-connections masquerade fully-random",
        ),
        "filter-prerouting-pre-dnat": _hook("filter", "prerouting", -110, "ct state new jump firewall-check"),
        "filter-output-pre-dnat": _hook("filter", "output", -110, "ct state new jump firewall-check"),
        "filter-input": _hook(
            "filter",
            "input",
            0,
            *(_UNCAPTURED if half.mode.relays else ()),
            "ct state new jump nodeport-endpoints-check",
            "ct state new jump service-endpoints-check",
        ),
        "filter-forward": _hook("filter", "forward", 0, *_FORWARDED),
        "filter-output": _hook("filter", "output", 0, *_FORWARDED),
        "nat-prerouting": _hook("nat", "prerouting", -100, "jump services"),
        "nat-output": _hook("nat", "output", -100, "jump services"),
        "nat-postrouting": _hook("nat", "postrouting", 100, "jump masquerading"),
    }
    for name, rules in chains.items():
        yield "\n".join((f"\tchain {name} {{", *(f"\t\t{rule}" for rule in rules), "\t}"))


_UNCAPTURED: Final = tuple(
    f"ct state new ct status and dnat == 0 {protocol} dport @relay-ports-{protocol} goto reject-chain"
    for protocol in RELAYED
)
"""Relays are for what comes to virtual IPs, not for whoever finds their ports."""
_FORWARDED: Final = ("ct state new jump service-endpoints-check", "ct state new jump cluster-ips-check")


def _hook(kind: str, hook: str, priority: int, *rules: str) -> tuple[str, ...]:
    return f"type {kind} hook {hook} priority {priority}; policy accept;", *rules


def _external_local(half: FamilyPlan, key: str, suffix: str, local_pods: str) -> Iterator[str]:
    """External policy Local: this node's Pods and the node itself may go anywhere, all others stay here."""
    if local_pods:
        yield f"{local_pods} {key} vmap @any-endpoint{suffix}"
    if not half.mode.relays:
        yield "fib saddr type local jump mark-for-masquerade"
    yield f"fib saddr type local {key} vmap @any-endpoint{suffix}"
    yield f"{key} vmap @local-endpoint{suffix}"


def _cluster_ip_masquerade(half: FamilyPlan, ip: str, local_pods: str) -> Iterator[str]:
    if half.cluster_ip_masquerade is Masquerade.ALL:
        yield f"{ip} daddr @cluster-ips jump mark-for-masquerade"
    elif half.cluster_ip_masquerade is Masquerade.NOT_LOCAL_PODS:
        matched, _, value = local_pods.rpartition(" ")
        yield f"{ip} daddr @cluster-ips {matched} != {value} jump mark-for-masquerade"


def _local_pods(half: FamilyPlan, ip: str) -> str:
    """What matches packets of this node's Pods; "" when nothing does."""
    pods = half.local_pods
    if pods is None:
        return ""
    if pods.bridge:
        return f'iifname "{pods.bridge}"'
    return f'iifname "{pods.interface_prefix}*"' if pods.interface_prefix else f"{ip} saddr {pods.networks[0]}"


def _node_port_destination(half: FamilyPlan, ip: str) -> str:
    """What matches destinations that have node ports; "" when none has."""
    if not half.node_port_networks:
        return ""
    local = "fib daddr type local"
    if not half.localhost_node_ports:
        local += f" {ip} daddr != {'127.0.0.0/8' if ip == 'ip' else '::1'}"
    if any(network.prefixlen == 0 for network in half.node_port_networks):
        return local
    return f"{local} {ip} daddr {{ {', '.join(map(str, collapsed(half.node_port_networks)))} }}"


def _unallocated(half: FamilyPlan, ip: str) -> Iterator[str]:
    if half.service_cidrs:
        yield f"{ip} daddr {{ {', '.join(map(str, collapsed(half.service_cidrs)))} }} drop"
