"""Validation of Nodes, with the messages of kube-apiserver."""

import pytest

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.node import validate_node, validate_node_update

NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def node(**spec: object) -> Json:
    return {"metadata": {"name": "n"}, "spec": spec}


def taint(key: str = "k", effect: str = "NoSchedule", **more: str) -> Json:
    return {"key": key, "effect": effect, **more}


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ({}, []),
        ({"taints": [taint(), taint(effect="NoExecute"), taint("j", "PreferNoSchedule", value="v")]}, []),
        ({"taints": [{"key": "k"}]}, ["metadata.taints[0].effect: Required value"]),
        (
            {"taints": [taint(effect="Never")]},
            [
                (
                    'metadata.taints[0].effect: Unsupported value: "Never": supported values: '
                    '"NoSchedule", "PreferNoSchedule", "NoExecute"'
                )
            ],
        ),
        (
            {"taints": [{"effect": "NoSchedule"}]},
            [
                'metadata.taints[0].key: Invalid value: "": name part must be non-empty',
                f'metadata.taints[0].key: Invalid value: "": {NAME_PART}',
            ],
        ),
        (
            {"taints": [taint(), taint(value="v")]},
            [
                (
                    'metadata.taints[1]: Duplicate value: {"Key":"k","Value":"v","Effect":"NoSchedule",'
                    '"TimeAdded":null}: taints must be unique by key and effect pair'
                )
            ],
        ),
        ({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]}, []),
        (
            {"podCIDRs": ["ten"]},
            ['spec.podCIDRs[0]: Invalid value: "ten": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)'],
        ),
        (
            {"podCIDR": "10.0.0.1/24"},
            ['spec.podCIDRs[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length'],
        ),
        (
            {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]},
            [
                (
                    'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR '
                    "for each IP family"
                )
            ],
        ),
    ],
)
def test_a_new_node(spec: Json, problems: list[str]) -> None:
    assert [f"{cause.field}: {cause.message}" for cause in validate_node(node(**spec))] == problems


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        ({}, {"podCIDR": "10.0.0.0/24", "providerID": "a"}, []),
        ({"podCIDR": "10.0.0.0/24"}, {"podCIDRs": ["10.0.0.0/24"]}, []),
        (
            {"podCIDR": "10.0.0.0/24"},
            {"podCIDR": "10.0.1.0/24"},
            ['spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'],
        ),
        (
            {"providerID": "a"},
            {},
            ['spec.providerID: Forbidden: node updates may not change providerID except from "" to valid'],
        ),
        ({}, {"externalID": "a"}, ["spec.externalID: Forbidden: may not be updated"]),
    ],
)
def test_a_changed_node(old: Json, new: Json, problems: list[str]) -> None:
    assert [f"{cause.field}: {cause.message}" for cause in validate_node(node(**new), node(**old))] == problems


@pytest.mark.parametrize(
    ("status", "problems"),
    [
        ({"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}, []),
        (
            {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "Hostname", "address": "n"}]},
            ['status.addresses[1]: Duplicate value: {"Type":"Hostname","Address":"n"}'],
        ),
    ],
)
def test_a_changed_status(status: Json, problems: list[str]) -> None:
    found = validate_node_update({**node(), "status": status}, node())
    assert [f"{cause.field}: {cause.message}" for cause in found] == problems
