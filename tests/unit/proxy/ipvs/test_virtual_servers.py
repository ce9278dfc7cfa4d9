"""Which virtual servers a front has."""

from __future__ import annotations

from dataclasses import replace

from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.proxy.ipvs.ipvs import Ipvs
from kdns.proxy.ipvs.virtual_servers import Destination, VirtualServer, VirtualServerKey
from kdns.proxy.plan.modes import IPVS
from kdns.proxy.plan.planner import plan


def test_a_service_has_a_virtual_server_at_each_of_its_addresses_and_at_the_nodes() -> None:
    config = replace(CONFIG, mode=IPVS, node_port_addresses=())
    made = Ipvs(plan(state(service(1, endpoints(1, "p1", "r1"))), NODE_VIEW, config).ipv4)
    at_nodes = {VirtualServerKey(str(own), 30001, "TCP") for own in NODE_VIEW.addresses if own.version == 4}
    tcp = {key: server for key, server in made.virtual_servers.items() if key.protocol == "TCP"}
    assert at_nodes < set(tcp)
    assert {key.address for key in tcp} - {key.address for key in at_nodes} == made.addresses
    server = VirtualServer("rr", (Destination("10.1.0.2", 8080), Destination("10.1.1.2", 8080)))
    assert set(tcp.values()) == {server}
