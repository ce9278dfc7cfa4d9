"""Applies manifests to the API at start, then follows their files.

Folders are scanned four times a second. A changed file is read when the next scan finds it unchanged, so no
half-written file is read: an edit takes effect after 0.25 to 0.5 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from kdns import logs
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import NAMESPACE, Json
from kdns.controlplane.manifests.changes import ChangeLog, ObjectChange, Verb, changed_fields
from kdns.controlplane.manifests.io.files import ManifestFile, Scanner, check_exist, located
from kdns.controlplane.manifests.manifest import Key, Manifest, Mistake, in_order, source_of, source_text
from kdns.controlplane.manifests.mistakes import refusals
from kdns.controlplane.manifests.problems import manifest_problems
from kdns.controlplane.manifests.three_way_merge import applied, merged
from kdns.controlplane.schema import check
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.object_meta import is_terminating
from kdns.errors import ManifestError

log = logs.get(__name__)

POLL_S = 0.25
BATCH = 50
"""Objects that are applied before other tasks run."""

FIELD_MANAGER = "kdns-manifests"


_BACKGROUND: Json = {"propagationPolicy": "Background"}
"""Dependents are deleted too, as with `kubectl delete`."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of one pass, in objects."""

    applied: int = 0
    deleted: int = 0
    refused: int = 0


class BeingDeletedError(StatusError):
    """An object of this name is terminating; the manifest is applied when it is gone."""

    def __init__(self, manifest: Manifest) -> None:
        message = f'{manifest.kind.plural} "{manifest.name}" is being deleted; it will be created again after that'
        super().__init__(409, "Conflict", message)


