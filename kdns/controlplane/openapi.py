"""The OpenAPI documents of the control plane: v2 as JSON and protobuf, v3 as an index and one document a group version.

kubectl explain reads v3; kubectl's writing commands look there for merge keys, and for the query parameters dryRun and
fieldValidation. Where v3 is not enough they read v2, which they accept as protobuf only.
Documents are made on the first call and shared: do not change them.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Final

from kdns.controlplane.kinds import SERVED, Json, Kind
from kdns.controlplane.openapi_paths import root, v2_paths, v3_paths
from kdns.controlplane.openapi_proto import document_bytes
from kdns.controlplane.openapi_types import V2, V3, definitions

V2_PROTOBUF_TYPES: Final = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)
"""The media types of `openapi_v2_protobuf`: as clients ask for it, and the valid spelling that servers answer with."""

_INFO: Final[Json] = {"title": "kdns control plane", "version": "v1"}


@cache
def openapi_v2() -> Json:
    """The Swagger document of all kinds."""
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": v2_paths(SERVED),
        "definitions": definitions(SERVED, V2),
    }


@cache
def openapi_v2_protobuf() -> bytes:
    """The same as a gnostic `openapi.v2.Document` in protobuf."""
    return document_bytes(openapi_v2())


def openapi_v3_index() -> Json:
    """What `/openapi/v3` answers: the documents there are, each under a URL that changes with its content."""
    return {
        "paths": {
            key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={openapi_v3_hash(key)}"} for key in _group_versions()
        }
    }


@cache
def openapi_v3(key: str) -> Json:
    """The document of a group version, `api/v1` or `apis/discovery.k8s.io/v1`. KeyError if nothing of it is served."""
    kinds = _group_versions()[key]
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": v3_paths(kinds),
        "components": {"schemas": definitions(kinds, V3)},
    }


@cache
def openapi_v3_hash(key: str) -> str:
    """A hash of a document's content, the same in every process: it serves as an ETag too."""
    text = json.dumps(openapi_v3(key), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest().upper()


def _group_versions() -> dict[str, list[Kind]]:
    found: dict[str, list[Kind]] = {}
    for kind in SERVED:
        found.setdefault(root(kind), []).append(kind)
    return found
