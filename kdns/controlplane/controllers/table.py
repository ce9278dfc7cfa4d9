"""The table of controllers: one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kdns.controlplane.apimachinery.kinds import REPLICA_SET, REPLICATION_CONTROLLER
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.events import EventExpiry
from kdns.controlplane.controllers.load_balancers import LoadBalancers
from kdns.controlplane.controllers.namespace_objects import root_ca, service_accounts
from kdns.controlplane.controllers.reconciler import Reconciler
from kdns.controlplane.controllers.service_cidrs import DefaultServiceCidr, ServiceCidrs
from kdns.controlplane.endpoints.endpoints_controller import EndpointsController
from kdns.controlplane.endpoints.endpointslice_controller import EndpointSliceController
from kdns.controlplane.endpoints.mirroring_controller import MirroringController
from kdns.controlplane.endpoints.service_index import ServiceIndex
from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.service.allocator import Choose
from kdns.controlplane.simulation.nodes.kubelet import Kubelet
from kdns.controlplane.simulation.nodes.scheduler import Scheduler
from kdns.controlplane.simulation.workloads.daemonset import DaemonSets
from kdns.controlplane.simulation.workloads.deployment import Deployments
from kdns.controlplane.simulation.workloads.job import Jobs
from kdns.controlplane.simulation.workloads.replicaset import ReplicaSets
from kdns.controlplane.simulation.workloads.statefulset import StatefulSets


@dataclass(frozen=True, slots=True)
class Setup:
    """The dependencies of the controllers. `choose(n)` is a random number below n."""

    config: ClusterConfig
    choose: Choose
    allocator: ServiceAllocator
    services: ServiceIndex = field(default_factory=ServiceIndex)


Row: TypeAlias = Callable[[Setup], Reconciler | None]
"""Makes a controller; None if the configuration disables it."""

# fmt: off
CONTROLLERS: Final[tuple[Row, ...]] = (
    lambda setup: Scheduler() if setup.config.simulate_pods else None,
    lambda setup: Kubelet(setup.config, setup.choose) if setup.config.simulate_pods else None,
    lambda setup: EndpointsController(setup.services),
    lambda setup: EndpointSliceController(setup.services),
    lambda setup: MirroringController(setup.services),
    lambda setup: LoadBalancers(setup.config.lb_pool),
    lambda _: Deployments(),
    lambda _: ReplicaSets(REPLICA_SET),
    lambda _: ReplicaSets(REPLICATION_CONTROLLER),
    lambda _: StatefulSets(),
    lambda _: DaemonSets(),
    lambda _: Jobs(),
    lambda setup: DefaultServiceCidr(setup.config),
    lambda _: ServiceCidrs(),
    lambda _: service_accounts(),
    lambda setup: root_ca(setup.config.root_ca) if setup.config.root_ca else None,
    lambda _: EventExpiry(),
)
# fmt: on
"""In the order in which they observe an event."""


def controllers_of(config: ClusterConfig, choose: Choose, allocator: ServiceAllocator) -> tuple[Reconciler, ...]:
    """Returns new controllers with empty indexes, in the order of `CONTROLLERS`."""
    setup = Setup(config, choose, allocator)
    return tuple(controller for make in CONTROLLERS if (controller := make(setup)) is not None)
