"""Versions of large objects: a new revision takes no look at the rest."""

from typing import Final

import msgspec
import pytest

from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, EVENT, POD, SERVICE, Json, Kind
from kdns.controlplane.storage import store as module
from kdns.controlplane.storage.store import Store, StoredObject, stored_object_of

META: Final[Json] = {"name": "a", "namespace": "x", "uid": "1"}
REFERENCE: Final[Json] = {"kind": "Pod", "name": "p", "resourceVersion": "0"}
ROWS: Final[tuple[tuple[Kind, Json], ...]] = (
    (DEPLOYMENT, {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}}),
    (SERVICE, {"spec": {"ports": [{"port": 80}]}}),
    (POD, {"metadata": {**META, "annotations": {"resourceVersion": "0", '"resourceVersion":"0"': "0"}}}),
    (POD, {"metadata": {**META, "annotations": {"a": '"resourceVersion":"0"'}}}),
    (EVENT, {"involvedObject": REFERENCE, "related": {**REFERENCE, "resourceVersion": "7"}}),
)


def drafts() -> list[StoredObject]:
    return [stored_object_of(kind, ("x", "a"), {"metadata": META, **obj}, 0) for kind, obj in ROWS]


@pytest.mark.parametrize("draft", drafts(), ids=lambda draft: draft.kind.kind)
def test_a_revision_is_written_as_by_encoding_everything(draft: StoredObject) -> None:
    for revision in (7, 12345, 0):
        wanted = stored_object_of(draft.kind, draft.key, draft.obj, revision)
        at_once = draft.at(revision)
        undecoded = StoredObject(draft.kind, draft.key, 0, draft.encoded).at(revision)
        assert at_once == wanted
        assert msgspec.json.decode(undecoded.encoded) == msgspec.json.decode(wanted.encoded)
        assert at_once.obj == wanted.obj


def test_a_commit_and_a_deletion_take_no_look_at_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    store, draft = Store(), drafts()[0]
    monkeypatch.setattr(module, "serialized", None)
    last = store.delete(store.commit(draft, None))
    assert last.obj["metadata"]["resourceVersion"] == str(store.revision) == "3"
