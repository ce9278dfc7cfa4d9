"""The cluster that manifests lead to, and the node that a command means."""

from pathlib import Path

import pytest
from web_deployment import DEPLOYMENT, cluster_config

from kdns.apps.sources.snapshot import chosen_node, snapshot_of
from kdns.apps.sources.source import ObjectSource
from kdns.errors import InputError

SLICE = """\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-abcde
  labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.1.2.3], nodeName: elsewhere}]
"""


async def test_manifests_lead_to_what_a_control_plane_makes_of_them(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(DEPLOYMENT)
    made = await snapshot_of(ObjectSource((tmp_path,), cluster=cluster_config()), pytest.fail)
    assert made.state.services["default", "web"].spec.cluster_ip.startswith("10.96.")
    (endpoint_slice,) = made.state.slices_by_service["default", "web"].values()
    assert len(endpoint_slice.endpoints or ()) == 3
    assert made.service_cidrs == ("10.96.0.0/16",)
    assert chosen_node(made, "", pytest.fail) == "kdns"


async def test_slices_that_are_given_count_alone(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(DEPLOYMENT + SLICE)
    made = await snapshot_of(ObjectSource((tmp_path,), cluster=cluster_config()), pytest.fail)
    assert [each.key for each in made.state.slices_by_service["default", "web"].values()] == [("default", "web-abcde")]
    warnings: list[str] = []
    assert chosen_node(made, "elsewhere", warnings.append) == "elsewhere"
    assert warnings == ["Node elsewhere does not exist, only endpoints on it: its addresses and zone are unknown"]
    with pytest.raises(InputError, match="no such node"):
        chosen_node(made, "nowhere", warnings.append)


async def test_what_a_control_plane_refuses_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports:\n  - port: 0\n")
    with pytest.raises(InputError, match=rf"{path}:6: .*spec.ports\[0\].port"):
        await snapshot_of(ObjectSource((path,), cluster=cluster_config()), pytest.fail)


async def test_kinds_that_are_not_served_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\n")
    warnings: list[str] = []
    await snapshot_of(ObjectSource((path,), cluster=cluster_config()), warnings.append)
    assert len(warnings) == 1
    assert "example.com/v1 Thing is not served" in warnings[0]
