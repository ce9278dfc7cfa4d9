"""Discovery: groups, versions, resources and verbs, as separate documents and as the aggregated one."""

from __future__ import annotations

import re
from typing import Final

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.conversion import SCALE
from kdns.controlplane.schema.schema import KUBERNETES_VERSION

# fmt: off
_GROUPS = (
    "apiregistration.k8s.io", "apps", "authentication.k8s.io", "authorization.k8s.io", "autoscaling",
    "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
    "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io",
    "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
)
# fmt: on
"""The groups in kube-apiserver's order of priority, by which clients choose among resources of one name."""
_VERSION: Final = re.compile(r"v(?P<major>[1-9][0-9]*)(?:(?P<level>alpha|beta)(?P<minor>[1-9][0-9]*))?")
"""Versions such as v1 and v2beta1 (Kubernetes documentation, "Version priority")."""
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
SUBRESOURCE_VERBS = {
    "status": ("get", "patch", "update"),
    "scale": ("get", "patch", "update"),
    "finalize": ("update",),
    "eviction": ("create",),
    "binding": ("create",),
}
EVICTION: Final = Kind("policy", "v1", "Eviction", "evictions")
BINDING: Final = Kind("", "v1", "Binding", "bindings")
_SUBRESOURCE_KINDS: Final = {"eviction": EVICTION, "binding": BINDING, "scale": SCALE}
"""The kind of a subresource's objects, if it is not the kind of the resource."""


def kind_at(kind: Kind, subresource: str) -> Kind:
    return _SUBRESOURCE_KINDS.get(subresource, kind)


def version(build: str, platform: tuple[str, str]) -> Json:
    """The document at /version. `build` is kdns's own version, `platform` an operating system and an architecture."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES_VERSION}+kdns-{build}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "CPython",
        "platform": "/".join(platform),
    }


def verbs_of(kinds: Catalogue, kind: Kind) -> list[str]:
    if kind.is_review:
        return ["create"]
    has_collection = kinds[kind.stored_kind].delete.collection
    return [verb for verb in VERBS if verb != "deletecollection" or has_collection]


def group_versions(kinds: Catalogue) -> list[tuple[str, str]]:
    """(group, version) of all served kinds; the core group is ""."""
    served = dict.fromkeys((kind.group, kind.version) for kind in kinds)
    return sorted(served, key=_priority)


def _priority(group_version: tuple[str, str]) -> tuple[object, ...]:
    """The sort key: known groups first, then others by name and, stable first, by version."""
    group, version = group_version
    if not group or group in _GROUPS:
        return (_GROUPS.index(group) if group else -1,)
    match = _VERSION.fullmatch(version)
    if match is None:
        return len(_GROUPS), group, 1, version
    levels = {"alpha": 2, "beta": 1, None: 0}
    return len(_GROUPS), group, 0, levels[match["level"]], -int(match["major"]), -int(match["minor"] or 0)


def core_versions(kinds: Catalogue, address: str) -> Json:
    clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    versions = [version for group, version in group_versions(kinds) if not group]
    return {"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": clients}


def group(kinds: Catalogue, name: str) -> Json | None:
    """The document at /apis/<group>; None for a group that is not served."""
    versions = [{"groupVersion": f"{name}/{v}", "version": v} for served, v in group_versions(kinds) if served == name]
    if not (name and versions):
        return None
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def group_list(kinds: Catalogue) -> Json:
    groups = [group(kinds, name) for name in dict.fromkeys(name for name, _ in group_versions(kinds) if name)]
    items = [{key: value for key, value in (row or {}).items() if key not in {"kind", "apiVersion"}} for row in groups]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": items}


def resource_list(kinds: Catalogue, group_name: str, version_name: str) -> Json | None:
    """The document at /api/v1 or /apis/<group>/<version>; None if no kind is served there."""
    resources = [row for kind in _kinds(kinds, group_name, version_name) for row in _resources(kinds, kind)]
    if not resources:
        return None
    versioned = {"apiVersion": "v1", "groupVersion": f"{group_name}/{version_name}"}
    return {"kind": "APIResourceList", **(versioned if group_name else {"groupVersion": "v1"}), "resources": resources}


def _kinds(kinds: Catalogue, group_name: str, version_name: str) -> list[Kind]:
    served = (kind for kind in kinds if (kind.group, kind.version) == (group_name, version_name))
    return sorted(served, key=lambda kind: kind.plural)


def _resources(kinds: Catalogue, kind: Kind) -> list[Json]:
    own: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs_of(kinds, kind),
        "shortNames": list(kind.short_names),
        "categories": list(kind.categories),
    }
    below: list[Json] = [
        {
            "name": f"{kind.plural}/{subresource}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **_shown(kind, subresource),
            "verbs": list(SUBRESOURCE_VERBS[subresource]),
        }
        for subresource in sorted(kind.subresources)
    ]
    optional = {"shortNames", "categories"}
    return [{key: value for key, value in own.items() if value or key not in optional}, *below]


def _shown(kind: Kind, subresource: str) -> Json:
    """The kind of a subresource's objects, with group and version if it differs."""
    shown = kind_at(kind, subresource)
    if shown == kind or shown.api_version == kind.api_version:
        return {"kind": shown.kind}
    return {"group": shown.group, "version": shown.version, "kind": shown.kind}


def aggregated(kinds: Catalogue, *, core: bool) -> Json:
    """All of /api (core) or /apis in one document: apidiscovery.k8s.io/v2 APIGroupDiscoveryList."""
    items = []
    for name in dict.fromkeys(name for name, _ in group_versions(kinds) if (not name) is core):
        versions = [
            {
                "version": version_name,
                "freshness": "Current",
                "resources": [_aggregated(kinds, kind) for kind in _kinds(kinds, name, version_name)],
            }
            for served, version_name in group_versions(kinds)
            if served == name
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": versions})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated(kinds: Catalogue, kind: Kind) -> Json:
    """One resource; group and version of a kind are empty if they equal those of the resource."""
    response_kind: Json = {"group": "", "version": "", "kind": kind.kind}
    optional: Json = {
        "shortNames": list(kind.short_names),
        "categories": list(kind.categories),
        "subresources": [
            {
                "subresource": name,
                "responseKind": response_kind | _shown(kind, name),
                "verbs": list(SUBRESOURCE_VERBS[name]),
            }
            for name in sorted(kind.subresources)
        ],
    }
    return {
        "resource": kind.plural,
        "responseKind": response_kind,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs_of(kinds, kind),
        **{key: value for key, value in optional.items() if value},
    }
