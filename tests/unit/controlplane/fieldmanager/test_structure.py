"""Structures of fields with each list and map type, of the type or of the field."""

from __future__ import annotations

import pytest

from kdns.controlplane.fieldmanager.structure import ATOMIC, Structure, structure_of
from kdns.controlplane.meta.inert import VOLUME
from kdns.controlplane.meta.kinds import DISRUPTION_BUDGET, POD, SERVICE, Kind
from kdns.controlplane.schema.patch import PatchSchema, patch_schema

CORE = "io.k8s.api.core.v1"
PORTS = Structure(
    "list", elements=Structure("struct", f"{CORE}.ServicePort"), keys=(("port", None), ("protocol", "TCP"))
)


@pytest.mark.parametrize(
    ("kind", "path", "structure"),
    [
        (SERVICE, "spec", Structure("struct", f"{CORE}.ServiceSpec")),
        (SERVICE, "spec.type", ATOMIC),
        (SERVICE, "spec.selector", ATOMIC),
        (SERVICE, "spec.ports", PORTS),
        (SERVICE, "metadata.labels", Structure("map", elements=ATOMIC)),
        (SERVICE, "metadata.finalizers", Structure("set", elements=ATOMIC)),
        (POD, "spec.tolerations", ATOMIC),
        (DISRUPTION_BUDGET, "spec.selector", ATOMIC),
        pytest.param(
            VOLUME, "spec.claimRef", Structure("struct", f"{CORE}.ObjectReference"), id="granular by its field"
        ),
        (SERVICE, "spec.unknown", ATOMIC),
    ],
)
def test_structures(kind: Kind, path: str, structure: Structure) -> None:
    result = structure_of(kind)
    for name in path.split("."):
        result = result.child(name)[1]
    assert result == structure


def test_the_selector_of_a_disruption_budget_is_replaced() -> None:
    spec = patch_schema(DISRUPTION_BUDGET).child("spec")
    assert spec
    selector = spec.child("selector")
    assert isinstance(selector, PatchSchema)
    assert selector.strategy == ("replace",)
