"""The parameters of lists and watches: selectors, resourceVersion, limit and continue.

Source: Kubernetes documentation, "Kubernetes API Concepts", and kube-apiserver's validation of ListOptions.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from kdns.cluster import selectors
from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import Cause, StatusError, bad_request, gone, invalid
from kdns.controlplane.apimachinery.field_errors import quoted
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.storage import field_selectors
from kdns.controlplane.storage.field_selectors import FieldLabels
from kdns.controlplane.storage.store import Filter, Store, StoredObject, Subscription, parsed_revision, too_large

_TOO_OLD = "The resourceVersion for the provided list is too old."
_LOST = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class ListResult:
    """One page; `remaining` is None if it is not known."""

    stored: tuple[StoredObject, ...]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None

    @property
    def items(self) -> list[Json]:
        """They are shared with the store, so do not change them."""
        return [version.obj for version in self.stored]


_NOT_VALID: Final = "continue: expected a token of an earlier list of this server"
_BASE64 = re.compile(r"[A-Za-z0-9_-]+")


class _Continue(msgspec.Struct, frozen=True):
    """A continue token: the snapshot's revision (-1: whatever is current) and the next page's first key."""

    rv: int
    namespace: str
    name: str

    def text(self) -> str:
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def _continued(text: str) -> _Continue:
    try:
        if not _BASE64.fullmatch(text):
            raise bad_request(_NOT_VALID)
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Continue)
    except ValueError as error:
        raise bad_request(_NOT_VALID) from error


def filter_of(
    namespace: str | None,
    label_selector: str = "",
    field_selector: str = "",
    field_labels: FieldLabels = field_selectors.OBJECT_META,
) -> Filter:
    """Raises 400 for malformed selectors."""
    try:
        labels = selectors.parse(label_selector)
    except selectors.SelectorError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error
    return Filter(namespace, labels, field_selectors.parse(field_labels, field_selector))


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The parameters of a list or watch (meta/v1 ListOptions). `send_initial` is sendInitialEvents."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    send_initial: bool | None = None


def page(store: Store, kind: Kind, selection: Filter, options: ListOptions) -> ListResult:
    _check_options(options, watch=False)
    revision, start = 0, ("", "")
    continue_token, resource_version = options.continue_token, options.resource_version
    if continue_token:
        if resource_version not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
        token = _continued(continue_token)
        if token.rv > store.revision:
            raise bad_request(f"{_NOT_VALID}: revision {token.rv} is still to come")
        revision, start = max(token.rv, 0), (token.namespace, token.name)
    else:
        revision = _snapshot(store, options)
    limit = 0 if resource_version == "0" else options.limit
    try:
        part = store.page(kind, selection, revision=revision, start=start, limit=limit)
    except StatusError as error:
        if not continue_token:
            raise gone(_TOO_OLD) from error
        raise gone(_LOST, continue_token=_Continue(-1, *start).text()) from error
    following = _Continue(part.revision, *part.next_key).text() if part.next_key else ""
    return ListResult(part.items, str(part.revision), following, part.remaining)


def _snapshot(store: Store, options: ListOptions) -> int:
    """The exact revision that a list must show, 0 for the present."""
    match, resource_version = options.resource_version_match, options.resource_version
    try:
        revision = parsed_revision(resource_version or "0")
    except ValueError as error:
        raise bad_request(f"invalid resource version: {_not_a_revision(resource_version, error)}") from error
    if revision > store.revision:
        raise too_large(revision, store.revision)
    return revision if match == EXACT or (options.limit and not match) else 0


def check_present(store: Store, resource_version: str) -> None:
    """Checks the resourceVersion of a GET of one object: 500 if it is not a number, 504 if it is in the future.

    The answer is always the present state, which satisfies every other revision.
    """
    if (revision := _since(resource_version)) > store.revision:
        raise too_large(revision, store.revision)


def _since(resource_version: str) -> int:
    try:
        return parsed_revision(resource_version or "0")
    except ValueError as error:
        raise StatusError(500, "", _not_a_revision(resource_version, error)) from error


def _not_a_revision(text: str, error: ValueError) -> str:
    return f"resourceVersion: Invalid value: {quoted(text)}: {error}"


def subscribe(store: Store, kind: Kind, selection: Filter, options: ListOptions) -> Subscription:
    """Without a revision, or with "0", a watch starts with an ADDED event for each existing object.

    sendInitialEvents requests those events with any revision if it is true, and suppresses them if it is false. A
    future revision closes the watch at once; one older than the history is 410.
    """
    _check_options(options, watch=True)
    since, send_initial = _since(options.resource_version), options.send_initial
    if since > store.revision:
        subscription = store.watch(kind, selection, since=None)
        subscription.close()
        return subscription
    if send_initial or (send_initial is None and not since):
        return store.watch(kind, selection, since=None, initial=True)
    return store.watch(kind, selection, since=since or None)


def key(kind: Kind, namespace: str, name: str) -> Key:
    return (namespace if kind.namespaced else "", name)


EXACT, NOT_OLDER_THAN = "Exact", "NotOlderThan"
_LIST_OPTIONS: Final = Kind("meta.k8s.io", "v1", "ListOptions", "listoptions")
_MATCH, _INITIAL = "resourceVersionMatch", "sendInitialEvents"


def _check_options(options: ListOptions, *, watch: bool) -> None:
    """Raises 422 with every option that contradicts another."""
    match, send_initial = options.resource_version_match, options.send_initial
    about_match = _watch_match(match, send_initial) if watch else _list_match(match, options.resource_version)
    causes = list(about_match)
    if match and options.continue_token:
        causes.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    if send_initial is not None and not watch:
        causes.append(_forbidden(_INITIAL, f"{_INITIAL} is forbidden for list"))
    if causes:
        raise invalid(_LIST_OPTIONS, "", causes)


def _list_match(match: str, resource_version: str) -> Iterator[Cause]:
    if not match:
        return
    if not resource_version:
        yield _forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
    if match not in {EXACT, NOT_OLDER_THAN}:
        yield _unsupported(match, EXACT, NOT_OLDER_THAN, "")
    if match == EXACT and resource_version == "0":
        yield _forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"')


def _watch_match(match: str, send_initial: bool | None) -> Iterator[Cause]:
    if send_initial is not None and match != NOT_OLDER_THAN:
        yield _forbidden(_MATCH, f"{_INITIAL} requires setting {_MATCH} to {NOT_OLDER_THAN}")
    if match and send_initial is None:
        yield _forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless {_INITIAL} is provided")
    if match and match != NOT_OLDER_THAN:
        yield _unsupported(match, NOT_OLDER_THAN)


def _forbidden(field: str, why: str) -> Cause:
    return Cause(field, "Forbidden", why)


def _unsupported(match: str, *supported: str) -> Cause:
    named = ", ".join(f'"{value}"' for value in supported)
    return Cause(_MATCH, f'Unsupported value: "{match}"', f"supported values: {named}")
