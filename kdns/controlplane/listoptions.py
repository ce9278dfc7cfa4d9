"""Which options of a list or a watch go together (meta/v1 ListOptions, and kube-apiserver's checks of it)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.controlplane.kinds import Kind
from kdns.controlplane.status import Cause, invalid

EXACT, NOT_OLDER_THAN = "Exact", "NotOlderThan"
_LIST_OPTIONS: Final = Kind("meta.k8s.io", "v1", "ListOptions", "listoptions")
_MATCH, _INITIAL = "resourceVersionMatch", "sendInitialEvents"


def check(
    *, watch: bool, match: str, resource_version: str, continue_token: str = "", send_initial: bool | None = None
) -> None:
    """422 with every option that does not fit the others."""
    about_match = _watch_match(match, send_initial) if watch else _list_match(match, resource_version)
    causes = list(about_match)
    if match and continue_token:
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
