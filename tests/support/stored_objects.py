"""Objects go into a store as they are, without the API's defaults and validation."""

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.storage.store import Store, StoredObject, stored_object_of


def put(store: Store, kind: Kind, key: Key, obj: Json, replaces: StoredObject | None = None) -> StoredObject:
    return store.commit(stored_object_of(kind, key, obj, 0), replaces)
