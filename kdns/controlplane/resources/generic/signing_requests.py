"""What a CertificateSigningRequest says of its author and its signature comes from the server, not from the author."""

from __future__ import annotations

from kdns.controlplane.meta.kinds import Json

_AUTHOR = ("username", "uid", "groups", "extra")


def unsigned_request(obj: Json) -> Json:
    """A new request: without approval and certificate, and without an author who was made up.

    Differs: the author stays unknown, since the API has no users.
    """
    new = {name: value for name, value in obj.items() if name != "status"}
    if isinstance(spec := new.get("spec"), dict):
        new["spec"] = {name: value for name, value in spec.items() if name not in _AUTHOR}
    return {**new, "status": {}}


def unchanged_request(new: Json, old: Json | None) -> Json:
    """A request cannot be changed after it was made; approval and status have subresources of their own."""
    return {**new, "spec": old["spec"]} if old and "spec" in old else new
