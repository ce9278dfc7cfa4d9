"""The controllers of a cluster."""

from __future__ import annotations

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
from kdns.controlplane.kinds.service.allocator import Choose
from kdns.controlplane.simulation.nodes.kubelet import Kubelet
from kdns.controlplane.simulation.nodes.scheduler import Scheduler
from kdns.controlplane.simulation.workloads.daemonset import DaemonSets
from kdns.controlplane.simulation.workloads.deployment import Deployments
from kdns.controlplane.simulation.workloads.job import Jobs
from kdns.controlplane.simulation.workloads.replicaset import ReplicaSets
from kdns.controlplane.simulation.workloads.statefulset import StatefulSets


def controllers_of(config: ClusterConfig, choose: Choose) -> tuple[Reconciler, ...]:
    """New controllers with empty indexes, in the order in which they observe an event.

    `choose(n)` is a random number below n.
    """
    services = ServiceIndex()
    return (
        *((Scheduler(), Kubelet(config, choose)) if config.simulate_pods else ()),
        EndpointsController(services),
        EndpointSliceController(services),
        MirroringController(services),
        LoadBalancers(config.lb_pool),
        Deployments(),
        ReplicaSets(REPLICA_SET),
        ReplicaSets(REPLICATION_CONTROLLER),
        StatefulSets(),
        DaemonSets(),
        Jobs(),
        DefaultServiceCidr(config),
        ServiceCidrs(),
        service_accounts(),
        *((root_ca(config.root_ca),) if config.root_ca else ()),
        EventExpiry(),
    )
