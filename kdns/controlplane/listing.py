"""Lists and watches as requests spell them: selectors, resourceVersion, limit and continue.

Meaning: Kubernetes documentation, "Kubernetes API Concepts", resource versions and retrieving large results in chunks.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

import msgspec

from kdns.cluster import selectors
from kdns.cluster.objects import Key
from kdns.controlplane import fields, listoptions
from kdns.controlplane.kinds import Json, Kind
from kdns.controlplane.status import StatusError, bad_request, gone, internal
from kdns.controlplane.store import Store, parsed_revision, too_large
from kdns.controlplane.watch import Filter, Stored, Subscription

_TOO_OLD = "The resourceVersion for the provided list is too old."
_LOST = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class ListResult:
    """One page; `remaining` is None where it is not known."""

    stored: tuple[Stored, ...]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None

    @property
    def items(self) -> list[Json]:
        """The objects; they are shared with the store, so do not change them."""
        return [version.obj for version in self.stored]


_NO_BASE64 = re.compile(r"[^A-Za-z0-9_-]")


class _Continue(msgspec.Struct, frozen=True):
    """A continue token: the snapshot's revision (-1: whatever is current) and the next page's first key."""

    rv: int
    namespace: str
    name: str

    def text(self) -> str:
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def _continued(text: str) -> _Continue:
    odd = _NO_BASE64.search(text)
    if odd or len(text) % 4 == 1:
        why = f"illegal base64 data at input byte {odd.start() if odd else len(text) - 1}"
        raise bad_request(f"continue key is not valid: {why}")
    try:
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Continue)
    except ValueError as error:
        raise bad_request(f"continue key is not valid: {error}") from error


def wanted(kind: Kind, namespace: str | None, label_selector: str, field_selector: str) -> Filter:
    """The filter of a list or watch; 400 for selectors that cannot be read."""
    try:
        labels = selectors.parse(label_selector)
    except selectors.SelectorError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error
    return Filter(namespace, labels, fields.parse(kind, field_selector))


def page(
    store: Store, kind: Kind, wanted: Filter, *, limit: int, continue_token: str, resource_version: str, match: str
) -> ListResult:
    """One page of a list; every page is of the snapshot that the first one saw."""
    revision, start = 0, ("", "")
    listoptions.check(watch=False, match=match, resource_version=resource_version, continue_token=continue_token)
    if continue_token:
        if resource_version not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
        token = _continued(continue_token)
        if token.rv > store.revision:
            raise bad_request(f"continue key is not valid: revision {token.rv} is still to come")
        revision, start = max(token.rv, 0), (token.namespace, token.name)
    else:
        revision = _snapshot(store, limit, resource_version, match)
        limit = 0 if resource_version == "0" else limit
    try:
        found = store.page(kind, wanted, revision=revision, start=start, limit=limit)
    except StatusError as error:
        if not continue_token:
            raise gone(_TOO_OLD) from error
        raise gone(_LOST, continue_token=_Continue(-1, *start).text()) from error
    following = _Continue(found.revision, *found.next_key).text() if found.next_key else ""
    return ListResult(found.items, str(found.revision), following, found.remaining)


def _snapshot(store: Store, limit: int, resource_version: str, match: str) -> int:
    """The exact revision a list must show, 0 for the present."""
    try:
        revision = parsed_revision(resource_version or "0")
    except ValueError as error:
        raise bad_request(f"resourceVersion: {error}") from error
    if revision > store.revision:
        raise too_large(revision, store.revision)
    return revision if match == listoptions.EXACT or (limit and not match) else 0


def subscribe(
    store: Store, kind: Kind, wanted: Filter, *, resource_version: str, send_initial: bool | None
) -> Subscription:
    """A watch; without a revision, or with "0", it starts with an ADDED for each object that is there.

    `send_initial` is sendInitialEvents: True asks for those events whatever the revision, False declines them.
    A revision that is still to come closes the watch at once; a forgotten one is 410.
    """
    try:
        since = parsed_revision(resource_version or "0")
    except ValueError as error:
        raise internal(f"resourceVersion: {error}") from error
    if since > store.revision:
        subscription = store.watch(kind, wanted, since=None)
        subscription.close()
        return subscription
    if send_initial or (send_initial is None and not since):
        return store.watch(kind, wanted, since=None, initial=True)
    return store.watch(kind, wanted, since=since or None)


def key(kind: Kind, namespace: str, name: str) -> Key:
    """Where an object is stored."""
    return (namespace if kind.namespaced else "", name)
