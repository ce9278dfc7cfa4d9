"""Every controller of a cluster, as one table."""

from __future__ import annotations

from kdns.controlplane.allocate import Choose
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.controller import Controller
from kdns.controlplane.daemonsets import DaemonSets
from kdns.controlplane.deployments import Deployments
from kdns.controlplane.disruption import Disruptions
from kdns.controlplane.events import EventExpiry
from kdns.controlplane.jobs import Jobs
from kdns.controlplane.kinds import REPLICA_SET, REPLICATION_CONTROLLER
from kdns.controlplane.kubelet import Kubelet
from kdns.controlplane.loadbalancers import LoadBalancers
from kdns.controlplane.nodelifecycle import NodeLifecycle
from kdns.controlplane.podgc import PodGarbageCollector
from kdns.controlplane.repair_addresses import AddressRepair
from kdns.controlplane.repair_ports import PortRepair
from kdns.controlplane.replicasets import ReplicaSets
from kdns.controlplane.rootca import RootCa
from kdns.controlplane.scheduler import Scheduler
from kdns.controlplane.serviceaccounts import ServiceAccounts
from kdns.controlplane.servicecidrs import DefaultServiceCidr, ServiceCidrs
from kdns.controlplane.serviceendpoints import endpoint_controllers
from kdns.controlplane.statefulsets import StatefulSets
from kdns.controlplane.strategy_service import ServiceAllocator
from kdns.controlplane.workloads import suffixes


def controllers_of(config: ClusterConfig, choose: Choose, numbers: ServiceAllocator) -> tuple[Controller, ...]:
    """Fresh controllers that know nothing yet, in the order in which they learn of an event."""
    allocation = (
        DefaultServiceCidr(config),
        ServiceCidrs(),
        AddressRepair(numbers.tally),
        PortRepair(numbers.ports, numbers.tally),
    )
    simulation = (
        (Scheduler(), Kubelet(config, choose), PodGarbageCollector(), NodeLifecycle()) if config.simulate_pods else ()
    )
    return (
        *simulation,
        *endpoint_controllers(),
        LoadBalancers(config.lb_pool),
        *_workloads(choose),
        *allocation,
        ServiceAccounts(),
        *((RootCa(config.root_ca),) if config.root_ca else ()),
        Disruptions(),
        EventExpiry(),
    )


def _workloads(choose: Choose) -> tuple[Controller, ...]:
    suffix = suffixes(choose)
    replicas = (ReplicaSets(REPLICA_SET, suffix), ReplicaSets(REPLICATION_CONTROLLER, suffix))
    return (Deployments(), *replicas, StatefulSets(), DaemonSets(suffix), Jobs(suffix))
