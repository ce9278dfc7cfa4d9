"""Discovery documents: order, heads, hashes, and kinds of subresources."""

from __future__ import annotations

import pytest
from served_kinds import CATALOGUE

from kdns.controlplane.apimachinery.inert import AUTOSCALER_V1
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, CONTROLLER_REVISION, DEPLOYMENT, POD, Json, Kind
from kdns.controlplane.server import discovery


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (CONFIG_MAP, "qFsyl6wFWjQ="),
        (CONTROLLER_REVISION, "85nkx63pcBU="),
        (DEPLOYMENT, "8aSe+NMegvE="),
        (AUTOSCALER_V1, "qwQve8ut294="),
    ],
)
def test_storage_version_hashes(kind: Kind, wanted: str) -> None:
    assert discovery.storage_version_hash(kind) == wanted


def test_heads_and_order() -> None:
    core, apps = discovery.resource_list(CATALOGUE, "", "v1"), discovery.resource_list(CATALOGUE, "apps", "v1")
    assert core
    assert apps
    assert list(core) == ["kind", "groupVersion", "resources"]
    assert {name: value for name, value in apps.items() if name != "resources"} == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "apps/v1",
    }
    names = [row["name"] for row in core["resources"]]
    assert names == sorted(names)
    groups = [each["name"] for each in discovery.group_list(CATALOGUE)["groups"]]
    assert groups.index("apps") < groups.index("authentication.k8s.io") < groups.index("discovery.k8s.io")


def test_kinds_of_subresources() -> None:
    below = {row["name"]: row for row in (discovery.resource_list(CATALOGUE, "", "v1") or {})["resources"]}
    shown = [{name: below[f"pods/{each}"].get(name) for name in ("group", "kind")} for each in ("binding", "eviction")]
    assert shown == [{"group": None, "kind": "Binding"}, {"group": "policy", "kind": "Eviction"}]
    (pod,) = (each for each in discovery.aggregated(CATALOGUE, core=True)["items"][0]["versions"][0]["resources"]
              if each["resource"] == POD.plural)  # fmt: skip
    kinds: dict[str, Json] = {each["subresource"]: each["responseKind"] for each in pod["subresources"]}
    assert pod["responseKind"] == kinds["status"] == {"group": "", "version": "", "kind": "Pod"}
    assert kinds["eviction"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
