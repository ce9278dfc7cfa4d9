"""Manifest files: searched below paths, read, and scanned for changes."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

from kdns.controlplane.apimachinery.kinds import Kinds
from kdns.controlplane.manifests.kustomization import Kustomization, kustomization, left_out
from kdns.controlplane.manifests.manifest import (
    Manifest,
    Mistake,
    UnknownKind,
    manifest_of,
    unserved,
    with_generated_name,
)
from kdns.errors import InputError, ManifestError
from kdns.runtime.files.bounded import decoded, text_of, unreadable
from kdns.runtime.files.folders import files_below
from kdns.runtime.files.yaml import Document, field_lines, parse

SUFFIXES = (".yaml", ".yml", ".json")
STDIN: Final = Path("-")
_DESCRIPTORS: Final = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")

Stamp: TypeAlias = tuple[int, int, int]
"""Modification time in nanoseconds, size and inode; if it changes, the file is read again."""
UNREADABLE: Final[Stamp] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A file that was read: the manifests of the readable documents, and every mistake in the others.

    `warnings` are about readable documents.
    """

    stamp: Stamp
    manifests: tuple[Manifest, ...] = ()
    unknown: tuple[UnknownKind, ...] = ()
    errors: tuple[ManifestError, ...] = ()
    warnings: tuple[ManifestError, ...] = ()
    kustomizations: tuple[Kustomization, ...] = ()

    def with_lost(self, before: ManifestFile) -> ManifestFile:
        """Keeps the manifests that the file had before its mistakes, unless it defines them anew."""
        defined = {manifest.key for manifest in self.manifests}
        lost = [manifest for manifest in before.manifests if manifest.key not in defined]
        kustomizations = self.kustomizations or before.kustomizations
        return replace(self, manifests=(*self.manifests, *lost), kustomizations=kustomizations)

    def resolved(self, kinds: Kinds) -> ManifestFile:
        """The file by the present kinds, which may differ from those served when it was read."""
        documents: list[Manifest | UnknownKind] = [
            manifest if manifest.kind in kinds else unserved(manifest, kinds) for manifest in self.manifests
        ]
        errors = list(self.errors)
        for unknown in self.unknown:
            try:
                documents.append(manifest_of(unknown.path, unknown.line, unknown.value, kinds))
            except ManifestError as error:
                errors.append(error)
        documents.sort(key=lambda document: document.line)
        return replace(
            self,
            manifests=tuple(document for document in documents if isinstance(document, Manifest)),
            unknown=tuple(document for document in documents if isinstance(document, UnknownKind)),
            errors=tuple(errors),
        )


def stamps(paths: Iterable[Path], absent: set[Path] | None = None) -> dict[Path, Stamp]:
    """Every manifest file at or below `paths`, without hidden ones; one of `paths` itself may have any suffix.

    Paths that do not exist are added to `absent`. An unreadable file is UNREADABLE. Raises ManifestError for an
    unreadable folder, whose files would seem to be deleted.
    """
    stamp_of: dict[Path, Stamp] = {}
    for path in paths:
        try:
            candidates = sorted(_below(path)) if stat.S_ISDIR(path.stat().st_mode) else [path]
        except FileNotFoundError:
            if absent is not None:
                absent.add(path)
            continue
        except OSError as error:
            raise unreadable(path, error) from error
        for candidate in candidates:
            try:
                status = candidate.stat()
            except FileNotFoundError:
                continue
            except OSError:  # `read` reports it
                stamp_of.setdefault(candidate, UNREADABLE)
            else:
                stamp_of.setdefault(candidate, (status.st_mtime_ns, status.st_size, status.st_ino))
    return stamp_of


def read(path: Path, stamp: Stamp, kinds: Kinds, text: str | None = None) -> ManifestFile:
    """Mistakes are part of the result. `text` replaces the content of the file.

    Pipes need `texts_read_once`: they may never end, and are empty the second time.
    """
    try:
        text = regular_text(path) if text is None else text
    except ManifestError as error:
        return ManifestFile(stamp, errors=(error,))
    stream = parse(str(path), text)
    mistakes = [*stream.mistakes]
    items = manifests_of(text, stream.documents, kinds, mistakes)
    return ManifestFile(
        stamp,
        tuple(item for item in items if isinstance(item, Manifest)),
        tuple(item for item in items if isinstance(item, UnknownKind)),
        tuple(sorted(mistakes, key=lambda mistake: mistake.line)),
        stream.duplicates,
        tuple(item for item in items if isinstance(item, Kustomization)),
    )


def manifests_of(
    text: str, documents: Iterable[Document], kinds: Kinds, mistakes: list[ManifestError]
) -> list[Manifest | UnknownKind | Kustomization]:
    """Adds errors of invalid documents to `mistakes`."""
    items: list[Manifest | UnknownKind | Kustomization] = []
    generated: set[str] = set()
    for document in documents:
        value = with_generated_name(document.path, document.value, generated)
        place = document.path, document.line, value
        try:
            items.append(kustomization(*place) or manifest_of(*place, kinds))
        except ManifestError as error:
            lines = field_lines(error.path, text, [(error.line, error.field)])
            mistakes.append(ManifestError(error.path, lines[error.line, error.field], error.field, error.reason))
    return items


