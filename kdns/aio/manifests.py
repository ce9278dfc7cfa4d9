"""Manifests as the source of objects: applied at start, then followed.

Folders are looked through four times a second. A changed file is read once it stayed as it is for one more look,
so that no half-written file counts: an edit becomes effective after 0.25 to 0.5 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Never, Protocol

from kdns.aio.manifestfiles import Scanner, check_exist, text_of
from kdns.aio.yamldocs import field_line
from kdns.controlplane.kinds import KINDS, NAMESPACE, Json, Kind
from kdns.controlplane.manifests import Key, Manifest, in_order, merged, source_of
from kdns.controlplane.review import Review
from kdns.controlplane.status import StatusError
from kdns.controlplane.validation import IMMUTABLE, ONCE_SET
from kdns.controlplane.validation_apps import FIXED_SET
from kdns.controlplane.validation_pod import FROZEN
from kdns.errors import ManifestError

POLL_S = 0.25
TURN = 50
"""Objects applied before other tasks get a turn."""

FIELD_MANAGER = "kdns-manifests"

FIXED = (ONCE_SET, IMMUTABLE, FROZEN, FIXED_SET)
"""What the API says of fields that keep their first value: the object is then deleted and made anew."""
CARRIED = ("name", "namespace", "labels", "annotations")
"""The metadata that an object made anew keeps."""


_BACKGROUND: Json = {"propagationPolicy": "Background"}
"""What an object made goes with it, as with kubectl."""


class ObjectList(Protocol):
    """What a list request gives."""

    @property
    def items(self) -> Sequence[Json]:
        """The objects."""


class Objects(Protocol):
    """The verbs of the API that manifests need; each raises StatusError when it refuses."""

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        """The stored object."""

    def list(self, kind: Kind, namespace: str | None) -> ObjectList:
        """All objects, of all namespaces for None."""

    def create(self, kind: Kind, namespace: str, obj: Json, *, field_manager: str = "") -> Json:
        """The object as it was stored."""

    def update(
        self, kind: Kind, namespace: str, name: str, obj: Json, *, subresource: str = "", field_manager: str = ""
    ) -> Json:
        """The object as it was stored."""

    def delete(self, kind: Kind, namespace: str, name: str, *, options: Json | None = None) -> Json:
        """The object, or a Status, as it went."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What one pass did, in objects."""

    applied: int = 0
    deleted: int = 0
    refused: int = 0


class BeingDeletedError(StatusError):
    """The object of this name is on its way out; its successor has to wait."""

    def __init__(self, manifest: Manifest) -> None:
        message = f'{manifest.kind.plural} "{manifest.name}" is being deleted; it will be created anew after that'
        super().__init__(409, "Conflict", message)


