"""Mode kernelspace: a load balancer of HCN for each front of the plan, and endpoints of HCN for those on other nodes.

A full sync reads HCN's objects and requests the differences, so connections survive a restart. A request that HCN
refuses does not end a sync: the objects of other Services follow, and the refused ones are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from kdns import logs
from kdns.errors import ApplyError
from kdns.net import FAMILIES, VERSION, Family
from kdns.proxy.kernelspace.content import Content, NodeNetwork
from kdns.proxy.kernelspace.io.compute_network import NOT_FOUND, OF_CONTENT, ComputeNetwork, HcnError
from kdns.proxy.kernelspace.requests import Request, Verb, reconciling_requests, requests
from kdns.proxy.kernelspace.schema import HostComputeEndpoint, HostComputeNetwork, endpoint_id
from kdns.proxy.kernelspace.settings import WindowsNetwork
from kdns.proxy.plan.plan import Front, Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.sync.io.kernel_mode import KernelMode, and_more, in_thread, rejected_services
from kdns.proxy.sync.io.proxier import Footprint
from kdns.runtime.metrics import Metric, MetricFamilies, Sample

POLL_S: Final = 10.0
"""How often HCN's objects are compared with the desired ones."""

log = logs.get(__name__)


class KernelspaceProxier(KernelMode):
    """The proxier of mode kernelspace. `host_mac` returns the MAC address of the node's interface with an address."""

    name = "kernelspace"
    footprint = Footprint()
    """Nothing in the kernel of Linux."""
    is_polled = True
    pause_s = POLL_S

    def __init__(
        self,
        service: ComputeNetwork,
        network: WindowsNetwork,
        host_mac: Callable[[str], str],
    ) -> None:
        super().__init__()
        self.udp_targets = None  # HCN ends the flows of an endpoint itself
        self._service, self._network, self._host_mac = service, network, host_mac
        self._contents: dict[Family, Content] = {}
        self._node: NodeNetwork | None = None
        self._refused: dict[str, str] = {}
        """Why HCN refuses an object, by its id."""
        self._endpoint_ids: frozenset[str] = frozenset()
        """All endpoints when they were last read."""
        self._missing: frozenset[str] = frozenset()
        self.counters = ObjectCounters(self._contents)

    async def sync_full(self, plan: Plan) -> None:
        await self._sync(lambda: self._load(plan))

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Requests what differs. Everything is read again if the last reading lacks an endpoint, or a route to it."""
        await self._sync(lambda: self._follow(plan, differences))

    async def _sync(self, work: Callable[[], None]) -> None:
        async with self._turn:
            try:
                await in_thread(work)
            finally:
                self.rejected = rejected_services(self._used(), self._refused)

    def _used(self) -> Iterator[tuple[Front, tuple[str, ...]]]:
        for content in self._contents.values():
            for key, balancer in content.load_balancers.items():
                if front := content.front_at(key):
                    yield front, (balancer.id, *balancer.endpoints)

    async def _remove_rules(self) -> None:
        await in_thread(lambda: remove_objects(self._service))
        self._contents.clear()

    async def difference(self) -> str:
        return await in_thread(self._difference)

    def _follow(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        if not self._contents or self._has_unknown_endpoint(differences):
            self._load(plan)
            return
        self._carry_out(
            [
                request
                for family, content in self._contents.items()
                for request in content.follow(plan.of(family), differences[family])
            ]
        )
        self._log_missing()

    def _load(self, plan: Plan) -> None:
        self._contents.clear()  # if this fails, a partial sync has nothing to start from
        self._refused.clear()
        network = self._service.network(self._network.name)
        existing = self._service.endpoints(network.id)
        if self._node is None or self._node.network.id != network.id:
            log.info("network found", network=network.name, type=network.type, id=network.id)
        node = self._node_network(plan, network, existing)
        contents = {family: Content(plan.of(family), node) for family in FAMILIES}
        changes = reconciling_requests(
            {address: endpoint for content in contents.values() for address, endpoint in content.endpoints.items()},
            {key: balancer for content in contents.values() for key, balancer in content.load_balancers.items()},
            [endpoint for endpoint in existing if is_own(network, endpoint)],
            self._service.load_balancers(),
        )
        self._node, self._endpoint_ids = node, frozenset(endpoint.id for endpoint in existing)
        self._carry_out(changes)
        self._contents.update(contents)
        self._log_missing()

    def _node_network(
        self, plan: Plan, network: HostComputeNetwork, existing: Iterable[HostComputeEndpoint]
    ) -> NodeNetwork:
        settings = self._network
        mac, gateway = self._overlay_mac(plan) if network.is_overlay else "", ""
        others: dict[str, str] = {}
        for endpoint in existing:
            if not is_own(network, endpoint):
                others |= dict.fromkeys(endpoint.addresses, endpoint.id)
            if settings.gateway_endpoint and endpoint.name == settings.gateway_endpoint:
                gateway = endpoint.id
        if settings.gateway_endpoint and not gateway:
            reason = f"network {network.name} has no endpoint {settings.gateway_endpoint}"
            log.warning("health checks of load balancers are not forwarded", reason=reason)
        return NodeNetwork(network, mac, others, gateway, settings)

    def _overlay_mac(self, plan: Plan) -> str:
        """ApplyError if settings or node lack what an overlay network needs."""
        if not self._network.source_vip:
            expected = "expected winkernel.sourceVip or --source-vip, an address of the node's Pod range"
            raise ApplyError((self._network.name,), f"an overlay network needs a source VIP; {expected}")
        own = [str(address) for address in plan.ipv4.node.primary if address.version == VERSION["IPv4"]]
        if not own:
            raise ApplyError((self._network.name,), "an overlay network needs an IPv4 address of the node")
        if plan.ipv6.fronts:
            log.warning("virtual IPs of IPv6 are not served", reason=f"network {self._network.name} is an overlay")
        return self._host_mac(own[0])

    def _carry_out(self, changes: Iterable[Request]) -> None:
        """Carries out the requests. Raises ApplyError at the end if HCN failed, other than by refusing an object.

        After a refusal or failure no endpoint is deleted, as a load balancer may have it. The next full sync does.
        """
        failures: list[str] = []
        is_complete = True
        for request in changes:
            name = request.object.id
            if not is_complete and request.verb is Verb.DELETE and isinstance(request.object, HostComputeEndpoint):
                continue
            try:
                self._carry_out_one(request)
            except HcnError as error:
                is_complete = False
                if error.code in OF_CONTENT:
                    self._refused[name] = str(error)
                else:
                    failures.append(f"{name}: {error}")
            else:
                self._refused.pop(name, None)
        if failures:
            raise ApplyError(("HCN",), and_more(failures))

    def _carry_out_one(self, request: Request) -> None:
        """Carries out a request; an object whose creation was refused before is created in place of modified."""
        try:
            self._service.carry_out(request)
        except HcnError as error:
            is_missing = request.verb is Verb.MODIFY and error.code in NOT_FOUND
            if not is_missing or request.object.id not in self._refused:
                raise
            self._service.carry_out(Request(Verb.CREATE, request.object))

    def _has_unknown_endpoint(self, differences: Mapping[Family, Difference]) -> bool:
        """Whether an endpoint is used that HCN did not have, or had no route to, when its objects were read."""
        return any(
            endpoint.address not in self._missing and not self._contents[family].knows(endpoint)
            for family, difference in differences.items()
            for _, front in difference.fronts.values()
            if front and front.lists
            for endpoint in front.port.endpoints_of(front.lists[0])
        )

    def _log_missing(self) -> None:
        """Logs endpoints of this node that HCN does not have, each once."""
        missing = frozenset(address for content in self._contents.values() for address in content.missing)
        if new := sorted(missing - self._missing):
            log.warning("endpoints of this node are left out", addresses=new, reason="HCN has no endpoint for them")
        self._missing = missing

    def _difference(self) -> str:
        balancers = [balancer for content in self._contents.values() for balancer in content.load_balancers.values()]
        if not balancers and not self._missing:
            return ""
        existing = self._service.ids("LoadBalancer")
        if gone := min({balancer.id for balancer in balancers} - existing - self._refused.keys(), default=""):
            return f"load balancer {gone} is gone"
        before, self._endpoint_ids = self._endpoint_ids, self._service.ids("Endpoint")
        used = {name for balancer in balancers for name in balancer.endpoints}
        if gone := min(used - self._endpoint_ids - self._refused.keys(), default=""):
            return f"endpoint {gone} is gone"
        own = {endpoint.id for content in self._contents.values() for endpoint in content.endpoints.values()}
        if self._missing and (new := min(self._endpoint_ids - before - own, default="")):
            return f"endpoint {new} of this node was created"
        return ""


class ObjectCounters:
    """The numbers of the mode's objects in HCN, which counts neither connections nor packets."""

    def __init__(self, contents: Mapping[Family, Content]) -> None:
        self._contents = contents

    def register(self, metrics: MetricFamilies) -> None:
        for name, text in (("load_balancers", "Load balancers of HCN."), ("endpoints", "Endpoints on other nodes.")):
            metrics.add(Metric(f"kdns_hcn_{name}", text, (), partial(self._samples, name)))

    async def read(self, plan: Plan) -> None:
        """Nothing: the numbers are known."""

    def _samples(self, name: str) -> list[Sample]:
        return [Sample((), float(sum(len(getattr(content, name)) for content in self._contents.values())))]


def is_own(network: HostComputeNetwork, endpoint: HostComputeEndpoint) -> bool:
    return any(endpoint.id == endpoint_id(network.name, address) for address in endpoint.addresses)


def remove_objects(service: ComputeNetwork) -> list[str]:
    """Deletes the load balancers and endpoints that kdns created, and returns them in words. Blocks."""
    removed = []
    balancers = [balancer for balancer in service.load_balancers() if balancer.is_own]
    networks = service.networks()
    endpoints = [
        endpoint for network in networks for endpoint in service.endpoints(network.id) if is_own(network, endpoint)
    ]
    for request in requests([(endpoint, None) for endpoint in endpoints], [(old, None) for old in balancers]):
        service.carry_out(request)
        kind = "endpoint" if isinstance(request.object, HostComputeEndpoint) else "load balancer"
        removed.append(f"{kind} {request.object.id}")
    return removed
