"""Paths and the first value that each finds."""

from typing import Any

import pytest

from kdns.controlplane.kinds.custom.jsonpath import field_names, first, steps

OBJ: dict[str, Any] = {
    "metadata": {"labels": {"app.io/name": "web"}},
    "spec": {"hosts": ["a", "b"], "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Synced", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".spec.hosts", ["a", "b"]),
        ("{.spec.hosts}", ["a", "b"]),
        (".spec.hosts[1]", "b"),
        (".spec.hosts[-1]", "b"),
        (".spec.hosts[-2]", "a"),
        (".spec.hosts[5]", None),
        (".spec.hosts[2]", None),
        (".spec.hosts[-3]", None),
        (".spec.hosts[-5]", None),
        (".spec.hosts[-5:]", None),
        (".spec.hosts[0:5]", None),
        (".spec.hosts[:2]", "a"),
        (".spec.hosts[1:0]", None),
        (".spec.hosts[-2:-1]", "a"),
        (".spec.hosts[0:0]", None),
        (".spec.hosts[*]", "a"),
        (".spec.hosts[-1:]", "b"),
        (".spec.hosts[0:1]", "a"),
        (".spec.hosts[::2]", "a"),
        (".spec.hosts[5:]", None),
        (".status.conditions[-1:].type", "Synced"),
        (".spec.ports[?(@.port)].name", "http"),
        (".spec.ports[?(@.none)].name", None),
        (".spec..hosts", None),
        (".spec.ports[*].port", 80),
        (".spec.ports[?(@.port>100)].name", "https"),
        ('.status.conditions[?(@.type=="Synced")].status', "False"),
        (".status.conditions[?(@.type=='Ready')].status", "True"),
        (".status.conditions[?(@.type!='Ready')].type", "Synced"),
        (r".metadata.labels.app\.io/name", "web"),
        (".metadata.labels['app.io/name']", "web"),
        (".spec.ports[?(@.name<5)].name", None),
        (".nothing.at.all", None),
        (".spec.hosts.a", None),
    ],
)
def test_first_values(path: str, value: object) -> None:
    assert first(path, OBJ) == value


@pytest.mark.parametrize("path", ["spec", ".spec[", ".spec[a]", ".spec..hosts", "$.spec"])
def test_paths_that_are_not_supported(path: str) -> None:
    with pytest.raises(ValueError, match=r"must begin|unsupported"):
        steps(path)


def test_paths_of_fields_only() -> None:
    assert field_names(".spec.replicas") == ["spec", "replicas"]
    assert [field_names(path) for path in ("spec", ".spec[0]", ".spec.*", "")] == [[]] * 4
