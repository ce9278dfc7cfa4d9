"""The journal of `--data DIR`: the store's commits in an SQLite file, one row each, keyed by revision.

A commit is queued, and a thread writes all queued commits in one transaction (WAL, synchronous=FULL: it is on disk when
the transaction ends). The same transaction deletes the rows of forgotten commits, so the file has what the store has,
and a restart resumes with its objects, history and revision.

HTTP responses to writers, readers and watchers wait for `durable()`. So a crash loses nothing that a client has seen,
and no revision that a client knows is used again.

While the disk fails, requests get 500, nothing new is committed, and the queued commits are retried each second. A
write that was answered with 500 may therefore take effect later, like one whose response was lost.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import msgspec

from kdns import logs
from kdns.controlplane.apimachinery.errors import internal
from kdns.controlplane.apimachinery.kinds import Kind, Kinds
from kdns.controlplane.storage.io import sqlite
from kdns.controlplane.storage.io.sqlite import Lock, transaction
from kdns.controlplane.storage.store import Commit, Store, StoredObject

RETRY_S = 1.0
_ROWS = 190
"""Rows of one statement: at most five values each, fewer than any SQLite allows (999)."""

log = logs.get(__name__)


class Journal:
    """`revision`, `floors`, `objects` and `history` are those of the file, until the first `append` empties the last
    two.

    `durable` is for the REST server.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: Lock, kinds: Kinds) -> None:
        self.path = path
        self._connection, self._lock = connection, lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kdns-sqlite")
        self._queue: list[Commit] = []
        self._forgotten: list[Commit] = []
        self._flush: asyncio.Task[None] | None = None
        self._queued: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        self.revision = sqlite.latest(connection)
        _define_kinds(connection, kinds)
        self.floors = _floors(connection, kinds)
        self.objects, self.history = _objects_and_history(connection, kinds, self.floors)

    def store(self) -> Store:
        return Store(
            self.objects,
            revision=self.revision,
            history=self.history,
            floors=self.floors,
            persist=self.append,
            forget=self.forget,
        )

    def append(self, commit: Commit) -> None:
        """Queues a commit. Raises 500 while earlier ones cannot be written. Needs a running event loop."""
        self._refuse_failed()
        loop = asyncio.get_running_loop()
        self.objects, self.history = (), ()
        self._queue.append(commit)
        if self._queued is None:
            self._queued = loop.create_future()
        if self._flush is None or self._flush.done():
            self._flush = loop.create_task(self._write_all())

    def forget(self, commit: Commit) -> None:
        """Queues the deletion of the rows that only this commit needs, which goes to disk with later commits."""
        self._forgotten.append(commit)

    async def durable(self) -> None:
        """Waits until all appended commits are on disk. Raises 500 while they cannot be written."""
        batch = self._queued or self._writing
        if batch:
            await asyncio.shield(batch)
        self._refuse_failed()

    async def close(self) -> None:
        if self._retry:
            self._retry.cancel()
            self._flush = asyncio.get_running_loop().create_task(self._write_all())
        if self._flush:
            await self._flush
        if self._retry:
            self._retry.cancel()
        self._thread.shutdown()
        if self._failure:
            log.warning("journal closed, commits lost", path=str(self.path), writes=len(self._queue))
        self._connection.close()
        self._lock.close()

    def _refuse_failed(self) -> None:
        if self._failure:
            raise internal(f"cannot write {self.path}: {self._failure}")

    async def _write_all(self) -> None:
        """Writes until the queue is empty or the disk fails; both wake all waiters."""
        loop = asyncio.get_running_loop()
        self._retry = None
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                forgotten, self._forgotten = self._forgotten, []
                self._writing, self._queued = self._queued, None
                try:
                    await loop.run_in_executor(self._thread, self._write, batch, forgotten)
                except BaseException:
                    self._queue = batch + self._queue
                    self._forgotten = forgotten + self._forgotten
                    raise
                self._wake(self._writing)
                self._writing = None
                if self._failure:
                    self._failure = None
                    log.warning("journal write recovered", path=str(self.path))
        except Exception as error:  # noqa: BLE001 - no waiter may wait for ever, or take a failed write for done
            if self._failure is None:
                log.warning("journal write failed, retrying", path=str(self.path), reason=str(error))
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

    def _write(self, batch: list[Commit], forgotten: list[Commit]) -> None:
        rows = [
            (commit.revision, _resource(commit.kind), *commit.key, commit.new.encoded if commit.new else None)
            for commit in batch
        ]
        replaced = [(commit.old.revision,) for commit in forgotten if commit.old]
        deletions = [(commit.revision,) for commit in forgotten if commit.new is None]
        floors = {_resource(commit.kind): commit.revision for commit in forgotten}
        with transaction(self._connection):
            self._execute_many("INSERT OR REPLACE INTO commits VALUES ", "(?, ?, ?, ?, ?)", rows)
            self._execute_many("DELETE FROM commits WHERE revision IN (VALUES ", "(?)", replaced + deletions, ")")
            self._execute_many("INSERT OR REPLACE INTO floors VALUES ", "(?, ?)", list(floors.items()))

    def _execute_many(self, statement: str, row: str, rows: Sequence[tuple[object, ...]], end: str = "") -> None:
        """Executes one statement for many rows; `row` has the placeholders of one.

        After a statement this thread may wait for the interpreter's switch interval, 5 ms, while the loop is busy.
        """
        for start in range(0, len(rows), _ROWS):
            piece = rows[start : start + _ROWS]
            values = ", ".join([row] * len(piece))
            self._connection.execute(statement + values + end, [*chain.from_iterable(piece)])


