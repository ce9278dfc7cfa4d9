"""The OpenAPI documents: v3 as an index and one document per group version.

kubectl explain reads them. kubectl's writing commands read merge keys from them, and whether the server supports the
query parameters dryRun and fieldValidation.
Differs: v2 is empty. kubectl before 1.29 reads it for each write, later ones for kinds that v3 does not have, and both
leave the checks to the server where a kind is missing; `explain --output plaintext-openapiv2` finds nothing.
A document is built at the first request after a change of its kinds, and shared: it must not be changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.schema.schema import KUBERNETES_VERSION
from kdns.controlplane.server.openapi.paths import root, v3_paths
from kdns.controlplane.server.openapi.types import definitions

_V2_JSON: Final = b'{"swagger":"2.0","info":{"title":"kdns control plane","version":"v2"},"paths":{}}'
_V2_PROTOBUF: Final = b"\n\x032.0"
"""`openapi.v2.Document` of gnostic's OpenAPIv2.proto with field 1, swagger; clients in Go read protobuf only."""
_V2_PROTOBUF_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_INFO: Final[Json] = {"title": "kdns control plane", "version": f"v{KUBERNETES_VERSION}"}

T = TypeVar("T")


def v2_document(accept: str) -> tuple[bytes, str]:
    """Returns the empty v2 document and its media type; client-go spells that of protobuf with an @ in `accept`."""
    return (_V2_PROTOBUF, _V2_PROTOBUF_TYPE) if "openapi.spec.v2" in accept else (_V2_JSON, "application/json")


class Documents:
    """The documents of one server's kinds."""

    def __init__(self, kinds: Catalogue) -> None:
        self.kinds = kinds
        self._made: dict[tuple[str, str], tuple[int, Any]] = {}

    def v3_index(self) -> Json:
        """Returns the response of `/openapi/v3`: the documents, each with a URL that changes with its content."""
        keys = dict.fromkeys(map(root, self.kinds))
        return {"paths": {key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={self.v3_hash(key)}"} for key in keys}}

    def v3(self, key: str) -> Json:
        """Returns the document of a group version, such as `apis/discovery.k8s.io/v1`.

        Raises KeyError if none of it is served.
        """

        def made() -> Json:
            kinds: list[Kind] = [kind for kind in self.kinds if root(kind) == key]
            if not kinds:
                raise KeyError(key)
            paths, schemas = v3_paths(self.kinds, kinds), definitions(kinds)
            return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}

        return self._current("v3", key, made)

    def v3_json(self, key: str) -> bytes:
        return self._current("v3 json", key, lambda: msgspec.json.encode(self.v3(key)))

    def v3_hash(self, key: str) -> str:
        """Returns the hash of a document's content, equal in every process. It is the ETag too."""

        def made() -> str:
            text = json.dumps(self.v3(key), sort_keys=True, separators=(",", ":"))
            return hashlib.sha256(text.encode()).hexdigest().upper()

        return self._current("v3 hash", key, made)

    def _current(self, form: str, key: str, make: Callable[[], T]) -> T:
        """Returns the document of a group version in a form, made again if kinds of it changed."""
        count = self.kinds.changes[key.partition("/")[2]]
        found = self._made.get((form, key))
        if found is None or found[0] != count:
            found = self._made[form, key] = (count, make())
        value: T = found[1]
        return value
