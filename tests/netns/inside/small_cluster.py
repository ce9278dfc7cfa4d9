"""Services and endpoints for the small network, and how its people and places are called in tables of packets.

    who     pod1, pod2, remote, outside, outside2, node
    what    vip3, ext3, lb3: the addresses of the third Service; node, node2: the node's; each may have a port, vip3:81
    ends    p1, p2 (Pods of this node), r1, r2 (Pods of another), h1 (a Pod in the node's own network), as "p1,r1" or
            "p1,r1 masq"; refused; dropped; nobody (the dataplane has nothing to do with it, and there is no answer);
            "dropped if drops_unallocated else nobody" where it depends on a field of the mode's semantics;
            further conditions may follow "else"

A Service's own number is part of its name, its addresses and its node port: the third has 30003.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final, NamedTuple

import msgspec
from world import NODE, OUTSIDE, PODS

from kdns.cluster.objects import EndpointSlice, Object, Service
from kdns.cluster.state import Change, State
from kdns.net import FAMILIES, Family
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.config import LocalPods, NodeView, ProxyConfig
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Difference, Planner, plan
from kdns.proxy.plan.semantics import Semantics

ENDPOINTS: Final = {
    "p1": PODS["pod1"],
    "p2": PODS["pod2"],
    "r1": (PODS["remote"][0], PODS["remote"][2]),
    "r2": (PODS["remote"][1], PODS["remote"][3]),
    "h1": (NODE[0], NODE[2]),
}
CLIENTS: Final = {
    "pod1": PODS["pod1"],
    "pod2": PODS["pod2"],
    "remote": ENDPOINTS["r1"],
    "outside": (OUTSIDE[0], OUTSIDE[2]),
    "outside2": (OUTSIDE[1], OUTSIDE[3]),
    "node": (NODE[0], NODE[2]),
    "node2": (NODE[1], NODE[3]),
}
ARRIVES: Final = {"pod1": "pod1", "pod2": "pods", "remote": "remote", "outside": "outside", "outside2": "outside"}
"""The interface on which a client's packets come in; the node's own come in nowhere."""
PREFIXES: Final = {
    "vip": ("10.96.0.", "fd00:96::"),
    "ext": ("198.51.100.", "2001:db8:5::"),
    "lb": ("198.51.101.", "2001:db8:6::"),
}
NODE_VIEW: Final = NodeView("here", "z1", (ip_address(NODE[0]), ip_address(NODE[2])), tuple(map(ip_address, NODE)))
LOCAL_PODS: Final = LocalPods((ip_network("10.1.0.0/24"), ip_network("fd00:1::/64")))
SERVICE_CIDRS: Final = (ip_network("10.96.0.0/24"), ip_network("fd00:96::/112"))
CONFIG: Final = ProxyConfig(NFTABLES, local_pods=LOCAL_PODS, service_cidrs=SERVICE_CIDRS)
PROTOCOLS: Final = ("TCP", "UDP", "SCTP")


class Row(NamedTuple):
    """One line of a table: who sends to what, and what comes of it."""

    client: str
    target: str
    wanted: str

    def in_mode(self, config: ProxyConfig) -> Row:
        """The line as it is in the mode of a configuration.

        A mode that does not refuse leaves packets alone. One that treats clients alike masquerades all packets to
        cluster IPs, or none.
        """
        mode, wanted = config.mode, self.wanted
        while " if " in wanted:
            end, _, condition = wanted.partition(" if ")
            field_name, _, otherwise = condition.partition(" else ")
            wanted = end if getattr(mode, field_name) else otherwise
        if wanted in {"refused", "dropped"} and not mode.refuses:
            wanted = "nobody"
        if mode.treats_clients_alike and self.target.startswith("vip") and wanted != "nobody":
            wanted = wanted.removesuffix(" masq") + (" masq" if config.masquerade_all else "")
        return self._replace(wanted=wanted)


@dataclass(frozen=True, slots=True)
class Case:
    """A state, what the dataplane is told, and what becomes of packets; `table` is for every mode."""

    name: str
    objects: tuple[tuple[Object, ...], ...]
    table: tuple[Row, ...]
    config: ProxyConfig = CONFIG
    node: NodeView = NODE_VIEW

    def in_mode(self, mode: Semantics) -> Case:
        return replace(self, config=replace(self.config, mode=mode))

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row.in_mode(self.config) for row in self.table)

    @property
    def plan(self) -> Plan:
        return plan(state(*self.objects), self.node, self.config)


@dataclass(frozen=True, slots=True)
class Sent:
    """A row's packet in one family and protocol."""

    row: Row
    source: IPv4Address | IPv6Address
    destination: IPv4Address | IPv6Address
    protocol: str
    port: int
    ends: frozenset[str] = field(default_factory=frozenset)

    @property
    def is_masqueraded(self) -> bool:
        """Whether it is to leave with the node's address, whichever end it goes to."""
        return self.row.wanted.endswith(" masq")

    def __str__(self) -> str:
        return (
            f"{self.row.client} ({self.source}) to {self.row.target} ({self.destination}:{self.port}/{self.protocol})"
        )


def case(name: str, objects: Iterable[tuple[Object, ...]], rows: str, **changed: Any) -> Case:
    """A case; `changed` is what differs from CONFIG. A row is a client or several, a target and an end."""
    return Case(name, tuple(objects), tuple(read(rows)), replace(CONFIG, **changed))


