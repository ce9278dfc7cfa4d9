"""The author and signature fields of a CertificateSigningRequest, which the server sets."""

from __future__ import annotations

from typing import Final

from kdns.controlplane.meta.kinds import Json

_AUTHOR: Final = ("username", "uid", "groups", "extra")


def requested_by(obj: Json, author: Json) -> Json:
    """Returns a request with its real author (a UserInfo of authentication.k8s.io/v1), not that of the body."""
    if not isinstance(spec := obj.get("spec"), dict):
        return obj
    return {**obj, "spec": {name: value for name, value in spec.items() if name not in _AUTHOR} | author}


def unchanged_request(new: Json, old: Json | None) -> Json:
    """Checks that a request does not change after it was made; approval and status have subresources of their own."""
    return {**new, "spec": old["spec"]} if old and "spec" in old else new
