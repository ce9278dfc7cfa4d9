"""Options of writes and deletions: field manager, dry run, field validation, propagation policy.

Facts: meta/v1 CreateOptions, UpdateOptions, PatchOptions and DeleteOptions, their validation and defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

from kdns.controlplane.apimachinery.errors import Cause, StatusError, invalid
from kdns.controlplane.apimachinery.field_errors import forbidden, invalid_value, quoted, required, unsupported
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.strategy import Strategy
from kdns.controlplane.schema.field_validation import Policy
from kdns.controlplane.server.request import Request
from kdns.controlplane.storage.watch import StoredObject

MANAGER_BYTES_MAX = 128
POLICIES = ("", "Ignore", "Strict", "Warn")

_KINDS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
_UNKNOWN_AGENT = "unknown"


def with_write_options(
    request: Request,
    method: str,
    *,
    manager: str,
    user_agent: str,
    dry_run: Sequence[str],
    policy: str,
    force: bool | None = None,
    applies: bool = False,
) -> Request:
    """Returns a request with the options of a POST, PUT or PATCH. Raises 422 for invalid values."""
    causes = []
    if force is not None and method == "PATCH" and not applies:
        causes.append(forbidden("force", "may not be specified for non-apply patch"))
    if applies and not manager:
        causes.append(required("fieldManager", "is required for apply patch"))
    causes += _manager_causes(manager)
    causes += _dry_run_causes(dry_run)
    if policy not in POLICIES:
        causes.append(unsupported("fieldValidation", policy, POLICIES))
    if causes:
        raise _invalid(method, causes)
    manager, chosen = manager or manager_of(user_agent), cast("Policy", policy or "Warn")
    return replace(request, manager=manager, dry_run=bool(dry_run), policy=chosen, force=bool(force))


def checked_dry_run(method: str, values: Sequence[str]) -> bool:
    """Returns whether dryRun is All. Raises 422 for any other value."""
    if causes := _dry_run_causes(values):
        raise _invalid(method, causes)
    return bool(values)


def manager_of(user_agent: str) -> str:
    """Returns the manager of a client that names none: the printable part of its User-Agent up to the first slash.

    Differs: kube-apiserver gives a client without User-Agent an entry without a name.
    """
    shown = "".join(letter for letter in user_agent.partition("/")[0] if letter.isprintable())
    return shown.encode()[:MANAGER_BYTES_MAX].decode(errors="ignore") or _UNKNOWN_AGENT


def _manager_causes(manager: str) -> list[Cause]:
    causes = []
    if len(manager.encode()) > MANAGER_BYTES_MAX:
        causes.append(Cause("fieldManager", "Too long", f"may not be more than {MANAGER_BYTES_MAX} bytes"))
    position = 0
    for letter in manager:
        if not letter.isprintable():
            why = f"invalid character U+{ord(letter):04X} (at position {position})"
            causes.append(invalid_value("fieldManager", manager, why))
        position += len(letter.encode())
    return causes


def _dry_run_causes(values: Sequence[str]) -> list[Cause]:
    return [] if all(value == "All" for value in values) else [unsupported("dryRun", list(values), ("All",))]


def _invalid(method: str, causes: list[Cause]) -> StatusError:
    return invalid(Kind("meta.k8s.io", "v1", _KINDS[method], ""), "", causes)


FOREGROUND: Final = "foregroundDeletion"
"""The finalizer of an object whose dependents are deleted before it."""

ORPHANING: Final = "orphan"
"""The finalizer of an object whose dependents are orphaned."""

ORPHAN: Final = "Orphan"
_PROPAGATION: Final = ("Foreground", "Background", ORPHAN)

_DELETE_OPTIONS: Final = Kind("meta.k8s.io", "v1", "DeleteOptions", "deleteoptions")


def checked_policy(options: Json) -> str | None:
    """Returns propagationPolicy of DeleteOptions.

    Raises 422 for an unknown one, and for one beside orphanDependents.
    """
    policy, orphans = options.get("propagationPolicy"), options.get("orphanDependents")
    if policy is not None and orphans is not None:
        both = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid(_DELETE_OPTIONS, "", [invalid_value("propagationPolicy", policy, both)])
    if policy is not None and policy not in _PROPAGATION:
        supported = ", ".join(f'"{value}"' for value in (*_PROPAGATION, "nil"))
        cause = Cause("propagationPolicy", f"Unsupported value: {quoted(policy)}", f"supported values: {supported}")
        raise invalid(_DELETE_OPTIONS, "", [cause])
    return None if policy is None else str(policy)


def propagation(version: StoredObject, strategy: Strategy, options: Json) -> str:
    """Returns Orphan, Background or Foreground, for valid options."""
    if policy := checked_policy(options):
        return policy
    orphans = options.get("orphanDependents")
    if orphans is not None:
        return ORPHAN if orphans else "Background"
    finalizers = version.obj["metadata"].get("finalizers") or ()
    if ORPHANING in finalizers:
        return ORPHAN
    if FOREGROUND in finalizers:
        return "Foreground"
    return ORPHAN if strategy.orphan_dependents else "Background"
