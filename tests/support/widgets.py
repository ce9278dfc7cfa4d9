"""A CustomResourceDefinition for tests, in the shapes of those that charts bring."""

from typing import Any

from kdns.controlplane.apimachinery.kinds import Json

SCHEMA: Json = {
    "type": "object",
    "required": ["spec"],
    "x-kubernetes-validations": [{"rule": "self.spec.replicas < 10"}],
    "properties": {
        "spec": {
            "type": "object",
            "description": "The wanted widget.",
            "required": ["color"],
            "properties": {
                "color": {"type": "string", "enum": ["red", "blue"], "description": "Its color."},
                "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100, "default": 1},
                "port": {"x-kubernetes-int-or-string": True},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "rules": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "value": {"type": "string", "default": "x"}},
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                },
            },
        },
    },
}
SUBRESOURCES: Json = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
}
COLUMNS: list[Json] = [
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "The color"},
    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status', "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def version(name: str = "v1", *, storage: bool = True, schema: Json = SCHEMA, **more: Any) -> Json:
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": SUBRESOURCES,
        "additionalPrinterColumns": COLUMNS,
        "selectableFields": [{"jsonPath": ".spec.color"}],
        **more,
    }


def definition(*versions: Json, names: Json | None = None, **spec: Any) -> Json:
    """The definition of Widgets in example.com."""
    known: Json = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"], **(names or {})}
    full: Json = {"group": "example.com", "scope": "Namespaced", "names": known, "versions": [*versions] or [version()]}
    full |= spec
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{full['names']['plural']}.{full['group']}"},
        "spec": full,
    }


def widget(called: str = "one", **spec: Any) -> Json:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": called},
        "spec": {"color": "red", **spec},
    }
