"""`--data DIR`: the store's commits in one SQLite file, and the lock that keeps a second process out.

A commit is queued when it happens and written by a thread; all that queue up meanwhile make one transaction (WAL,
synchronous=FULL: on disk when it returns). A write is answered only after `durable()`, so no crash takes back
what was acknowledged.

Differs: unlike with etcd, a watcher may see a write some milliseconds before it is on disk. After a crash the revision
therefore starts beyond all that was handed out (a reserved block is skipped), and older ones are 410.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from kdns.controlplane.kinds import KINDS
from kdns.controlplane.status import internal
from kdns.controlplane.watch import Commit, Stored
from kdns.errors import InputError

FILE, LOCK = "kdns.sqlite", "kdns.lock"
APPLICATION_ID = 0x6B646E73
"""`kdns` in ASCII: SQLite's own mark of whose file it is."""

SCHEMA_VERSION = 1
_RESERVED_REVISIONS = 100_000

_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
"""
_NOTE_REVISION = "UPDATE facts SET value = ? WHERE name = 'revision'"
_KINDS = {f"{kind.plural}.{kind.group}": kind for kind in KINDS}


class Journal:
    """The open file. `revision` and, until the first `append`, `objects` are what it held.

    Give `append` to Store as `persist`, and `durable` to the REST server.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: IO[str]) -> None:
        self.path = path
        self._connection, self._lock = connection, lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kdns-sqlite")
        self._queue: list[Commit] = []
        self._flush: asyncio.Task[None] | None = None
        self._queued: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        facts: dict[str, int] = dict(connection.execute("SELECT name, value FROM facts"))
        self.revision = facts["revision"]
        self.objects: tuple[Stored, ...] = tuple(_objects(connection))
        self._latest = self.revision
        self._reserved = self._reserve(self.revision)

    def append(self, commit: Commit) -> None:
        """Queue a commit; 500 when an earlier one could not be written. Needs a running event loop."""
        if self._failure:
            raise internal(f"cannot write {self.path}: {self._failure}")
        loop = asyncio.get_running_loop()
        self.objects = ()
        self._queue.append(commit)
        if self._queued is None:
            self._queued = loop.create_future()
        if self._flush is None or self._flush.done():
            self._flush = loop.create_task(self._write_all())

    async def durable(self) -> None:
        """Return when everything appended so far is on disk; 500 when it cannot be."""
        batch = self._queued or self._writing
        if batch:
            await asyncio.shield(batch)
        if self._failure:
            raise internal(f"cannot write {self.path}: {self._failure}")

    async def close(self) -> None:
        """Write what is queued, note the exact revision, let the file go."""
        if self._flush:
            await self._flush
        self._thread.shutdown()
        if not self._failure:
            self._connection.execute(_NOTE_REVISION, (self._latest,))
        self._connection.close()
        self._lock.close()

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue and not self._failure:
            batch, self._queue = self._queue, []
            self._writing, self._queued = self._queued, None
            try:
                await loop.run_in_executor(self._thread, self._write, batch)
            except sqlite3.Error as error:
                self._failure = error
            if self._writing:
                self._writing.set_result(None)
                self._writing = None
        if self._queued:
            self._queued.set_result(None)
            self._queued = None

    def _write(self, batch: list[Commit]) -> None:
        latest = batch[-1].revision
        with transaction(self._connection):
            for commit in batch:
                where = (f"{commit.kind.plural}.{commit.kind.group}", *commit.key)
                if commit.new is None:
                    self._connection.execute(
                        "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", where
                    )
                else:
                    row = (*where, commit.revision, commit.new.encoded)
                    self._connection.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", row)
            if latest + _RESERVED_REVISIONS // 2 > self._reserved:
                self._reserved = self._reserve(latest)
        self._latest = latest

    def _reserve(self, latest: int) -> int:
        """Note where to start after a crash: beyond every revision handed out until the next note."""
        reserved = latest + _RESERVED_REVISIONS
        self._connection.execute(_NOTE_REVISION, (reserved,))
        return reserved


def open_journal(directory: Path) -> Journal:
    """The journal of a data directory, created when absent.

    InputError for a directory in use by another process, a file that is not kdns's, newer than this kdns, or damaged.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = _locked(directory)
    except OSError as error:
        raise InputError(f"cannot use the data directory {directory}: {error.strerror}") from error
    path = directory / FILE
    try:
        connection = _connected(path)
        return Journal(path, connection, lock)
    except (sqlite3.Error, msgspec.DecodeError, LookupError, TypeError) as error:
        lock.close()
        raise InputError(
            f"{path} is damaged or no SQLite file ({error}); move it away to start empty, or restore a copy"
        ) from error
    except InputError:
        lock.close()
        raise


def _locked(directory: Path) -> IO[str]:
    lock = (directory / LOCK).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise InputError(f"the data directory {directory} is in use by another kdns (process {holder})") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _connected(path: Path) -> sqlite3.Connection:
    """The checked and prepared database. Autocommit: transactions are explicit."""
    is_new = not path.exists() or path.stat().st_size == 0
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        if not is_new:
            _check(path, connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if is_new:
            with transaction(connection):
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute("INSERT INTO facts VALUES ('schema', ?), ('revision', 1)", (SCHEMA_VERSION,))
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(path: Path, connection: sqlite3.Connection) -> None:
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    if mark != APPLICATION_ID:
        raise InputError(f"{path} is an SQLite file, but not kdns's; choose another data directory")
    (schema,) = connection.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone()
    if schema != SCHEMA_VERSION:
        raise InputError(
            f"{path} has format {schema}, this kdns reads format {SCHEMA_VERSION}; use the kdns that wrote it"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise InputError(f"{path} is damaged ({verdict}); restore a copy, or move it away to start empty")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, on disk when it ends."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _objects(connection: sqlite3.Connection) -> Iterable[Stored]:
    for resource, namespace, name, revision, body in connection.execute("SELECT * FROM objects"):
        kind = _KINDS.get(resource)
        if kind:
            yield Stored(kind, (namespace, name), revision, msgspec.json.decode(body), body)
