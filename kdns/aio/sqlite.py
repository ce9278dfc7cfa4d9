"""`--data DIR`: the store's commits in one SQLite file.

A commit is queued when it happens and written by a thread; all that queue up meanwhile make one transaction (WAL,
synchronous=FULL: on disk when it returns). Whoever writes, reads or watches over HTTP is answered only after
`durable()`: what anybody has seen is on disk, and no crash takes it back.

While the disk refuses, so does the API: writers, readers and watchers are told, nothing more is committed, and what was
is tried again each second. A write that was refused so may still be made later, like one whose answer got lost.

After a crash the revision starts beyond all that was handed out (a reserved block is skipped), and older ones are 410.
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
from kdns.aio import sqlite_file
from kdns.aio.sqlite_file import transaction
from kdns.controlplane.kinds import KINDS
from kdns.controlplane.status import internal
from kdns.controlplane.watch import Commit, Stored

RETRY_S = 1.0
_HERE = "resource = ? AND namespace = ? AND name = ?"
_ROWS = 190
"""Rows of one statement: five values each, fewer than any SQLite allows (999)."""

_RESERVED_REVISIONS = 100_000
_NOTE_REVISION = "UPDATE facts SET value = ? WHERE name = 'revision'"
_KINDS = {f"{kind.plural}.{kind.group}": kind for kind in KINDS}

log = logs.get(__name__)


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
        self._retry: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        facts: dict[str, int] = dict(connection.execute("SELECT name, value FROM facts"))
        self.revision = facts["revision"]
        self.objects: tuple[Stored, ...] = tuple(_objects(connection))
        self._latest = self.revision
        self._reserved = self._reserve(self.revision)

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
        """Return when everything appended so far is on disk; 500 while it cannot be."""
        batch = self._queued or self._writing
        if batch:
            await asyncio.shield(batch)
        self._refuse_failed()

    async def close(self) -> None:
        """Write what is queued, note the exact revision, let the file go."""
        if self._retry:
            self._retry.cancel()
            self._flush = asyncio.get_running_loop().create_task(self._write_all())
        if self._flush:
            await self._flush
        if self._retry:
            self._retry.cancel()
        self._thread.shutdown()
        if self._failure:
            log.warning("could not write to the end", path=str(self.path), writes=len(self._queue))
        else:
            self._connection.execute(_NOTE_REVISION, (self._latest,))
        self._connection.close()
        self._lock.close()

    def _refuse_failed(self) -> None:
        if self._failure:
            raise internal(f"cannot write {self.path}: {self._failure}")

    async def _write_all(self) -> None:
        """Write until nothing is queued or the disk refuses; whoever waits hears of it either way."""
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
                    log.warning("can write again", path=str(self.path))
        except Exception as error:  # noqa: BLE001 - whatever it was: nobody may wait for ever or believe it was written
            if self._failure is None:
                log.warning("cannot write, trying again each second", path=str(self.path), reason=str(error))
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
        self._latest, self._reserved = latest, reserved

    def _execute_many(self, statement: str, between: str, each: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Few statements with many rows each, since a busy event loop takes 5 ms to let this thread go on after each.

        That is the interpreter's switch interval.
        """
        for start in range(0, len(rows), _ROWS):
            piece = rows[start : start + _ROWS]
            self._connection.execute(statement + between.join([each] * len(piece)), [*chain.from_iterable(piece)])

    def _reserve(self, latest: int) -> int:
        """Note where to start after a crash: beyond every revision handed out until the next note."""
        reserved = latest + _RESERVED_REVISIONS
        self._connection.execute(_NOTE_REVISION, (reserved,))
        return reserved


def open_journal(directory: Path) -> Journal:
    """The journal of a data directory, created when absent.

    InputError for a directory in use by another process, a file that is not kdns's, newer than this kdns, or damaged.
    """
    path, connection, lock = sqlite_file.opened(directory)
    try:
        return Journal(path, connection, lock)
    except (sqlite3.Error, msgspec.DecodeError, LookupError, TypeError) as error:
        connection.close()
        lock.close()
        raise sqlite_file.unusable(path, error) from error


class _Metadata(msgspec.Struct):
    name: str


class _Body(msgspec.Struct):
    """What can be said of any object without making all of it; a body that is no JSON object is found on the way."""

    metadata: _Metadata


def _objects(connection: sqlite3.Connection) -> Iterator[Stored]:
    check = msgspec.json.Decoder(_Body).decode
    for resource, namespace, name, revision, body in connection.execute("SELECT * FROM objects"):
        check(body)
        kind = _KINDS.get(resource)
        if kind:
            yield Stored(kind, (namespace, name), revision, None, body)
