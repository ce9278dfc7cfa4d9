"""The OpenAPI documents: v2 as JSON and protobuf, v3 as an index and one document per group version.

kubectl explain reads v3. kubectl's writing commands read from it merge keys and whether the server supports the query
parameters dryRun and fieldValidation. kubectl reads v2 for `explain --output plaintext-openapiv2`,
kubectl before 1.29 for each write too: as protobuf only, and of it the definitions only.
Differs: v2 has no operations.
Documents are built at the first call and shared: they must not be changed.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Final

from kdns.controlplane.meta.kinds import REVIEWS, SERVED, Json, Kind
from kdns.controlplane.schema.schema import KUBERNETES_VERSION
from kdns.controlplane.server.openapi.paths import root, v3_paths
from kdns.controlplane.server.openapi.proto import document_bytes
from kdns.controlplane.server.openapi.types import V2, V3, definitions

V2_PROTOBUF_TYPES: Final = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)
"""The media types of `openapi_v2_protobuf`: the one that clients request and the valid one of responses."""

_INFO: Final[Json] = {"title": "kdns control plane", "version": f"v{KUBERNETES_VERSION}"}


@cache
def openapi_v2() -> Json:
    """Returns the Swagger document: the definitions of all kinds."""
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": definitions((*SERVED, *REVIEWS), V2)}


@cache
def openapi_v2_protobuf() -> bytes:
    """Returns the Swagger document as a gnostic `openapi.v2.Document` in protobuf."""
    return document_bytes(openapi_v2())


def openapi_v3_index() -> Json:
    """Returns the response of `/openapi/v3`: the documents, each with a URL that changes with its content."""
    return {
        "paths": {
            key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={openapi_v3_hash(key)}"} for key in _group_versions()
        }
    }


@cache
def openapi_v3(key: str) -> Json:
    """Returns the document of a group version, such as `apis/discovery.k8s.io/v1`.

    Raises KeyError if none of it is served.
    """
    kinds = _group_versions()[key]
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": v3_paths(kinds),
        "components": {"schemas": definitions(kinds, V3)},
    }


@cache
def openapi_v3_hash(key: str) -> str:
    """Returns the hash of a document's content, equal in every process. It is the ETag too."""
    text = json.dumps(openapi_v3(key), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest().upper()


def _group_versions() -> dict[str, list[Kind]]:
    found: dict[str, list[Kind]] = {}
    for kind in (*SERVED, *REVIEWS):
        found.setdefault(root(kind), []).append(kind)
    return found
