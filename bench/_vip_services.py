"""Services of five endpoints each, as far as the rules that lead to them are concerned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from kdns.net import Family

ENDPOINTS: Final = 5
PORT, TARGET_PORT, MARK, AFFINITY_S = 80, 8080, 0x4000, 10800


class Ranges(NamedTuple):
    """Where a family's addresses are."""

    services: str
    pods: str
    first_vip: str
    first_endpoint: str


RANGES: Final[Mapping[Family, Ranges]] = {
    "IPv4": Ranges("10.96.0.0/16", "10.128.0.0/9", "10.96.0.10", "10.128.0.1"),
    "IPv6": Ranges("fd00:96::/112", "fd00:128::/32", "fd00:96::a", "fd00:128::1"),
}


class Service(NamedTuple):
    """A Service as far as it matters here."""

    name: str
    vip: str
    endpoints: tuple[str, ...]
    protocols: tuple[str, ...] = ("tcp",)
    affinity: bool = False


class Setting(NamedTuple):
    """So many Services of one family; `affinity`: of the one that is asked."""

    services: Sequence[Service]
    family: Family

    @property
    def asked(self) -> Service:
        """The Service in the middle."""
        return self.services[len(self.services) // 2]


def setting(count: int, family: Family, *, affinity: bool) -> Setting:
    """So many Services."""
    vip, endpoint = (int(ip_address(first)) for first in RANGES[family][2:])

    def address(number: int) -> str:
        return str(ip_address(number) if family == "IPv4" else ip_address(number.to_bytes(16, "big")))

    made = [
        Service(
            f"svc-{number}",
            address(vip + number),
            tuple(address(endpoint + number * ENDPOINTS + place) for place in range(ENDPOINTS)),
        )
        for number in range(count)
    ]
    middle = count // 2
    made[middle] = made[middle]._replace(protocols=("tcp", "udp"), affinity=affinity)
    return Setting(made, family)
