"""The ipsets: names, types and entries are kube-proxy's (pkg/proxy/ipvs/ipset.go)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kdns.net import Family

MAX_NAME: Final = 31
HASH_SIZE: Final = 1024
MAX_ELEMENTS: Final = 65536
PORT_RANGE: Final = (0, 65535)

HASH_IP: Final = "hash:ip"
HASH_IP_PORT: Final = "hash:ip,port"
HASH_IP_PORT_IP: Final = "hash:ip,port,ip"
HASH_IP_PORT_NET: Final = "hash:ip,port,net"
BITMAP_PORT: Final = "bitmap:port"


class Entry(NamedTuple):
    """An entry of a set; its type says which fields count.

    `address` is in canonical form, `protocol` is TCP, UDP or SCTP, `peer` an address or a network in canonical form.
    """

    address: str = ""
    protocol: str = ""
    port: int = 0
    peer: str = ""

    def __str__(self) -> str:
        """As ipset takes and shows it."""
        if not self.address:
            return str(self.port)
        port = (f"{self.protocol.lower()}:{self.port}",) if self.protocol else ()
        return ",".join((self.address, *port, *((self.peer,) if self.peer else ())))


@dataclass(frozen=True, slots=True)
class IpSet:
    """One set. `family` does not count for the type bitmap:port. `entries` are the keys."""

    name: str
    type: str
    family: Family
    entries: dict[Entry, int] = field(default_factory=dict)


def set_name(name: str, family: Family) -> str:
    """The set's name in one family: KUBE-6-… for IPv6, cut to the kernel's longest name."""
    return name if family == "IPv4" else name.replace("KUBE-", "KUBE-6-", 1)[:MAX_NAME]
