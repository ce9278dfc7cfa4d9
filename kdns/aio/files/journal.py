"""The journal of `--data DIR`: the store's commits in an SQLite file.

A commit is queued, and a thread writes all queued commits in one transaction (WAL, synchronous=FULL: it is on disk when
the transaction ends). HTTP responses to writers, readers and watchers wait for `durable()`, so a crash loses nothing
that a client has seen.

While the disk fails, or the file is deleted or replaced, requests get 500, nothing new is committed, and the queued
commits are retried each second. A write that was answered with 500 may therefore take effect later, like one whose
response was lost.

After a crash the revision starts above all revisions that were handed out (a reserved block is skipped), and watches
from older ones get 410 Gone.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import IO

import msgspec

from kdns import logs
from kdns.aio.files import sqlite
from kdns.aio.files.sqlite import transaction
from kdns.controlplane.meta.errors import internal
from kdns.controlplane.meta.kinds import KINDS
from kdns.controlplane.storage.watch import Commit, Version

RETRY_S = 1.0
_HERE = "resource = ? AND namespace = ? AND name = ?"
_ROWS = 190
"""Rows of one statement: five values each, fewer than any SQLite allows (999)."""

_RESERVED_REVISIONS = 100_000
_NOTE_REVISION = "UPDATE facts SET value = ? WHERE name = 'revision'"
_KINDS = {f"{kind.plural}.{kind.group}": kind for kind in KINDS}

log = logs.get(__name__)


class Journal:
    """The open journal. `revision` and `objects` are those of the file; `objects` is empty after the first `append`.

    `append` is the `persist` of Store, `durable` is for the REST server.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: IO[str]) -> None:
        self.path = path
        self._connection, self._lock = connection, lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kdns-sqlite")
        self._queue: list[Commit] = []
        self._flush: asyncio.Task[None] | None = None
        self._queued: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        facts: dict[str, int] = dict(connection.execute("SELECT name, value FROM facts"))
        self.revision = facts["revision"]
        self.objects: tuple[Version, ...] = tuple(_objects(connection))
        self._latest = self.revision
        self._reserved = self._reserve(self.revision)
        self._identities = sqlite.identities(path)

    def append(self, commit: Commit) -> None:
        """Queue a commit; 500 while earlier ones cannot be written. Needs a running event loop."""
        self._refuse_failed()
        loop = asyncio.get_running_loop()
        self.objects = ()
        self._queue.append(commit)
        if self._queued is None:
            self._queued = loop.create_future()
        if self._flush is None or self._flush.done():
            self._flush = loop.create_task(self._write_all())

    async def durable(self) -> None:
        """Return when all appended commits are on disk; 500 while they cannot be written."""
        batch = self._queued or self._writing
        if batch:
            await asyncio.shield(batch)
        self._refuse_failed()

    async def close(self) -> None:
        """Write the queued commits and the exact revision, and close the file."""
        if self._retry:
            self._retry.cancel()
            self._flush = asyncio.get_running_loop().create_task(self._write_all())
        if self._flush:
            await self._flush
        if self._retry:
            self._retry.cancel()
        self._thread.shutdown()
        if self._failure:
            log.warning("journal closed with unwritten commits", path=str(self.path), writes=len(self._queue))
        else:
            self._connection.execute(_NOTE_REVISION, (self._latest,))
        self._connection.close()
        self._lock.close()

    def _refuse_failed(self) -> None:
        if self._failure:
            raise internal(f"cannot write {self.path}: {self._failure}")

    async def _write_all(self) -> None:
        """Write until the queue is empty or the disk fails; both wake all waiters."""
        loop = asyncio.get_running_loop()
        self._retry = None
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                self._writing, self._queued = self._queued, None
                try:
                    await loop.run_in_executor(self._thread, self._write, batch)
                except BaseException:
                    self._queue = batch + self._queue
                    raise
                self._wake(self._writing)
                self._writing = None
                if self._failure:
                    self._failure = None
                    log.warning("journal written again", path=str(self.path))
        except Exception as error:  # noqa: BLE001 - no waiter may wait for ever, or take a failed write for done
            if self._failure is None:
                log.warning("journal cannot be written, retried each second", path=str(self.path), reason=str(error))
            self._failure = error
            self._retry = loop.call_later(RETRY_S, self._try_again)
        finally:
            self._wake(self._writing)
            self._wake(self._queued)
            self._writing = self._queued = None

    def _wake(self, batch: asyncio.Future[None] | None) -> None:
        if batch and not batch.done():
            batch.set_result(None)

    def _try_again(self) -> None:
        self._flush = asyncio.get_running_loop().create_task(self._write_all())

    def _write(self, batch: list[Commit]) -> None:
        latest, reserved = batch[-1].revision, self._reserved
        last = {(f"{commit.kind.plural}.{commit.kind.group}", *commit.key): commit for commit in batch}
        kept = [(*where, commit.revision, commit.new.encoded) for where, commit in last.items() if commit.new]
        with transaction(self._connection):
            self._execute_many("INSERT OR REPLACE INTO objects VALUES ", ", ", "(?, ?, ?, ?, ?)", kept)
            gone = [where for where, commit in last.items() if commit.new is None]
            self._execute_many("DELETE FROM objects WHERE ", " OR ", _HERE, gone)
            if latest + _RESERVED_REVISIONS // 2 > reserved:
                reserved = self._reserve(latest)
        self._check_present()
        self._latest, self._reserved = latest, reserved

    def _check_present(self) -> None:
        """OSError where what was written cannot be found by a restart: SQLite goes on writing to deleted files."""
        try:
            is_present = sqlite.identities(self.path) == self._identities
        except FileNotFoundError:
            is_present = False
        if not is_present:
            raise OSError("it, or its -wal file, was deleted or replaced by another; put both back")

    def _execute_many(self, statement: str, between: str, each: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Execute a statement for many rows at a time.

        After each statement this thread may wait for the interpreter's switch interval, 5 ms, while the loop is busy.
        """
        for start in range(0, len(rows), _ROWS):
            piece = rows[start : start + _ROWS]
            self._connection.execute(statement + between.join([each] * len(piece)), [*chain.from_iterable(piece)])

    def _reserve(self, latest: int) -> int:
        """Store the revision to start from after a crash: above all revisions handed out until the next reservation."""
        reserved = latest + _RESERVED_REVISIONS
        self._connection.execute(_NOTE_REVISION, (reserved,))
        return reserved


def open_journal(directory: Path) -> Journal:
    """The journal of a data directory, created when absent.

    InputError for a directory in use by another process, a file that is not kdns's, newer than this kdns, or damaged.
    """
    path, connection, lock = sqlite.opened(directory)
    try:
        return Journal(path, connection, lock)
    except (sqlite3.Error, msgspec.DecodeError, LookupError, TypeError) as error:
        connection.close()
        lock.close()
        raise sqlite.unusable(path, error) from error


class _Metadata(msgspec.Struct):
    name: str


class _Body(msgspec.Struct):
    """The least that every object has. Decoding it finds a body that is no JSON object, without building the object."""

    metadata: _Metadata


def _objects(connection: sqlite3.Connection) -> Iterator[Version]:
    check = msgspec.json.Decoder(_Body).decode
    for resource, namespace, name, revision, body in connection.execute("SELECT * FROM objects"):
        check(body)
        kind = _KINDS.get(resource)
        if kind:
            yield Version(kind, (namespace, name), revision, None, body)
