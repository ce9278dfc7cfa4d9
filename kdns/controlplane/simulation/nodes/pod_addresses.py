"""Addresses of simulated Pods and Nodes, allocated from --pod-cidr."""

from __future__ import annotations

from collections.abc import Hashable
from ipaddress import ip_address

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.pod.pod import is_finished, pod_ips
from kdns.controlplane.kinds.service.allocator import Choose, Pool
from kdns.errors import KdnsError

_NODE_RESERVED = 2
"""The first two of each Pod range: the network address and the first Node's address."""


class PodAddressError(KdnsError):
    """A Pod range has no free address."""


class PodAddresses:
    """The addresses that Pods and Nodes use. An address in use, even one of a manifest, is not allocated again."""

    def __init__(self, config: ClusterConfig, choose: Choose) -> None:
        self._networks = config.pod_cidrs
        self._pools = [Pool(max(n.num_addresses - _NODE_RESERVED - 1, 0), choose) for n in config.pod_cidrs]
        self._used: dict[Hashable, list[str]] = {}
        self._users: dict[str, int] = {}

    def follow(self, user: Hashable, pod: Json | None) -> None:
        """None for a deleted Pod. A Pod with hostNetwork has no addresses of its own."""
        own = pod is not None and not (pod.get("spec") or {}).get("hostNetwork")
        now = pod_ips(pod) if pod and own and not is_finished(pod) else []
        before = self._used.pop(user, [])
        if now:
            self._used[user] = now
        for address in now:
            self._count(address, 1)
        for address in before:
            self._count(address, -1)

    def choose(self) -> list[str]:
        """A free address of each family; it is in use once `follow` gets the Pod."""
        addresses = []
        for network, pool in zip(self._networks, self._pools, strict=True):
            offset = pool.take_any()
            if offset is None:
                raise PodAddressError(
                    f"no address is left in {network} for another Pod: delete Pods or widen --pod-cidr"
                )
            pool.free(offset)
            addresses.append(str(network[_NODE_RESERVED + offset]))
        return addresses

    def _count(self, address: str, change: int) -> None:
        try:
            parsed = ip_address(address)
        except ValueError:  # outside the Pod ranges
            return
        for network, pool in zip(self._networks, self._pools, strict=True):
            if parsed.version != network.version:
                continue
            offset = int(parsed) - int(network.network_address) - _NODE_RESERVED
            users = self._users.get(address, 0) + change
            self._users[address] = users
            if users > 0 and 0 <= offset < pool.size:
                pool.take(offset)
            elif users <= 0:
                del self._users[address]
                pool.free(offset)
