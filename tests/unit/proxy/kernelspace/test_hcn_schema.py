"""Values of HCN: their ids, and documents that give the same values when they are read."""

from ipaddress import ip_address

import pytest

from kdns.proxy.kernelspace.schema import (
    HostComputeEndpoint,
    HostComputeLoadBalancer,
    HostComputeNetwork,
    LoadBalancerFlags,
    LoadBalancerKey,
    PortMapping,
    PortMappingFlags,
    endpoint_id,
    load_balancer_id,
    mac_address,
)

KEY = LoadBalancerKey("IPv4", "10.96.0.1", 6, 80)


def test_ids_differ_where_objects_do() -> None:
    keys = [KEY._replace(**change) for change in ({}, {"family": "IPv6"}, {"vip": ""}, {"protocol": 17}, {"port": 81})]
    endpoints = [endpoint_id(*each) for each in (("Pods", "10.1.0.2"), ("Pods", "10.1.0.3"), ("Other", "10.1.0.2"))]
    assert len({*map(load_balancer_id, keys), *endpoints}) == 8
    assert endpoint_id("PODS", "10.1.0.2") == endpoints[0]


ENDPOINTS = [
    HostComputeEndpoint("a", "n", ("10.1.1.2",), "02-11-0a-01-01-02", "192.0.2.7", is_remote=True),
    HostComputeEndpoint("b", "n", ("fd00::1",), "02-11-00-00-00-01"),
]
LOAD_BALANCERS = [
    HostComputeLoadBalancer("a", ("b", "c"), ("10.96.0.1",), (PortMapping(6, 8080, 80),)),
    HostComputeLoadBalancer(
        "a",
        ("b",),
        (),
        (PortMapping(17, 53, 30053, by_client=True, flags=PortMappingFlags.LOCAL_ROUTED_VIP),),
        "10.1.0.9",
        LoadBalancerFlags.DSR | LoadBalancerFlags.IPV6,
    ),
]


@pytest.mark.parametrize("value", [*ENDPOINTS, *LOAD_BALANCERS])
def test_a_document_gives_its_value(value: HostComputeEndpoint | HostComputeLoadBalancer) -> None:
    assert type(value).read(value.document) == value
    assert all(value.document.values()), "zero values are left out"
    assert value.document["SchemaVersion"] == {"Major": 2, "Minor": 0}


def test_ids_of_the_service_are_read_in_lower_case() -> None:
    found = HostComputeLoadBalancer.read(
        {"ID": "AB", "HostComputeEndpoints": ["CD", "BC"], "FrontendVIPs": None, "PortMappings": None}
    )
    assert (found.id, found.endpoints, found.frontend_vips) == ("ab", ("bc", "cd"), ())


def test_a_load_balancer_of_kdns_has_an_id_of_its_destination() -> None:
    own = HostComputeLoadBalancer(load_balancer_id(KEY), ("a",), ("10.96.0.1",), (PortMapping(6, 8080, 80),))
    assert list(own.keys) == [KEY]
    assert own.is_own
    other = HostComputeLoadBalancer(own.id, ("a",), ("10.96.0.1",), (PortMapping(6, 8080, 81),))
    assert not other.is_own


def test_the_network_says_which_node_has_an_address() -> None:
    route = {"DestinationPrefix": "10.244.2.0/24", "IsolationId": 4096, "ProviderAddress": "192.0.2.7"}
    policies = [{"Type": "RemoteSubnetRoute", "Settings": route}, {"Type": "VxlanPort", "Settings": {"Port": 4789}}]
    found = HostComputeNetwork.read({"ID": "AB", "Name": "vxlan0", "Type": "Overlay", "Policies": policies})
    assert (found.id, found.name, found.is_overlay) == ("ab", "vxlan0", True)
    assert found.provider_address(ip_address("10.244.2.9")) == "192.0.2.7"
    assert found.provider_address(ip_address("192.0.2.7")) == "192.0.2.7"
    assert found.provider_address(ip_address("203.0.113.1")) == ""
    assert not HostComputeNetwork.read({"ID": "AB", "Name": "cbr0", "Type": "L2Bridge"}).is_overlay


def test_each_remote_endpoint_has_a_mac_address() -> None:
    assert mac_address("10.244.2.5") == "02-11-0a-f4-02-05"
    assert mac_address("fd00::1:2") == "02-11-00-01-00-02"