def clock_revision() -> int:
    """The first revision of a store without history: the clock in microseconds.

    A client that watched an earlier store must not find its revision again. A write takes longer than a microsecond, so
    no earlier store has reached the clock.
    """
    return time.time_ns() // 1000


def open_journal(directory: Path, kinds: Kinds) -> Journal:
    """Opens or creates the journal of a data directory, with the objects of these kinds.

    Raises InputError for a directory in use by another process, and for a foreign, newer or damaged file.
    """
    path, connection, lock = sqlite.opened(directory, clock_revision())
    try:
        return Journal(path, connection, lock, kinds)
    except (sqlite3.Error, msgspec.DecodeError, LookupError, TypeError) as error:
        connection.close()
        lock.close()
        raise sqlite.unusable(path, error) from error


class _Metadata(msgspec.Struct):
    name: str


class _Body(msgspec.Struct):
    """The minimum of every object: detects a body that is not a JSON object without building it."""

    metadata: _Metadata


def _resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}"


def _define_kinds(connection: sqlite3.Connection, kinds: Kinds) -> None:
    """Adds the kinds that stored objects define, before the objects of these kinds are read."""
    if kinds.definer is None:
        return
    kind, define = kinds.definer
    rows = connection.execute("SELECT name, body FROM commits WHERE resource = ? ORDER BY revision", (_resource(kind),))
    for body in dict(rows).values():
        if body is not None:
            define(msgspec.json.decode(body))


def _floors(connection: sqlite3.Connection, kinds: Kinds) -> dict[Kind, int]:
    (start,) = connection.execute("SELECT value FROM facts WHERE name = 'floor'").fetchone()
    floors: dict[str, int] = dict(connection.execute("SELECT resource, revision FROM floors"))
    return {kind: max(start, floors.get(_resource(kind), 0)) for kind in kinds.stored}


def _objects_and_history(
    connection: sqlite3.Connection, kinds: Kinds, floors: Mapping[Kind, int]
) -> tuple[tuple[StoredObject, ...], tuple[Commit, ...]]:
    """The latest versions of the objects, and the commits above the floors, both by revision.

    Rows of unknown kinds stay in the file. Raises LookupError for a deletion of a missing object, since a row is lost.
    """
    check = msgspec.json.Decoder(_Body).decode
    latest: dict[tuple[str, str, str], StoredObject] = {}
    history: list[Commit] = []
    for revision, resource, namespace, name, body in connection.execute("SELECT * FROM commits ORDER BY revision"):
        if body is not None:
            check(body)
        if (kind := kinds.by_resource(resource.removesuffix("."))) is None:
            continue
        row_key, new = (resource, namespace, name), None
        old = latest.pop(row_key, None)
        if body is not None:
            new = latest[row_key] = StoredObject(kind, row_key[1:], revision, body)
        elif old is None:
            raise LookupError(f"revision {revision} deletes an object that is missing")
        if revision > floors[kind]:
            history.append(Commit(revision, kind, row_key[1:], old, new))
    return tuple(latest.values()), tuple(history)
