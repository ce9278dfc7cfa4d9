"""Services and slices as nobody means them, but as an API server stores them.

Addresses are mapped, padded or of the wrong family, fields are left of former types, empty or unknown, names are as
long as they may be and numbers are zero.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, TypeAlias

import msgspec

from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.state import Change
from kdns.proxy.plan.state import ProxyState

Told: TypeAlias = dict[str, Any]
"""An object as JSON has it."""

EVIL: Final = 'x" : drop }\nadd table ip evil\n#'
"""A name that an API which does not validate may let in; as text of its own it would make a table."""
NAMESPACES: Final = ("default", "n" * 63, "123", EVIL)
NAMES: Final = ("web", "x" * 63, "drop", "map", "0a", EVIL)
PORT_NAMES: Final = ("", "http", "p" * 63, "1a", "tcp", "accept", "a-b", EVIL)
PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
NUMBERS: Final = (1, 80, 443, 8080, 65535)
NODE_PORTS: Final = (0, 1, 30000, 30001, 32767, 65535)
CLUSTER_IPS: Final[Sequence[list[str]]] = (
    ["10.96.0.1"],
    ["10.96.0.2", "fd00:96::1"],
    ["FD00:96::2", "10.96.255.255"],
    ["fd00:96:0:0:0:0:0:3"],
    ["fd00:96::"],
    ["10.96.0.1", "10.96.0.3"],
    ["::ffff:10.96.0.77"],
    ["010.096.000.099"],
    ["None"],
    [""],
    [],
)
EXTERNAL: Final = (
    "1.2.3.4",
    "198.51.100.7",
    "10.96.0.1",
    "192.0.2.1",
    "0.0.0.1",
    "010.011.012.013",
    "224.0.0.5",
    "240.0.0.1",
    "255.255.255.255",
    "::ffff:9.9.9.9",
    "2001:db8::5",
    "fe80::7",
    "ff02::99",
    "",
)
RANGES: Final = (
    "10.0.0.0/8",
    "10.0.0.0/9",
    "10.128.0.0/9",
    "10.0.0.7/8",
    "010.0.0.0/8",
    " 192.0.2.0/24 ",
    "0.0.0.0/0",
    "0.0.0.0/1",
    "128.0.0.0/1",
    "224.0.0.0/4",
    "1.2.3.4/32",
    "255.255.255.255/32",
    "::ffff:10.0.0.0/104",
    "::/0",
    "::/1",
    "8000::/1",
    "::1/128",
    "fd00::/8",
    "2001:db8::/32",
)
ENDPOINTS: Final = {
    "IPv4": (
        *(f"10.1.0.{number}" for number in range(1, 9)),
        "010.001.000.005",
        "::ffff:10.1.0.9",
        "10.96.0.1",
        "192.0.2.1",
        "224.0.0.9",
        "255.255.255.255",
        "fd00:1::1",
    ),
    "IPv6": (
        *(f"fd00:1::{number}" for number in range(1, 9)),
        "FD00:1::A",
        "2001:db8:0:0:0:0:0:5",
        "fd00:96::1",
        "10.1.0.1",
    ),
    "FQDN": ("a.example",),
}
AFFINITY: Final[Sequence[Told | None]] = (
    None,
    {},
    {"clientIP": {}},
    *({"clientIP": {"timeoutSeconds": each}} for each in (None, 1, 86400)),
)
HINTS: Final[Sequence[Told | None]] = (
    None,
    {},
    {"forZones": []},
    {"forZones": [{"name": "z1"}]},
    {"forNodes": [{"name": "here"}]},
)


def metadata(random: Random, name: str, **more: Any) -> Told:
    return {"name": name, "namespace": random.choice(NAMESPACES), **more}


def service_ports(random: Random) -> Iterator[Told]:
    """Ports whose names differ, and whose numbers differ in each protocol."""
    pairs = [(protocol, number) for protocol in PROTOCOLS for number in (*NUMBERS, random.randint(1, 65535))]
    several = dict.fromkeys(random.sample(pairs, random.choice((1, 1, 2, 6))))
    for name, (protocol, number) in zip(random.sample(PORT_NAMES, len(several)), several, strict=True):
        yield {
            "name": name,
            "protocol": protocol,
            "port": number,
            "nodePort": random.choice((*NODE_PORTS, random.randint(30000, 32767))),
            "targetPort": random.choice(("x", 0, 80)),
            "unheardOf": {"of": []},
        }


def service(random: Random) -> Told:
    """Any type with the fields of any."""
    ips = random.choice(CLUSTER_IPS)
    ingress = [
        {"ip": random.choice(EXTERNAL), "ipMode": random.choice((None, "VIP", "Proxy")), "hostname": "x.example"}
        for _ in range(random.randint(0, 3))
    ]
    return {
        "metadata": metadata(
            random,
            random.choice(NAMES),
            labels=random.choice((None, {}, {}, {}, {"service.kubernetes.io/service-proxy-name": ""})),
        ),
        "spec": {
            "type": random.choice(("ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName")),
            "clusterIP": ips[0] if ips and random.random() < 0.9 else "",
            "clusterIPs": ips if random.random() < 0.9 else [],
            "ports": list(service_ports(random)),
            "externalIPs": random.choices(EXTERNAL, k=random.choice((0, 0, 1, 5))),
            "loadBalancerSourceRanges": random.choices(RANGES, k=random.choice((0, 0, 1, 6))),
            "externalTrafficPolicy": random.choice(("", "Cluster", "Local")),
            "internalTrafficPolicy": random.choice((None, "Cluster", "Local")),
            "sessionAffinity": random.choice(("None", "ClientIP")),
            "sessionAffinityConfig": random.choice(AFFINITY),
            "healthCheckNodePort": random.choice((0, 30000, 32767)),
            "unheardOf": None,
        },
        "status": {"loadBalancer": random.choice(({}, {"ingress": None}, {"ingress": ingress}))},
    }


def endpoint_slice(random: Random) -> Told:
    address_type = random.choice(("IPv4", "IPv4", "IPv6", "FQDN"))
    endpoints = [
        {
            "addresses": [random.choice(ENDPOINTS[address_type])],
            "conditions": {key: random.choice((None, True, False)) for key in ("ready", "serving", "terminating")},
            "nodeName": random.choice((None, "", "here", "there")),
            "hints": random.choice(HINTS),
        }
        for _ in range(random.choice((0, 1, 2, 5, 30)))
    ]
    ports = [
        {
            "name": random.choice((name, name, None)),
            "port": random.choice((None, 0, -1, 70000, *NUMBERS)),
            "protocol": random.choice(PROTOCOLS),
        }
        for name in random.sample(PORT_NAMES, random.choice((0, 1, 3, 6)))
    ]
    name = f"{random.randint(0, 30):s>253}"
    return {
        "metadata": metadata(random, name, labels={"kubernetes.io/service-name": random.choice(NAMES)}),
        "addressType": address_type,
        "endpoints": random.choice((endpoints,) * 9 + (None,)),
        "ports": random.choice((ports,) * 9 + (None,)),
    }


def written(random: Random, state: ProxyState, told: Sequence[Told]) -> list[Change]:
    """What writing these objects changes; of some it takes back what is there, of some only the type."""
    changes: list[Change | None] = []
    for each in told:
        try:
            obj: Service | EndpointSlice = (
                msgspec.convert(each, Service) if "spec" in each else msgspec.convert(each, EndpointSlice)
            )
        except msgspec.ValidationError:  # a port that is none: such an object is left out
            continue
        before = state.services.get(obj.key) if isinstance(obj, Service) else None
        if random.random() < 0.25:
            changes.append(state.delete(type(obj), obj.key))
        elif isinstance(obj, Service) and before and random.random() < 0.3:
            spec = msgspec.structs.replace(before.spec, type=obj.spec.type)
            changes.append(state.upsert(msgspec.structs.replace(before, spec=spec)))
        else:
            changes.append(state.upsert(obj))
    return [change for change in changes if change]