def read(text: str) -> Iterator[Row]:
    for line in text.strip().splitlines():
        clients, target, wanted = line.split(maxsplit=2)
        for client in clients.split(","):
            yield Row(client, target, wanted)


def sent(row: Row, family: Family, protocol: str) -> Sent:
    which = FAMILIES.index(family)
    name, _, port = row.target.partition(":")
    ends = row.wanted.removesuffix(" masq").split(",")
    return Sent(
        row,
        ip_address(CLIENTS[row.client][which]),
        ip_address(_address(name, which)),
        protocol,
        int(port or 80),
        frozenset(ENDPOINTS[end][which] for end in ends if end in ENDPOINTS),
    )


def _address(name: str, which: int) -> str:
    if name in CLIENTS:
        return CLIENTS[name][which]
    kind = name.rstrip("0123456789")
    return f"{PREFIXES[kind][which]}{name[len(kind) :]}"


def both(kind: str, number: int) -> list[str]:
    """A Service's addresses of a kind."""
    return [f"{prefix}{number}" for prefix in PREFIXES[kind]]


def service(
    number: int,
    *slices: tuple[EndpointSlice, ...],
    protocols: Iterable[str] = PROTOCOLS,
    internal: str = "Cluster",
    external: str = "Cluster",
    ingress: Iterable[dict[str, str]] | None = None,
    created: str | None = None,
    **spec: Any,
) -> tuple[Object, ...]:
    """A Service of type LoadBalancer with addresses of every kind in both families, and its slices.

    `spec` says what differs, in the API's words.
    """
    told = {
        "type": "LoadBalancer",
        "clusterIP": both("vip", number)[0],
        "clusterIPs": both("vip", number),
        "externalIPs": both("ext", number),
        "internalTrafficPolicy": internal,
        "externalTrafficPolicy": external,
        "ports": [
            {"name": protocol.lower(), "protocol": protocol, "port": 80, "nodePort": 30000 + number}
            for protocol in protocols
        ],
    }
    ingress = [{"ip": address} for address in both("lb", number)] if ingress is None else ingress
    row = {
        "metadata": {"name": f"s{number}", "namespace": "shop", "creationTimestamp": created},
        "spec": told | spec,
        "status": {"loadBalancer": {"ingress": ingress}},
    }
    return msgspec.convert(row, Service), *(each for endpoint_slice in slices for each in endpoint_slice)


def endpoints(number: int, *ends: str, slice_name: str = "") -> tuple[EndpointSlice, ...]:
    """Slices for both families. An end may say how it is: "p1 terminating", "r1 unready", "r1 zone=z2 node=there"."""
    return tuple(
        msgspec.convert(
            {
                "metadata": {
                    "name": f"s{number}-{family.lower()}{slice_name}",
                    "namespace": "shop",
                    "labels": {"kubernetes.io/service-name": f"s{number}"},
                },
                "addressType": family,
                "endpoints": [_endpoint(end, which) for end in ends],
                "ports": [{"name": protocol.lower(), "protocol": protocol, "port": 8080} for protocol in PROTOCOLS],
            },
            EndpointSlice,
        )
        for which, family in enumerate(FAMILIES)
    )


def _endpoint(end: str, which: int) -> dict[str, Any]:
    name, *words = end.split()
    row: dict[str, Any] = {
        "addresses": [ENDPOINTS[name][which]],
        "nodeName": "there" if name.startswith("r") else "here",
        "conditions": {
            "ready": not {"terminating", "unready", "gone"} & set(words),
            "serving": not {"unready", "gone"} & set(words),
            "terminating": bool({"terminating", "gone"} & set(words)),
        },
    }
    hints = [word.split("=") for word in words if "=" in word]
    if hints:
        row["hints"] = {f"for{kind.capitalize()}s": [{"name": name}] for kind, name in hints}
    return row


def state(*objects: Iterable[Object]) -> State:
    made = State()
    for obj in objects:
        for each in obj:
            made.upsert(each)
    return made


def planned(*objects: Iterable[Object], node: NodeView = NODE_VIEW, **changed: Any) -> Plan:
    """The plan of these objects; `changed` is what differs from CONFIG."""
    return plan(state(*objects), node, replace(CONFIG, **changed))


class Followed:
    """A state, and the plan that follows it; `changed` is what differs from CONFIG."""

    def __init__(self, *objects: Iterable[Object], node: NodeView = NODE_VIEW, **changed: Any) -> None:
        self.state = state(*objects)
        self.planner = Planner(self.state, node, replace(CONFIG, **changed))

    @property
    def plan(self) -> Plan:
        return self.planner.plan

    def change(self, *objects: Iterable[Object]) -> dict[Family, Difference]:
        """What differs when these objects have come."""
        return self._changed(self.state.upsert(each) for obj in objects for each in obj)

    def delete(self, kind: type[Object], *names: str) -> dict[Family, Difference]:
        """What differs when these objects of namespace shop have gone."""
        return self._changed(self.state.delete(kind, ("shop", name)) for name in names)

    def _changed(self, changes: Iterable[Change | None]) -> dict[Family, Difference]:
        return self.planner.changed([change for change in changes if change])
