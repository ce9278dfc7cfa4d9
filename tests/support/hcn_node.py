"""A node of Windows with a simulated service: the proxier of mode kernelspace, and plans for it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from fake_hcn import FakeHcn, FakeLibraries
from small_cluster import CONFIG, ENDPOINTS, NODE_VIEW, state

from kdns.cluster.objects import Object
from kdns.cluster.state import State
from kdns.net import Family
from kdns.proxy.kernelspace.io.compute_network import ComputeNetwork
from kdns.proxy.kernelspace.io.proxier import KernelspaceProxier
from kdns.proxy.kernelspace.mode import KERNELSPACE
from kdns.proxy.kernelspace.settings import WindowsNetwork
from kdns.proxy.plan.config import ProxyConfig
from kdns.proxy.plan.planner import Difference, Planner

HOST_MAC = "00-15-5d-00-00-01"
NETWORK = WindowsNetwork("Pods")


class HcnNode:
    """The node "here". `service` keeps its objects when the proxier is started again."""

    def __init__(
        self,
        *objects: tuple[Object, ...],
        service: FakeHcn | None = None,
        pods: Iterable[str] = ("p1", "p2"),
        enables_dsr: bool = True,
        network: WindowsNetwork = NETWORK,
        poll_s: float = 10.0,
        **config: Any,
    ) -> None:
        self.service = service or FakeHcn()
        for pod in pods:
            self.service.add_pod(*ENDPOINTS[pod])
        given: dict[str, Any] = {"node_port_addresses": (), "masquerade_all": not enables_dsr}
        self.config: ProxyConfig = replace(CONFIG, mode=KERNELSPACE, **(given | config))
        self.state: State = state(*objects)
        self.planner = Planner(self.state, NODE_VIEW, self.config)
        self.poll_s, self.network = poll_s, network
        self.start()

    def start(self) -> None:
        """A new process of kdns, on the service as it is."""
        self.libraries = FakeLibraries(self.service)
        hcn = ComputeNetwork(self.libraries.functions)
        self.proxier = KernelspaceProxier(hcn, self.network, lambda _: HOST_MAC)
        self.proxier.pause_s = self.poll_s
        self.service.requests.clear()

    async def sync(self) -> list[str]:
        self.service.requests.clear()
        await self.proxier.sync_full(self.planner.plan)
        self.assert_released()
        return self.service.requests

    async def change(self, *objects: Object) -> list[str]:
        """A partial sync after these objects have come; what it requested."""
        changes = [change for obj in objects if (change := self.state.upsert(obj))]
        return await self._partial(self.planner.changed(changes))

    async def delete(self, kind: type[Object], name: str) -> list[str]:
        """A partial sync after the deletion of an object of namespace shop; what it requested."""
        change = self.state.delete(kind, ("shop", name))
        return await self._partial(self.planner.changed([change] if change else []))

    async def _partial(self, differences: dict[Family, Difference]) -> list[str]:
        self.service.requests.clear()
        await self.proxier.sync_partial(self.planner.plan, differences)
        self.assert_released()
        return self.service.requests

    def assert_released(self) -> None:
        assert (self.libraries.buffers, self.libraries.handles) == ({}, {})


def functions(requests: Sequence[str]) -> list[str]:
    """The functions of requests, in order, without "Hcn"."""
    return [request.split(" ")[0].removeprefix("Hcn") for request in requests]
