"""The class of an Ingress that names none."""

from __future__ import annotations

from typing import Any

import pytest
from verbs_api import new_api

from kdns.controlplane.defaults_kept import with_class
from kdns.controlplane.fieldsets import path_text, paths
from kdns.controlplane.kinds import INGRESS, INGRESS_CLASS, Json

BACKEND: Json = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
OLD_WAY = {"kubernetes.io/ingress.class": ""}


def ingress_class(name: str, default: str = "true", second: int = 0) -> Json:
    marks = {"ingressclass.kubernetes.io/is-default-class": default}
    created = f"2026-01-01T00:00:{second:02}Z"
    return {"metadata": {"name": name, "annotations": marks, "creationTimestamp": created}}


@pytest.mark.parametrize(
    ("classes", "spec", "annotations", "chosen"),
    [
        ([], {}, {}, None),
        ([ingress_class("a", default="false"), ingress_class("b", default="True")], {}, {}, None),
        ([ingress_class("a"), ingress_class("b", default="")], {}, {}, "a"),
        ([ingress_class("a", second=1), ingress_class("c", second=2), ingress_class("b", second=2)], {}, {}, "b"),
        ([ingress_class("a")], {"ingressClassName": "mine"}, {}, "mine"),
        ([ingress_class("a")], {"ingressClassName": ""}, {}, ""),
        ([ingress_class("a")], {}, OLD_WAY, None),
    ],
)
def test_default_class(classes: list[Json], spec: Json, annotations: dict[str, str], chosen: str | None) -> None:
    made = with_class({"metadata": {"name": "web", "annotations": annotations}, "spec": spec}, classes)
    assert made["spec"].get("ingressClassName") == chosen


def test_a_new_ingress_gets_it_and_nobody_manages_it() -> None:
    api = new_api()
    controller: Any = {"controller": "example.com/ingress"}
    api.create(INGRESS, "default", {"metadata": {"name": "before"}, "spec": BACKEND})
    api.create(INGRESS_CLASS, "", {**ingress_class("shiny"), "spec": controller})
    made = api.create(INGRESS, "default", {"metadata": {"name": "web"}, "spec": BACKEND}, field_manager="me")
    assert made["spec"]["ingressClassName"] == "shiny"
    owned = [path_text(path) for path in paths(made["metadata"]["managedFields"][0]["fieldsV1"])]
    assert [path for path in owned if "ingressClassName" in path] == []
    before = api.get(INGRESS, "default", "before")
    again = api.update(
        INGRESS, "default", "before", {**before, "metadata": {**before["metadata"], "labels": {"a": "b"}}}
    )
    assert "ingressClassName" not in again["spec"]
