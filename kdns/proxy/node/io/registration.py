"""The Node of this machine in a cluster of `kdns up`, where no kubelet reports it. No other API is written to.

The addresses of a machine are found as a kubelet finds them; the control plane does the rest of a kubelet's work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kdns import logs
from kdns.cluster.io.connection import Connection, RestStats
from kdns.cluster.objects import Node
from kdns.cluster.source import OWN_BUILD, Source
from kdns.cluster.watch import Timing
from kdns.errors import ApiServerError, KubeconfigError
from kdns.net import Address

RETRY_S: Final = 5.0
ARRIVES_S: Final = 5.0
"""How long a Node that was written may take to come back as an event."""
NODES: Final = "/api/v1/nodes"
CLUSTER: Final = "/api/v1/namespaces/kube-system"
"""Its uid tells a cluster from the one that was at the same address before."""
_REFUSED: Final = 4
"""The first digit of a status that stays the same for the same request."""

log = logs.get(__name__)


@dataclass(slots=True)
class NodeRegistration:
    """Reports the Node once in each cluster, and when `addresses` may be others: `run` works until it is cancelled.

    A `kdns up` that was restarted is another cluster, where it has no --data. A Node that somebody deletes or changes
    stays so. `node` is the object as it was seen last. `addresses` are the machine's primary ones and all of them. Once
    it is decided for the first time what the Node is, `is_decided`; `decided` is called each time.
    """

    source: Source
    name: str
    node: Callable[[], Node | None]
    addresses: Callable[[], tuple[tuple[Address, ...], tuple[Address, ...]]]
    decided: Callable[[], None]
    is_decided: bool = False
    _is_known: bool = False
    _reported: tuple[Address, ...] | None = None
    _cluster: str = ""
    _due: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: asyncio.Event = field(default_factory=asyncio.Event)

    def node_seen(self) -> None:
        """Notes that Nodes were listed, or that this one may have changed."""
        self._seen.set()
        node = self.node()
        reported = node.internal_ips if node else None
        if not self._is_known or reported != self._reported:
            self._due.set()
        self._is_known, self._reported = True, reported

    def addresses_changed(self) -> None:
        """Notes that the machine's addresses are others."""
        self._cluster = ""
        if self._is_known:
            self._due.set()

    async def run(self) -> None:
        """Reports whenever it is due. What the API refuses is logged and left, what fails is tried again."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._report()
            except (ApiServerError, KubeconfigError) as error:
                self._cluster = ""
                log.warning("Node not registered", node=self.name, reason=str(error))
                if not (isinstance(error, ApiServerError) and error.status // 100 == _REFUSED):
                    asyncio.get_running_loop().call_later(RETRY_S, self._due.set)
            self.is_decided = True
            self.decided()

    @property
    def is_reported(self) -> bool:
        """Whether there is a Node, with addresses of this machine only and one of each family that it has."""
        primary, own = self.addresses()
        node = self.node()
        reported = node.internal_ips if node else ()
        families = {address.version for address in reported}
        return bool(node) and families >= {each.version for each in primary} and (not primary or {*reported} <= {*own})

    async def _report(self) -> None:
        async with Connection(self.source, RestStats(), Timing()) as api:
            if not await _is_of_kdns(api):
                return
            cluster = str(json.loads(await api.get(CLUSTER, {}))["metadata"]["uid"])
            if cluster == self._cluster:
                return
            self._cluster = cluster
            if self.is_reported:
                return
            addresses = [str(each) for each in self.addresses()[0]]
            rows = [{"type": "InternalIP", "address": each} for each in addresses]
            status = {"addresses": [*rows, {"type": "Hostname", "address": self.name}]}
            if self.node() is None:
                made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}, "status": status}
                await api.post(NODES, made)
            else:
                await api.merge_patch(f"{NODES}/{self.name}/status", {"status": status})
        log.info("Node registered", node=self.name, addresses=addresses)
        with suppress(TimeoutError):
            async with asyncio.timeout(ARRIVES_S):
                while not self.is_reported:
                    self._seen.clear()
                    await self._seen.wait()


async def _is_of_kdns(api: Connection) -> bool:
    """Returns whether the API is that of a `kdns up`; one that does not tell its version is another."""
    try:
        found = json.loads(await api.get("/version", {}))
    except ApiServerError as error:
        if error.status:
            return False
        raise
    except ValueError:
        return False
    return isinstance(found, dict) and OWN_BUILD in str(found.get("gitVersion"))
