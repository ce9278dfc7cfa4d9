"""The SQLite file of a data directory, and its lock.

Files of another layout, foreign and damaged ones are left as they are, and the error names the remedy.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import kdns
from kdns import logs
from kdns.errors import InputError

log = logs.get(__name__)

FILE, LOCK = "kdns.sqlite", "kdns.lock"
APPLICATION_ID: Final = 0x6B646E73
"""`kdns` in ASCII: the application_id in the header of the SQLite file."""

_COMMITS = """
CREATE TABLE commits (
    revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, body BLOB
)
"""
"""The history, and below its floor the latest version of each object. A deletion has no body."""

_FLOORS = "CREATE TABLE floors (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID"
"""The newest dropped commit of each resource. Without a row it is fact `floor`: the history's beginning."""

_FACTS = "CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
_WRITER = "CREATE TABLE writer (version TEXT NOT NULL)"
_STORAGE_ERRORS: Final = frozenset({"SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PERM"})
"""SQLite's errors of the file system rather than of the file."""

_LOCK_ERRORS: Final = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"})
"""SQLite's errors of another program's lock, and of a file system without locks."""


LAYOUT: Final = 3
_PID_BYTES: Final = 20


class Lock:
    """The lock on a data directory; its file names the process that holds it."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError, or InputError if another process has the lock."""
        self._descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._descriptor, f"{os.getpid():<{_PID_BYTES}}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(self._descriptor, _PID_BYTES, 0).decode(errors="replace").strip() or "unknown"
            self.close()
            raise InputError(f"the data directory {directory} is in use by another kdns (process {holder})") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._descriptor)


def opened(directory: Path, start: int) -> tuple[Path, sqlite3.Connection, Lock]:
    """The data directory's file, checked, with the lock on it held; both are created when absent.

    `start` is the revision of a new file. The connection is in autocommit mode: transactions are explicit. Raises
    InputError for a directory in use by another process and for a file that cannot be used.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        was_used = (directory / LOCK).exists()
        lock = Lock(directory)
    except OSError as error:
        raise InputError(f"--data {directory}: cannot be used: {error.strerror}") from error
    path = directory / FILE
    try:
        if not path.exists():
            _make(path, start)
            if was_used:
                log.warning("data file missing: starting empty", path=str(path))
        connection = _connected(path)
    except OSError as error:
        lock.close()
        raise InputError(f"--data {directory}: cannot be used: {error.strerror}") from error
    except (sqlite3.Error, LookupError, TypeError) as error:
        lock.close()
        raise unusable(path, error) from error
    except InputError:
        lock.close()
        raise
    _restrict(path)
    return path, connection, lock


def _restrict(path: Path) -> None:
    """Only the owner may read the files, since they hold Secrets. Older releases created them readable by all."""
    for file in (path, path.with_name(f"{FILE}-wal"), path.with_name(f"{FILE}-shm")):
        with suppress(PermissionError, FileNotFoundError):
            file.chmod(0o600)


def unusable(path: Path, error: Exception) -> InputError:
    """The error names the remedy."""
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    if name in _LOCK_ERRORS:
        return InputError(
            f"cannot lock {path}: {error}; end the program that uses it, or choose a file system that has locks"
        )
    if name in _STORAGE_ERRORS:
        return InputError(f"cannot use {path}: {error}; check the disk, its free space and who may write there")
    return InputError(
        f"{path} is damaged or not an SQLite file ({error}); move it away to start empty, or restore a copy"
    )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Runs one transaction: on disk when it ends, rolled back on an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk may have ended it
            connection.execute("ROLLBACK")
        raise


def _make(path: Path, start: int) -> None:
    """Creates the file atomically, so an empty file means damage."""
    if (wal := path.with_name(f"{FILE}-wal")).exists():
        raise InputError(
            f"{path} is missing, but its {wal.name} is there; restore both, or move it away to start empty"
        )
    new = path.with_name(f"{FILE}.new")
    for stale in (new, path.with_name(f"{FILE}.new-journal")):
        stale.unlink(missing_ok=True)
    new.touch(mode=0o600)
    with closing(sqlite3.connect(new, isolation_level=None)) as connection, transaction(connection):
        _create(connection, start)
    new.replace(path)


def _connected(path: Path) -> sqlite3.Connection:
    if path.stat().st_size == 0:
        raise InputError(f"{path} is damaged: it has 0 bytes; restore a copy, or move it away to start empty")
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _check(path, connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with transaction(connection):
            connection.execute("DELETE FROM writer")
            connection.execute("INSERT INTO writer VALUES (?)", (kdns.__version__,))
    except BaseException:
        connection.close()
        raise
    return connection


def _create(connection: sqlite3.Connection, start: int) -> None:
    for statement in (_FACTS, _COMMITS, _FLOORS, _WRITER, f"PRAGMA application_id = {APPLICATION_ID}"):
        connection.execute(statement)
    connection.execute("INSERT INTO facts VALUES ('schema', ?), ('floor', ?)", (LAYOUT, start))


def latest(connection: sqlite3.Connection) -> int:
    """The newest revision of the file: the newest commit of a kind is never dropped."""
    (revision,) = connection.execute(
        "SELECT max(revision) FROM (SELECT max(revision) AS revision FROM commits UNION ALL"
        " SELECT value FROM facts WHERE name = 'floor')"
    ).fetchone()
    return int(revision)


def _check(path: Path, connection: sqlite3.Connection) -> None:
    """Raises InputError for a foreign or damaged file and for one of another layout."""
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    if mark != APPLICATION_ID:
        raise InputError(f"{path} is an SQLite file, but not kdns's; choose another data directory")
    (layout,) = connection.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone()
    if layout != LAYOUT:
        raise InputError(
            f"{path} has format {layout}, this kdns {kdns.__version__} reads format {LAYOUT}; use the kdns that wrote "
            f"it{_writer(connection)}, or move it away and apply its objects again"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise InputError(f"{path} is damaged ({verdict}); restore a copy, or move it away to start empty")


def _writer(connection: sqlite3.Connection) -> str:
    try:
        (version,) = connection.execute("SELECT version FROM writer").fetchone()
    except (sqlite3.Error, TypeError):
        return ""
    return f" ({version})"
