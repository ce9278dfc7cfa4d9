"""Every controller of a cluster, as one table."""

from __future__ import annotations

from kdns.controlplane.allocate import Choose
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.controller import Controller
from kdns.controlplane.events import EventExpiry
from kdns.controlplane.kubelet import Kubelet
from kdns.controlplane.serviceendpoints import endpoint_controllers


def controllers_of(config: ClusterConfig, choose: Choose) -> tuple[Controller, ...]:
    """Fresh controllers that know nothing yet, in the order in which they learn of an event."""
    simulation = (Kubelet(config, choose),) if config.simulate_pods else ()
    return (*simulation, *endpoint_controllers(), EventExpiry())