class ManifestFollower:
    """Keeps the API's objects as the manifests below `paths` define them.

    `report` gets every problem once while it stands: broken files, refused objects, double ones, unknown kinds.
    What a broken file defined before stays, and so does all of one of `paths` that is not there any more.
    Refused objects are tried again at every pass.
    An object that someone deletes comes back when its manifest changes.
    """

    def __init__(
        self,
        api: Objects,
        paths: Sequence[Path],
        *,
        report: Callable[[ManifestError], None],
        poll_s: float = POLL_S,
    ) -> None:
        self._api, self._report, self._poll_s = api, report, poll_s
        self._roots = tuple(path.absolute() for path in paths)
        self._scanner = Scanner(paths)
        self._applied: dict[Key, Manifest] = {}
        self._wanted: dict[Key, Manifest] = {}
        self._refusals: dict[Key, ManifestError] = {}
        self._standing: set[str] = set()
        self._skipped: set[tuple[str, str]] = set()

    async def start(self) -> Applied:
        """Apply everything, and delete what the same files defined in an earlier run but no longer do.

        Raises ManifestError when one of the paths leads nowhere.
        """
        check_exist(self._scanner.paths)
        await asyncio.to_thread(self._scanner.scan, settle=False)
        self._define()
        deleted = [key for key in self._left_behind() if self._delete(key)]
        return await self._apply(len(deleted))

    async def follow(self) -> Never:
        """Look for changes and apply them until cancelled."""
        while True:
            await asyncio.sleep(self._poll_s)
            await self.look()

    async def look(self) -> Applied:
        """One pass: apply what changed since the last one."""
        if await asyncio.to_thread(self._scanner.scan):
            self._define()
        elif not self._refusals:
            return Applied()
        gone = [key for key in self._applied if key not in self._wanted]
        gone.sort(key=lambda key: key[0] is NAMESPACE)
        deleted = [key for key in gone if self._delete(key)]
        return await self._apply(len(deleted))

    def _define(self) -> None:
        self._wanted = {}
        for path in sorted(self._scanner.files):
            for manifest in self._scanner.files[path].manifests:
                self._wanted.setdefault(manifest.key, manifest)
        self._refusals = {key: why for key, why in self._refusals.items() if key in self._wanted}

    async def _apply(self, deleted: int) -> Applied:
        applied = 0
        for manifest in in_order(self._wanted.values()):
            if manifest.says_the_same_as(self._applied.get(manifest.key)):
                self._refusals.pop(manifest.key, None)
                continue
            if (applied + len(self._refusals)) % TURN == TURN - 1:
                await asyncio.sleep(0)
            try:
                self._store(manifest)
            except StatusError as why:
                if (known := self._refusals.get(manifest.key)) is None or known.reason != why.message:
                    self._refusals[manifest.key] = refusal(manifest, why)
            else:
                self._applied[manifest.key] = manifest
                self._refusals.pop(manifest.key, None)
                applied += 1
        self._tell()
        return Applied(applied, deleted, len(self._refusals))

    def _store(self, manifest: Manifest) -> None:
        """Create or update the object, then its status where the manifest brings one."""
        kind, namespace, name = manifest.key
        wanted = Review(kind, "Strict")(manifest.wanted(str(Path(manifest.path).absolute())))
        before: Json = {"metadata": {}}
        try:
            before = self._api.get(kind, namespace, name)
        except StatusError as error:
            if error.code != 404:
                raise
            live = self._api.create(kind, namespace, wanted, field_manager=FIELD_MANAGER)
        else:
            if before["metadata"].get("deletionTimestamp"):
                raise BeingDeletedError(manifest)
            obj = merged(kind, before, wanted)
            live = self._changed(manifest, before, obj, wanted) if obj != before else before
        if "status" in kind.subresources:
            status = merged(kind, before | {"status": live.get("status")}, wanted).get("status", {})
            if status != live.get("status", {}):
                live = live | {"status": status}
                self._api.update(kind, namespace, name, live, subresource="status", field_manager=FIELD_MANAGER)

    def _changed(self, manifest: Manifest, before: Json, obj: Json, wanted: Json) -> Json:
        """Update the object, or make it anew where only fields that never change stand against it."""
        kind, namespace, name = manifest.key
        try:
            return self._api.update(kind, namespace, name, obj, field_manager=FIELD_MANAGER)
        except StatusError as why:
            if not is_about_fixed_fields(why):
                raise
        gone = self._api.delete(kind, namespace, name, options={**_BACKGROUND, "gracePeriodSeconds": 0})
        if (gone.get("metadata") or {}).get("deletionTimestamp"):  # a finalizer holds it
            raise BeingDeletedError(manifest)
        try:
            return self._api.create(kind, namespace, wanted, field_manager=FIELD_MANAGER)
        except StatusError:
            identity = {field: before["metadata"][field] for field in CARRIED if field in before["metadata"]}
            self._api.create(kind, namespace, before | {"metadata": identity}, field_manager=FIELD_MANAGER)
            raise

    def _delete(self, key: Key) -> bool:
        kind, namespace, name = key
        self._applied.pop(key, None)
        source = ""
        try:
            source = source_of(self._api.get(kind, namespace, name))
            if not source:
                return False
            self._api.delete(kind, namespace, name, options=_BACKGROUND)
        except StatusError as why:
            if why.code != 404:
                self._report(ManifestError(source, 0, f"{kind.kind} {name}", f"cannot be deleted: {why.message}"))
            return False
        return True

    def _left_behind(self) -> Iterator[Key]:
        """Objects of an earlier run whose file, below the same paths and not broken, defines them no longer.

        None while something cannot be looked into: nobody knows what the files say.
        """
        if self._scanner.error:
            return
        broken = {str(path.absolute()) for path, loaded in self._scanner.files.items() if loaded.error}
        for kind in sorted(KINDS, key=lambda kind: kind is NAMESPACE):
            for obj in list(self._api.list(kind, None).items):
                key = kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
                source = source_of(obj)
                followed = source and any(Path(source).is_relative_to(root) for root in self._roots)
                if followed and source not in broken and key not in self._wanted:
                    yield key

    def _tell(self) -> None:
        """Report what is wrong now and was not before."""
        problems = list(self._problems())
        for problem in problems:
            if str(problem) not in self._standing:
                self._report(problem)
        self._standing = {str(problem) for problem in problems}

    def _problems(self) -> Iterator[ManifestError]:
        if self._scanner.error:
            yield self._scanner.error
        for path in sorted(self._scanner.absent):
            yield ManifestError(str(path), 0, "", "not there any more; its objects stay until it is back")
        for path in sorted(self._scanner.files):
            loaded = self._scanner.files[path]
            if loaded.error:
                yield loaded.error
            for manifest in loaded.manifests:
                first = self._wanted[manifest.key]
                if first is not manifest:
                    what = f"{manifest.kind.kind} {manifest.name} is already defined at {first.path}:{first.line}"
                    yield ManifestError(manifest.path, manifest.line, "", f"{what}, which counts")
            for unknown in loaded.unknown:
                if (unknown.api_version, unknown.kind) not in self._skipped:
                    self._skipped.add((unknown.api_version, unknown.kind))
                    yield unknown.error
        yield from self._refusals.values()


def is_about_fixed_fields(why: StatusError) -> bool:
    """Whether a refusal names nothing but fields that may be set once."""
    causes = (why.details or {}).get("causes") or []
    return bool(causes) and all(any(word in cause["message"] for word in FIXED) for cause in causes)


def refusal(manifest: Manifest, why: StatusError) -> ManifestError:
    """What the API refused, at the line of the field at fault where it can be found."""
    causes = (why.details or {}).get("causes") or []
    line = manifest.line
    if causes and causes[0].get("field"):
        try:
            line = field_line(manifest.path, text_of(Path(manifest.path)), manifest.line, causes[0]["field"])
        except ManifestError:
            line = manifest.line
    return ManifestError(manifest.path, line, "", why.message)
