"""Discovery documents: order, heads, and kinds of subresources."""

from served_kinds import CATALOGUE

from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, POD, Json, Kind
from kdns.controlplane.kinds.served import ServedKinds
from kdns.controlplane.server import discovery


def test_versions_of_a_group_are_in_the_order_of_their_priority() -> None:
    catalogue, versions = ServedKinds(), ("v1", "v2beta1", "v1beta2", "v1beta1", "v1alpha3", "nightly")
    for version in sorted(versions, reverse=True):
        catalogue.put(Kind("example.com", version, "Widget", "widgets"), catalogue[CONFIG_MAP])
    group = discovery.group(catalogue, "example.com") or {}
    assert tuple(row["version"] for row in group["versions"]) == versions
    assert group["preferredVersion"] == group["versions"][0]


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
    groups = [group["name"] for group in discovery.group_list(CATALOGUE)["groups"]]
    assert groups.index("apps") < groups.index("authentication.k8s.io") < groups.index("discovery.k8s.io")


def test_kinds_of_subresources() -> None:
    below = {row["name"]: row for row in (discovery.resource_list(CATALOGUE, "", "v1") or {})["resources"]}
    shown = [{name: below[f"pods/{each}"].get(name) for name in ("group", "kind")} for each in ("binding", "eviction")]
    assert shown == [{"group": None, "kind": "Binding"}, {"group": "policy", "kind": "Eviction"}]
    resources = discovery.aggregated(CATALOGUE, core=True)["items"][0]["versions"][0]["resources"]
    (pod,) = (resource for resource in resources if resource["resource"] == POD.plural)
    kinds: dict[str, Json] = {
        subresource["subresource"]: subresource["responseKind"] for subresource in pod["subresources"]
    }
    assert pod["responseKind"] == kinds["status"] == {"group": "", "version": "", "kind": "Pod"}
    assert kinds["eviction"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
