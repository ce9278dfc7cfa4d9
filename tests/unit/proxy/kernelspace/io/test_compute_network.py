"""HCN through ctypes: errors become ours, and nothing is leaked."""

import pytest
from fake_hcn import NETWORK_ID, FakeHcn, FakeLibraries

from kdns.errors import ApplyError
from kdns.proxy.kernelspace.io.compute_network import ComputeNetwork, HcnError
from kdns.proxy.kernelspace.requests import Request, Verb
from kdns.proxy.kernelspace.schema import (
    HostComputeEndpoint,
    HostComputeLoadBalancer,
    LoadBalancerKey,
    PortMapping,
    endpoint_id,
    load_balancer_id,
)

KEY = LoadBalancerKey("IPv4", "10.96.0.1", 6, 80)
REMOTE = HostComputeEndpoint(
    endpoint_id("Pods", "10.1.1.2"),
    NETWORK_ID,
    ("10.1.1.2",),
    "02-11-0a-01-01-02",
    is_remote=True,
)
BALANCER = HostComputeLoadBalancer(load_balancer_id(KEY), (REMOTE.id,), ("10.96.0.1",), (PortMapping(6, 8080, 80),))
CREATE_ENDPOINT = Request(Verb.CREATE, REMOTE)
CREATE_BALANCER = Request(Verb.CREATE, BALANCER)


class Machine:
    """A service and its caller."""

    def __init__(self, service: FakeHcn | None = None) -> None:
        self.service = service or FakeHcn()
        self.libraries = FakeLibraries(self.service)
        self.hcn = ComputeNetwork(self.libraries.functions)

    def assert_released(self) -> None:
        """Every buffer was freed, and every handle closed."""
        assert (self.libraries.buffers, self.libraries.handles) == ({}, {})


def test_objects_are_read_as_they_were_created() -> None:
    machine = Machine()
    network = machine.hcn.network("pods")
    assert (network.id, network.name, network.type) == (NETWORK_ID, "Pods", "L2Bridge")
    for each in (CREATE_ENDPOINT, CREATE_BALANCER):
        machine.hcn.carry_out(each)
    assert machine.hcn.endpoints(network.id) == (REMOTE,)
    assert machine.hcn.load_balancers() == (BALANCER,)
    assert machine.hcn.ids("Endpoint") == {REMOTE.id}
    assert machine.hcn.version() == (15, 4)
    machine.assert_released()


def test_deleting_what_does_not_exist_succeeds() -> None:
    machine = Machine()
    for each in (REMOTE, BALANCER):
        machine.hcn.carry_out(Request(Verb.DELETE, each))
    machine.assert_released()


REFUSALS = [
    ([CREATE_BALANCER], "HcnCreateLoadBalancer", "The Endpoint was not found. (0x803B0002)"),
    ([CREATE_ENDPOINT, CREATE_ENDPOINT], "HcnCreateEndpoint", "when that file already exists. (0x800700B7)"),
    (
        [CREATE_ENDPOINT, CREATE_BALANCER, Request(Verb.DELETE, REMOTE)],
        "HcnDeleteEndpoint",
        "The endpoint is used by a load balancer. (0x803B000F)",
    ),
    (
        [
            CREATE_ENDPOINT,
            CREATE_BALANCER,
            Request(
                Verb.CREATE,
                HostComputeLoadBalancer(
                    "6a0d3e8c-0000-4000-8000-000000000001", (REMOTE.id,), ("10.96.0.1",), (PortMapping(6, 9090, 80),)
                ),
            ),
        ],
        "HcnCreateLoadBalancer",
        "The specified port already exists. (0x803B0013)",
    ),
    ([Request(Verb.MODIFY, BALANCER)], "HcnOpenLoadBalancer", "The LoadBalancer was not found. (0x80070490)"),
]


@pytest.mark.parametrize(("requests", "function", "reason"), REFUSALS, ids=[row[2] for row in REFUSALS])
def test_a_refusal_has_the_function_and_the_reason(requests: list[Request], function: str, reason: str) -> None:
    machine = Machine()
    *good, bad = requests
    for each in good:
        machine.hcn.carry_out(each)
    with pytest.raises(HcnError) as caught:
        machine.hcn.carry_out(bad)
    assert caught.value.argv == (function,)
    assert caught.value.stderr.endswith(reason)
    machine.assert_released()


@pytest.mark.parametrize("name", [name for name in FakeLibraries(FakeHcn()).functions if name.startswith("HcnE")])
def test_a_service_that_does_not_answer(name: str) -> None:
    machine = Machine()
    machine.service.fails = lambda function, _: 0x800706BA if function == name else 0
    kind = name.removeprefix("HcnEnumerate").removesuffix("s")
    with pytest.raises(ApplyError, match=r"lets this call fail\. \(0x800706BA\)"):
        machine.hcn.ids(kind)
    machine.assert_released()


def test_an_unknown_network_names_those_that_exist() -> None:
    with pytest.raises(ApplyError, match=r"there is no network l2; expected one of \['Pods'\]"):
        Machine().hcn.network("l2")


def test_an_object_that_is_deleted_while_it_is_read_is_left_out() -> None:
    machine = Machine()
    machine.hcn.carry_out(CREATE_ENDPOINT)
    machine.service.fails = lambda function, _: 0x803B0002 if function == "HcnOpenEndpoint" else 0
    assert machine.hcn.endpoints(NETWORK_ID) == ()
    machine.assert_released()


@pytest.mark.parametrize(("version", "modifies"), [((13, 2), True), ((15, 4), False)])
def test_a_service_that_modifies_no_load_balancers(version: tuple[int, int], *, modifies: bool) -> None:
    """By its version, and by its answer: then it is not asked again."""
    machine = Machine(FakeHcn(version=version, modifies=modifies))
    for each in (CREATE_ENDPOINT, CREATE_BALANCER):
        machine.hcn.carry_out(each)
    changed = HostComputeLoadBalancer(BALANCER.id, BALANCER.endpoints, ("10.96.0.1",), (PortMapping(6, 9090, 80),))
    for _ in range(2):
        machine.service.requests.clear()
        machine.hcn.carry_out(Request(Verb.MODIFY, changed))
        assert [request.split(" ")[0] for request in machine.service.requests] == [
            "HcnDeleteLoadBalancer",
            "HcnCreateLoadBalancer",
        ]
    assert machine.hcn.load_balancers() == (changed,)
    machine.assert_released()


def test_an_endpoint_gets_another_provider_address() -> None:
    machine = Machine(FakeHcn(network_type="Overlay"))
    fields = (REMOTE.id, NETWORK_ID, REMOTE.addresses, REMOTE.mac_address)
    before, after = (HostComputeEndpoint(*fields, each, is_remote=True) for each in ("192.0.2.7", "192.0.2.8"))
    machine.hcn.carry_out(Request(Verb.CREATE, before))
    machine.hcn.carry_out(Request(Verb.MODIFY, after))
    assert machine.hcn.endpoints(NETWORK_ID) == (after,)