class ManifestFollower:
    """Keeps the objects of the API equal to the manifests below `paths`; `texts` replace the files of their paths.

    `report` gets each problem once while it lasts: invalid files, refused objects, duplicates, unknown kinds. `changes`
    reports the changes of every pass except the first, and files whose problems are solved.

    The objects of a document with a mistake stay as they are, and so do those of a member of `paths` that has
    disappeared. Refused objects are applied again in every pass. Manifests of `trusted` paths, which kdns wrote, are
    not validated. An object that a client deletes is recreated when its file is written.
    """

    def __init__(
        self,
        api: Registry,
        paths: Sequence[Path],
        texts: Mapping[Path, str] | None = None,
        *,
        report: Callable[[ManifestError], None],
        changes: ChangeLog | None = None,
        poll_s: float = POLL_S,
        trusted: Collection[Path] = (),
    ) -> None:
        self._api, self._report, self._changes, self._poll_s = api, report, changes or ChangeLog(), poll_s
        self._trusted = frozenset(map(str, trusted))
        self._roots = tuple(source_text(str(path.absolute())) for path in paths)
        self._scanner = Scanner(paths, api.kinds, texts or {})
        self._applied: dict[Key, Manifest] = {}
        self._files: dict[Path, ManifestFile] = {}
        self._kinds_changed = 0
        self._manifests: dict[Key, Manifest] = {}
        self._refusals: dict[Key, Refusal] = {}
        self._reported: dict[str, str] = {}
        self._skipped: set[tuple[str, str]] = set()
        self._is_applied = False

    async def start(self) -> Applied:
        """Applies all manifests, and deletes objects of an earlier run that the files no longer define.

        Raises ManifestError when one of the paths does not exist.
        """
        check_exist(self._scanner.followed)
        await asyncio.to_thread(self._scanner.scan, settle=False)
        self._define()
        deleted = [key for key in self._orphans() if self._delete(key)]
        try:
            return await self._apply(len(deleted))
        finally:
            self._changes.end(is_start=True)

    async def follow(self) -> None:
        """Scans and applies until cancelled. Errors do not end it: each is logged once while it lasts."""
        failure = ""
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                await self.scan()
            except Exception as error:  # task boundary: the files are followed whatever failed
                if repr(error) != failure:
                    log.exception("manifests not applied")
                failure = repr(error)
            else:
                failure = ""

    async def scan(self) -> Applied:
        if await asyncio.to_thread(self._scanner.scan) or self._are_kinds_new():
            self._is_applied = False
            self._define()
        elif self._is_applied and not self._refusals:
            return Applied()
        removed = [key for key in self._applied if key not in self._manifests]
        removed.sort(key=lambda key: key[0] is NAMESPACE)
        try:
            deleted = [key for key in removed if self._delete(key)]
            return await self._apply(len(deleted))
        finally:
            self._changes.end()

    def _define(self) -> None:
        kinds = self._api.kinds
        self._kinds_changed = kinds.changes.total()
        self._files = {path: self._scanner.files[path].resolved(kinds) for path in sorted(self._scanner.files)}
        self._manifests = {}
        for loaded in self._files.values():
            for manifest in loaded.manifests:
                self._manifests.setdefault(manifest.key, manifest)
        self._refusals = {key: error for key, error in self._refusals.items() if key in self._manifests}

    def _are_kinds_new(self) -> bool:
        return self._api.kinds.changes.total() != self._kinds_changed

    async def _apply(self, deleted: int) -> Applied:
        applied, refused = await self._apply_known()
        while self._are_kinds_new():
            self._define()
            more, refused = await self._apply_known()
            applied += more
        self._is_applied = True
        self._report_new()
        return Applied(applied, deleted, refused)

    async def _apply_known(self) -> tuple[int, int]:
        """Returns how many objects were applied, and how many are refused."""
        applied, attempts, refused = 0, 0, dict[Key, tuple[str, list[Mistake]]]()
        for number, manifest in enumerate(in_order(self._manifests.values())):
            if self._is_applied_already(manifest):
                self._applied[manifest.key] = manifest
                self._refusals.pop(manifest.key, None)
                continue
            attempts += 1
            if attempts % BATCH == 0:
                self._changes.progress(f"applying manifests, {number:,} of {len(self._manifests):,} objects")
                await asyncio.sleep(0)
            is_trusted = manifest.path in self._trusted
            try:
                with self._api.without_validation() if is_trusted else nullcontext():
                    self._store(manifest)
            except StatusError as error:
                if (reported := self._refusals.get(manifest.key)) is None or reported.message != error.message:
                    refused[manifest.key] = error.message, self._mistakes(manifest, error)
            else:
                self._applied[manifest.key] = manifest
                self._refusals.pop(manifest.key, None)
                applied += 1
        mistakes = [mistake for _, mistakes in refused.values() for mistake in mistakes]
        errors = iter(await asyncio.to_thread(located, mistakes, self._scanner.text_of))
        for key, (message, mistakes) in refused.items():
            self._refusals[key] = Refusal(message, tuple(islice(errors, len(mistakes))))
        return applied, len(self._refusals)

    def _is_applied_already(self, manifest: Manifest) -> bool:
        """A file that is written again brings its deleted objects back, even if the manifests are the same."""
        before = self._applied.get(manifest.key)
        if before is manifest:
            return True
        return manifest.is_equal(before) and self._api.store.get(manifest.key[0], manifest.key[1:]) is not None

    def _store(self, manifest: Manifest) -> None:
        """Applies the object. If immutable fields changed, it is replaced, unless its creation would be refused."""
        kind, request, to_apply = manifest.kind, _request(manifest), _to_apply(manifest)
        if wrong := list(check.mistakes(kind, to_apply)):
            causes = [{"field": field, "message": reason} for field, reason in wrong]
            raise StatusError(400, "BadRequest", str(wrong), {"causes": causes})
        to_apply = check.prune(kind, to_apply)
        self._check_stays(manifest)
        try:
            before, live = applied(self._api, request, to_apply)
            verb: Verb = "configured" if before else "created"
        except StatusError as error:
            if not error.is_about_immutable_fields:
                raise
            before, verb = self._api.get(request), "replaced"
            self._api.check_successor(request, to_apply)
            self._api.delete(request, options={**_BACKGROUND, "gracePeriodSeconds": 0})
            self._check_stays(manifest)  # it may have finalizers
            live = merged(kind, before, to_apply)
            applied(self._api, request, to_apply)
        fields = changed_fields(before, live) if before else ()
        if fields or verb != "configured":
            self._changes.add(ObjectChange(manifest.path, *manifest.key, verb, fields), live)

    def _check_stays(self, manifest: Manifest) -> None:
        stored = self._api.store.get(manifest.key[0], manifest.key[1:])
        if stored and is_terminating(stored.obj):
            raise BeingDeletedError(manifest)

    def _mistakes(self, manifest: Manifest, error: StatusError) -> list[Mistake]:
        """Every mistake in a refused manifest, as `kdns check` reports them.

        Without causes, the whole message is about the object.
        """
        rows = (error.details or {}).get("causes") or ()
        causes = dict.fromkeys((row["field"], row["message"]) for row in rows if row.get("field"))
        causes = causes or {("", error.message): None}
        kind, to_apply = manifest.kind, _to_apply(manifest)
        if not isinstance(error, BeingDeletedError) and not check.mistyped_fields(kind, to_apply):
            request = msgspec.structs.replace(_request(manifest), dry_run=True)
            tried = refusals(kind, check.prune(kind, to_apply), lambda obj: applied(self._api, request, obj))
            causes |= dict.fromkeys((field, reason) for _, field, reason in tried)
        return [Mistake(manifest, field, reason) for field, reason in causes]

    def _delete(self, key: Key) -> bool:
        kind, namespace, name = key
        applied = self._applied.pop(key, None)
        source = ""
        try:
            obj = self._api.get(Request(kind, namespace, name))
            source = source_of(obj)
            if not source:
                return False
            self._api.delete(Request(kind, namespace, name), options=_BACKGROUND)
            self._changes.add(ObjectChange(applied.path if applied else source, *key, "deleted"), obj)
        except StatusError as error:
            if error.code != 404:
                self._report(ManifestError(source, 0, f"{kind.kind} {name}", f"cannot be deleted: {error.message}"))
            return False
        return True

    def _orphans(self) -> Iterator[Key]:
        """Objects of an earlier run whose manifest, below the same paths and in a valid file, is gone.

        None while a folder cannot be read.
        """
        if self._scanner.error:
            return
        broken = {source_text(str(path.absolute())) for path, loaded in self._files.items() if loaded.errors}
        for kind in sorted(self._api.kinds.stored, key=lambda kind: kind is NAMESPACE):
            for obj in list(self._api.list(Request(kind)).items):
                key = kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
                source = source_of(obj)
                followed = source and any(Path(source).is_relative_to(root) for root in self._roots)
                if followed and source not in broken and key not in self._manifests:
                    yield key

    def _report_new(self) -> None:
        for remark in self._remarks():
            self._report(remark)
        problems = list(self._problems())
        for problem in problems:
            if str(problem) not in self._reported:
                self._report(problem)
        wrong = {problem.path for problem in problems}
        for path in sorted(set(self._reported.values()) - wrong):
            removed = "" if Path(path).exists() else "removed, "
            self._changes.report(f"{path}: {removed}no mistakes left")
        self._reported = {str(problem): problem.path for problem in problems}

    def doubts(self) -> list[ManifestError]:
        """Manifests that are accepted but will not work."""
        return located(manifest_problems([*self._manifests.values()]), self._scanner.text_of)

    def _remarks(self) -> Iterator[ManifestError]:
        for loaded in self._files.values():
            for unknown in loaded.unknown:
                if (unknown.api_version, unknown.kind) not in self._skipped:
                    self._skipped.add((unknown.api_version, unknown.kind))
                    yield unknown.error

    def _problems(self) -> Iterator[ManifestError]:
        if self._scanner.error:
            yield self._scanner.error
        for path in sorted(self._scanner.absent):
            yield ManifestError(str(path), 0, "", "the path no longer exists; its objects are kept until it returns")
        for loaded in self._files.values():
            yield from (*loaded.errors, *loaded.warnings)
            for manifest in loaded.manifests:
                first = self._manifests[manifest.key]
                if first is not manifest:
                    what = f"{manifest.kind.kind} {manifest.name} is already defined at {first.path}:{first.line}"
                    yield ManifestError(manifest.path, manifest.line, "", f"{what}; that definition is used")
            yield from (kustomization.error for kustomization in loaded.kustomizations if kustomization.has_effects)
        for refused in self._refusals.values():
            yield from refused.mistakes


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API's error for a manifest, and the mistakes in the file, one per cause."""

    message: str
    mistakes: tuple[ManifestError, ...]


def _request(manifest: Manifest) -> Request:
    return Request(*manifest.key, served_version=manifest.kind, manager=FIELD_MANAGER)


def _to_apply(manifest: Manifest) -> Json:
    return manifest.to_apply(str(Path(manifest.path).absolute()))
