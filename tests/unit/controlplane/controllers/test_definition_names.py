"""Names of CustomResourceDefinitions that another one had."""

from __future__ import annotations

from stepping import Stepper
from widgets import definition

from kdns.controlplane.apimachinery.kinds import DEFINITION
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.definition_names import DefinitionNames
from kdns.controlplane.server.registry import Request


def test_names_are_accepted_once_the_other_definition_is_gone() -> None:
    cluster = Stepper(ClusterConfig())
    cluster.run(DefinitionNames())
    cluster.api.create(Request(DEFINITION), definition())
    cluster.api.create(Request(DEFINITION), definition(names={"plural": "gadgets", "kind": "Gadget"}))
    cluster.settle()
    kinds = cluster.api.kinds
    assert kinds.by_type("example.com/v1", "Gadget") is None  # both want the short name wd
    cluster.api.delete(Request(DEFINITION, "", "widgets.example.com"))
    cluster.settle()
    assert kinds.by_type("example.com/v1", "Gadget")
    status = cluster.api.get(Request(DEFINITION, "", "gadgets.example.com"))["status"]
    assert {row["type"]: row["status"] for row in status["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
