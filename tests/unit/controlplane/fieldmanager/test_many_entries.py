"""An object whose sender claims thousands of managers costs what it holds, not the square of that."""

from __future__ import annotations

import pytest

from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, Json
from kdns.controlplane.fieldmanager import managed_fields
from kdns.controlplane.fieldmanager.field_sets import FieldSet, union
from kdns.controlplane.fieldmanager.managed_fields import ANCIENT, UPDATERS_MAX, Writer, entries_of_new

ENTRIES = 1000


def test_old_entries_are_combined_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = 0

    def counted(one: FieldSet, other: FieldSet) -> FieldSet:
        nonlocal fields
        fields += len(one.get("f:data", {})) + len(other.get("f:data", {}))
        return union(one, other)

    monkeypatch.setattr(managed_fields, "union", counted)
    writers = [Writer(f"m{number:04}", time=f"2020-01-01T00:00:00.{number:06}Z") for number in range(ENTRIES)]
    sent = [
        writer.entry(CONFIG_MAP, "Update", {"f:data": {f"f:k{number}": {}}}) for number, writer in enumerate(writers)
    ]
    obj: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": sent}}
    entries = entries_of_new(CONFIG_MAP, obj, Writer("now", time="2021-01-01T00:00:00Z"))
    assert len(entries) == UPDATERS_MAX
    (ancient,) = (entry for entry in entries if entry["manager"] == ANCIENT)
    assert len(ancient["fieldsV1"]["f:data"]) == ENTRIES - UPDATERS_MAX + 1
    assert fields < 20 * ENTRIES
