"""Validation of ServiceCIDR and IPAddress: fields and messages."""

import pytest

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.service.service_cidr import validate_ip_address, validate_service_cidr
from kdns.controlplane.kinds.warnings import service_cidr_warnings

ONE_EACH = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
NOT_A_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
NOT_AN_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
META = {"uid": "u", "creationTimestamp": "2024-05-01T12:00:00Z"}
PARENT = {"resource": "services", "namespace": "default", "name": "web"}


def cidrs(*values: str, name: str = "more") -> Json:
    return {"metadata": {**META, "name": name}, "spec": {"cidrs": list(values)}}


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        (cidrs("10.0.0.0/24"), []),
        (cidrs("10.0.0.0/32"), []),
        (cidrs("10.0.0.0/24", "fd00::/64"), []),
        (cidrs("fd00::/64", "10.0.0.0/24"), []),
        ({"metadata": {"name": "more"}}, ["spec.cidrs: Required value: at least one CIDR required"]),
        (cidrs(), ["spec.cidrs: Required value: at least one CIDR required"]),
        (
            cidrs("10.0.0.0/24", "fd00::/64", "10.0.1.0/24"),
            [
                (
                    'spec.cidrs: Invalid value: {"CIDRs":["10.0.0.0/24","fd00::/64","10.0.1.0/24"]}: '
                    "may only hold up to 2 values"
                )
            ],
        ),
        (
            cidrs("10.0.0.0/24", "10.0.1.0/24"),
            [f'spec.cidrs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: {ONE_EACH}'],
        ),
        (cidrs("10.0.0.0/24", "x"), [f'spec.cidrs[1]: Invalid value: "x": {NOT_A_CIDR}']),
        (cidrs("10.0.0.0"), [f'spec.cidrs[0]: Invalid value: "10.0.0.0": {NOT_A_CIDR}']),
        (
            cidrs("10.0.0.1/24"),
            ['spec.cidrs[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length'],
        ),
        (
            cidrs("10.0.0.0/24", "FD00::/64"),
            ['spec.cidrs[1]: Invalid value: "FD00::/64": must be in canonical form ("fd00::/64")'],
        ),
        (
            cidrs("010.0.0.0/24"),
            ['spec.cidrs[0]: Invalid value: "010.0.0.0/24": must not have leading 0s in IP or prefix length'],
        ),
    ],
)
def test_new_service_cidrs(obj: Json, wanted: list[str]) -> None:
    assert [f"{cause.field}: {cause.message}" for cause in validate_service_cidr(obj, None)] == wanted


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("10.0.0.0/24", []),
        ("x", []),
        ("127.96.0.0/16", ["has loopback addresses; only mode userspace serves those"]),
        ("224.0.0.0/8", ["has multicast addresses; no Service can be reached there"]),
    ],
)
def test_warnings_of_service_cidrs(value: str, says: list[str]) -> None:
    wanted = [f"spec.cidrs[1]: {value} {text}" for text in says]
    assert list(service_cidr_warnings(cidrs("10.0.0.0/24", value))) == wanted


def test_names_of_service_cidrs() -> None:
    (cause,) = validate_service_cidr(cidrs("10.0.0.0/24", name="Big_One"), None)
    assert cause.field == "metadata.name"
    assert "a lowercase RFC 1123 subdomain must consist of" in cause.message


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (cidrs("10.0.0.0/24"), cidrs("10.0.0.0/24"), []),
        (cidrs("10.0.0.0/24"), cidrs("10.0.0.0/24", "fd00::/64"), []),
        (
            cidrs("10.0.0.0/24"),
            cidrs("10.0.1.0/24"),
            ['spec.cidrs[0]: Invalid value: "10.0.1.0/24": field is immutable'],
        ),
        (
            cidrs("10.0.0.0/24"),
            cidrs("fd00::/64", "10.0.0.0/24"),
            ['spec.cidrs[0]: Invalid value: "fd00::/64": field is immutable'],
        ),
        (
            cidrs("10.0.0.0/24"),
            cidrs("10.0.0.0/24", "10.0.1.0/24"),
            [f'spec.cidrs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: {ONE_EACH}'],
        ),
        (
            cidrs("10.0.0.0/24", "fd00::/64"),
            cidrs("10.0.0.0/24"),
            ['spec.cidrs: Invalid value: ["10.0.0.0/24"]: field is immutable'],
        ),
        (cidrs("10.0.0.0/24"), cidrs(), ["spec.cidrs: Invalid value: []: field is immutable"]),
    ],
)
def test_changed_service_cidrs(old: Json, new: Json, wanted: list[str]) -> None:
    assert [f"{cause.field}: {cause.message}" for cause in validate_service_cidr(new, old)] == wanted


def address(ip: str = "10.0.0.7", /, **parent: str) -> Json:
    return {"metadata": {**META, "name": ip}, "spec": {"parentRef": PARENT | parent}}


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        (address(), []),
        (address("fd00::7"), []),
        (address(group="gateway.networking.k8s.io", resource="gateways"), []),
        (address(namespace=""), []),
        (address("web"), [f'metadata.name: Invalid value: "web": {NOT_AN_IP}']),
        (address("10.0.0.007"), ['metadata.name: Invalid value: "10.0.0.007": must not have leading 0s']),
        (address("FD00::7"), ['metadata.name: Invalid value: "FD00::7": must be in canonical form ("fd00::7")']),
        (
            address("::ffff:10.0.0.7"),
            ['metadata.name: Invalid value: "::ffff:10.0.0.7": must not be an IPv4-mapped IPv6 address'],
        ),
        ({"metadata": {"name": "10.0.0.7"}}, ["spec.parentRef: Required value"]),
        ({"metadata": {"name": "10.0.0.7"}, "spec": {}}, ["spec.parentRef: Required value"]),
        (
            {"metadata": {"name": "10.0.0.7"}, "spec": {"parentRef": {}}},
            ["spec.parentRef.resource: Required value", "spec.parentRef.name: Required value"],
        ),
        (
            address(resource="a/b", namespace="..", name="50%"),
            [
                "spec.parentRef.resource: Invalid value: \"a/b\": may not contain '/'",
                "spec.parentRef.name: Invalid value: \"50%\": may not contain '%'",
                "spec.parentRef.namespace: Invalid value: \"..\": may not be '..'",
            ],
        ),
    ],
)
def test_new_ip_addresses(obj: Json, wanted: list[str]) -> None:
    assert [f"{cause.field}: {cause.message}" for cause in validate_ip_address(obj, None)] == wanted


def test_the_parent_is_for_life() -> None:
    assert validate_ip_address(address(), address()) == []
    (cause,) = validate_ip_address(address(name="other"), address())
    assert f"{cause.field}: {cause.message}" == (
        'spec.parentRef: Invalid value: {"Group":"","Resource":"services","Namespace":"default","Name":"other"}: '
        "field is immutable"
    )
    (cause,) = validate_ip_address({"metadata": address()["metadata"], "spec": {}}, address())[1:]
    assert cause.message == "Invalid value: null: field is immutable"
