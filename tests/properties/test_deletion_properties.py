"""Any deletions of owners and dependents: no orphan remains, and no deletion waits for ever."""

from hypothesis import given
from hypothesis import strategies as st
from object_api import Api

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, Json

OWNERS = st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=3, unique_by=lambda each: each[0])
"""Owners by number, and whether they wait for the object."""

DELETIONS = st.lists(st.tuples(st.integers(0, 11), st.sampled_from(["Background", "Foreground", "Orphan"])), max_size=8)


def reference(owner: Json, *, blocking: bool) -> Json:
    meta = owner["metadata"]
    row = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}
    return {**row, "blockOwnerDeletion": blocking}


@given(owners=st.lists(OWNERS, min_size=12, max_size=12), deletions=DELETIONS)
def test_what_is_left_has_an_owner_and_is_not_waiting(
    owners: list[list[tuple[int, bool]]], deletions: list[tuple[int, str]]
) -> None:
    """Owners form no circles: each object is owned by earlier ones only."""
    api = Api()
    made = [api.create(CONFIG_MAP, {"metadata": {"name": f"c{number}"}}) for number in range(12)]
    owned = set()
    for number, wanted in enumerate(owners):
        rows = [reference(made[other], blocking=blocking) for other, blocking in wanted if other < number]
        if rows:
            owned.add(f"c{number}")
            obj = {**made[number], "metadata": {**made[number]["metadata"], "ownerReferences": rows}}
            api.update(CONFIG_MAP, f"c{number}", obj)
    orphaned = False
    for number, policy in deletions:
        orphaned = orphaned or policy == "Orphan"
        try:
            api.delete(CONFIG_MAP, f"c{number}", {"propagationPolicy": policy})
        except StatusError as error:
            assert error.code == 404, error  # noqa: PT017 - it may have gone with another
    left = {obj["metadata"]["uid"]: obj["metadata"] for obj in api.items(CONFIG_MAP)}
    for meta in left.values():
        assert "deletionTimestamp" not in meta, "nothing else holds it"
        found = [row["uid"] for row in meta.get("ownerReferences") or ()]
        assert set(found) <= set(left), "no reference leads nowhere"
        assert found or meta["name"] not in owned or orphaned, "it went with its last owner"
