"""Every controller of a cluster, as one table."""

from __future__ import annotations

from kdns.controlplane.allocate import Choose
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.controller import Controller
from kdns.controlplane.events import EventExpiry
from kdns.controlplane.kubelet import Kubelet
from kdns.controlplane.repair_addresses import AddressRepair
from kdns.controlplane.repair_ports import PortRepair
from kdns.controlplane.servicecidrs import DefaultServiceCidr, ServiceCidrs
from kdns.controlplane.serviceendpoints import endpoint_controllers
from kdns.controlplane.strategy_service import ServiceAllocator


def controllers_of(config: ClusterConfig, choose: Choose, numbers: ServiceAllocator) -> tuple[Controller, ...]:
    """Fresh controllers that know nothing yet, in the order in which they learn of an event."""
    allocation = (
        DefaultServiceCidr(config),
        ServiceCidrs(),
        AddressRepair(numbers.tally),
        PortRepair(numbers.ports, numbers.tally),
    )
    simulation = (Kubelet(config, choose),) if config.simulate_pods else ()
    return (*simulation, *endpoint_controllers(), *allocation, EventExpiry())