def located(mistakes: Sequence[Mistake], text_of: Callable[[Path], str]) -> list[ManifestError]:
    """Mistakes with the lines of their fields, or of the object if a field is missing.

    Each file is read once.
    """
    places: dict[str, list[tuple[int, str]]] = {}
    for mistake in mistakes:
        places.setdefault(mistake.manifest.path, []).append(mistake.location)
    lines: dict[str, dict[tuple[int, str], int]] = {}
    for path, fields in places.items():
        try:
            lines[path] = field_lines(path, text_of(Path(path)), fields)
        except ManifestError:  # the file has changed meanwhile
            lines[path] = {place: place[0] for place in fields}
    return [
        ManifestError(
            mistake.manifest.path, lines[mistake.manifest.path][mistake.location], mistake.field, mistake.reason
        )
        for mistake in mistakes
    ]


def regular_text(path: Path) -> str:
    """Raises ManifestError for anything but a regular file, and as `text_of`."""
    try:
        is_regular = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        raise unreadable(path, error) from error
    if not is_regular:
        raise ManifestError(str(path), 0, "", "cannot be read: it is not a regular file")
    return text_of(path)


def texts_read_once(paths: Iterable[Path]) -> dict[Path, str]:
    """The texts of standard input (`-`), of this process's descriptors and of pipes, which cannot be watched for
    changes.

    Raises ManifestError.
    """
    return {
        path: decoded(path, sys.stdin.buffer) if path == STDIN else text_of(path)
        for path in dict.fromkeys(paths)
        if _is_read_once(path)
    }


def _is_read_once(path: Path) -> bool:
    if path == STDIN or str(path).startswith(_DESCRIPTORS):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:  # `check_exist` and `stamps` report it
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def load(
    paths: Sequence[Path], kinds: Kinds, texts: Mapping[Path, str] | None = None
) -> tuple[list[Manifest], list[UnknownKind]]:
    """The manifests of files and folders, and of `texts_read_once`. Raises InputError with every mistake."""
    scanner = Scanner(paths, kinds, texts or {})
    check_exist(scanner.followed)
    scanner.scan(settle=False)
    if scanner.error:
        raise scanner.error
    manifests: list[Manifest] = []
    unknown: list[UnknownKind] = []
    errors = [error for loaded in scanner.files.values() for error in loaded.errors]
    if errors:
        raise errors[0] if len(errors) == 1 else InputError("\n".join(map(str, errors)))
    for loaded in scanner.files.values():
        manifests += loaded.manifests
        unknown += loaded.unknown
    return manifests, unknown


def check_exist(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            path.stat()
        except FileNotFoundError as error:
            raise ManifestError(str(path), 0, "", "no such file or folder") from error
        except OSError as error:
            raise unreadable(path, error) from error


@dataclass(slots=True)
class Scanner:
    """The files below some paths over time. A changed file is read when the next scan finds it unchanged.

    When a whole path is missing, such as a renamed folder, its files are kept. `absent` holds the paths that were
    missing in two scans: an editor that replaces a file is faster. `files` lacks those that a kustomization leaves out.
    `texts` are those of the paths that are read once.
    """

    paths: Sequence[Path]
    kinds: Kinds
    texts: Mapping[Path, str] = field(default_factory=dict)
    files: dict[Path, ManifestFile] = field(default_factory=dict)
    error: ManifestError | None = None
    absent: frozenset[Path] = frozenset()
    _read: dict[Path, ManifestFile] = field(default_factory=dict)
    _seen: dict[Path, Stamp] = field(default_factory=dict)
    _missing: set[Path] = field(default_factory=set)

    @property
    def followed(self) -> list[Path]:
        return [path for path in self.paths if path not in self.texts]

    def text_of(self, path: Path) -> str:
        """Like `text_of`, also for a file that is read once."""
        text = self.texts.get(path)
        return text_of(path) if text is None else text

    def scan(self, *, settle: bool = True) -> bool:
        """Returns whether anything changed. Without `settle`, changed files are read at once.

        While a path cannot be read, `error` is set and `files` is kept.
        """
        had_error, self.error = self.error, None
        had_absent, missing = self.absent, set[Path]()
        try:
            now = dict.fromkeys(self.texts, (0, 0, 0)) | stamps(self.followed, missing)
        except ManifestError as error:
            self.error = error
            return str(error) != str(had_error)
        self.absent, self._missing = frozenset(missing & self._missing), missing
        now = {path: loaded.stamp for path, loaded in self._read.items() if _is_below(path, missing)} | now
        gone = [path for path in self._read if path not in now and (path not in self._seen or not settle)]
        changed = [
            path
            for path, stamp in now.items()
            if (path not in self._read or self._read[path].stamp != stamp)
            and (self._seen.get(path) == stamp or not settle)
        ]
        self._seen = now
        for path in gone:
            del self._read[path]
        for path in changed:
            loaded = read(path, now[path], self.kinds, self.texts.get(path))
            before = self._read.get(path)
            self._read[path] = loaded.with_lost(before.resolved(self.kinds)) if loaded.errors and before else loaded
        kustomizations = list(chain.from_iterable(loaded.kustomizations for loaded in self._read.values()))
        patches = left_out(map(str, self._read), kustomizations)
        self.files = {path: loaded for path, loaded in self._read.items() if str(path) not in patches}
        return bool(gone or changed or had_error or self.absent != had_absent)


def _is_below(path: Path, roots: Iterable[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _below(folder: Path) -> Iterator[Path]:
    def refused(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise unreadable(Path(error.filename), error) from error

    return (path for path in files_below(folder, refused, hidden=".") if path.name.endswith(SUFFIXES))
