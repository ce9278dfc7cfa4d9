"""The SQLite file of a data directory: its lock, its layout, and the migrations from older layouts.

A new layout is a new row of `_MIGRATIONS`. All migrations of a file run in one transaction, so a crash leaves the old
file. Newer, foreign and damaged files are left as they are, and the error names the remedy.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
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
"""The newest commit of each resource that was dropped. Without a row it is fact `floor`: the history's beginning."""

_FACTS = "CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
_OBJECTS = """
CREATE TABLE objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
)
"""
"""Of layout 2."""

_WRITER = "CREATE TABLE writer (version TEXT NOT NULL)"
_STORAGE_ERRORS: Final = frozenset({"SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PERM"})
"""SQLite's errors of the file system rather than of the file."""

_LOCK_ERRORS: Final = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"})
"""SQLite's errors of another program's lock, and of a file system without locks."""


def _objects_by_rowid(connection: sqlite3.Connection) -> None:
    """Moves bodies out of the primary key's tree: writes take a third of the time, and a third less space."""
    connection.execute("ALTER TABLE objects RENAME TO objects_1")
    connection.execute(_OBJECTS)
    connection.execute("INSERT INTO objects SELECT resource, namespace, name, revision, body FROM objects_1")
    connection.execute("DROP TABLE objects_1")
    connection.execute(_WRITER)


def _commits_by_revision(connection: sqlite3.Connection) -> None:
    """Moves objects to an append-only table; the history begins at the revision of the file."""
    connection.execute(_COMMITS)
    connection.execute("INSERT INTO commits SELECT revision, resource, namespace, name, body FROM objects")
    connection.execute("DROP TABLE objects")
    connection.execute(_FLOORS)
    connection.execute("UPDATE facts SET name = 'floor' WHERE name = 'revision'")


_MIGRATIONS: Final[dict[int, Callable[[sqlite3.Connection], None]]] = {1: _objects_by_rowid, 2: _commits_by_revision}
"""Layout → the migration to the next one."""

_INT64_MAX: Final = (1 << 63) - 1

LAYOUT: Final = max(_MIGRATIONS) + 1
_NOTES_BYTES: Final = 63
"""Three lines of 20 characters."""


class Lock:
    """The lock on a data directory, whose file has notes of the last process with the lock.

    It has a line for the process, for the session, and for the last written revision; None if unknown.
    """

    def __init__(self, directory: Path) -> None:
        """Raises OSError, or InputError if another process has the lock."""
        self._descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            process, self.session, self.revision = _numbers(os.pread(self._descriptor, _NOTES_BYTES, 0))
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.note(self.session, self.revision)
        except BlockingIOError:
            self.close()
            holder = process or "unknown"
            raise InputError(f"the data directory {directory} is in use by another kdns (process {holder})") from None
        except BaseException:
            self.close()
            raise

    def note(self, session: int | None, revision: int | None) -> None:
        """Notes both in place, which a full disk does not keep from it.

        This waits for no disk: a process that is killed leaves the revision that it wrote last, a machine that loses
        power perhaps an earlier one.
        """
        self.session, self.revision = session, revision
        lines = (str(os.getpid()), *(str(each or "-") for each in (session, revision)))
        os.pwrite(self._descriptor, "".join(f"{line:<20}\n" for line in lines).encode(), 0)

    def close(self) -> None:
        """Releases the lock."""
        os.close(self._descriptor)


def _numbers(notes: bytes) -> list[int | None]:
    """Returns the numbers of three lines; None for a line that is missing or has another text."""
    lines = [*notes.split(b"\n"), b"", b"", b""][:3]
    numbers = [int(line) if line.strip().isdigit() else None for line in lines]
    return [number if number is not None and number < _INT64_MAX else None for number in numbers]


def opened(directory: Path, start: int) -> tuple[Path, sqlite3.Connection, Lock]:
    """Returns the file of a data directory, checked and in the current layout, and the lock that is held on it.

    `start` is the revision of a new file and the number of this session, unless the session before has a higher one. A
    copy that was put in the file's place loses its history, because the revisions after the copy was made may have been
    used: it continues at `start`, or at its own revision if that is higher.
    Both are created when absent. The connection is in autocommit mode: transactions are explicit.
    Raises InputError for a directory in use by another process and for a file that cannot be used.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        was_used = (directory / LOCK).exists()
        lock = Lock(directory)
    except OSError as error:
        raise InputError(f"--data {directory}: cannot be used: {error.strerror}") from error
    path, session = directory / FILE, max(start, (lock.session or 0) + 1)
    try:
        if not path.exists():
            _make(path, session)
            if was_used:
                log.warning("data file missing: starting empty", path=str(path))
        connection = _connected(path, lock, session)
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


def identities(path: Path) -> tuple[tuple[int, int], ...]:
    """Returns device and inode of the file and of its write-ahead log. Raises OSError if one is missing."""
    return tuple((stat.st_dev, stat.st_ino) for stat in (path.stat(), path.with_name(f"{FILE}-wal").stat()))


def _restrict(path: Path) -> None:
    """Makes the files readable by their owner only, since they hold Secrets; older versions did not."""
    for each in (path, path.with_name(f"{FILE}-wal"), path.with_name(f"{FILE}-shm")):
        with suppress(PermissionError, FileNotFoundError):
            each.chmod(0o600)


def unusable(path: Path, error: Exception) -> InputError:
    """Returns the error, with its remedy, for a file that cannot be opened or read."""
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
    if (rest := path.with_name(f"{FILE}-wal")).exists():
        raise InputError(
            f"{path} is missing, but its {rest.name} is there; restore both, or move it away to start empty"
        )
    new = path.with_name(f"{FILE}.new")
    for each in (new, path.with_name(f"{FILE}.new-journal")):
        each.unlink(missing_ok=True)
    new.touch(mode=0o600)
    with closing(sqlite3.connect(new, isolation_level=None)) as connection, transaction(connection):
        _create(connection, start)
    new.replace(path)


def _connected(path: Path, lock: Lock, session: int) -> sqlite3.Connection:
    if path.stat().st_size == 0:
        raise InputError(f"{path} is damaged: it has 0 bytes; restore a copy, or move it away to start empty")
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        layout = _checked_layout(path, connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with transaction(connection):
            _migrate(connection, layout)
            _forget_unknown_history(path, connection, lock, session)
            connection.execute("DELETE FROM writer")
            connection.execute("INSERT INTO writer VALUES (?)", (kdns.__version__,))
        lock.note(session, latest(connection))
    except BaseException:
        connection.close()
        raise
    return connection


def _create(connection: sqlite3.Connection, start: int) -> None:
    for statement in (_FACTS, _COMMITS, _FLOORS, _WRITER, f"PRAGMA application_id = {APPLICATION_ID}"):
        connection.execute(statement)
    connection.execute("INSERT INTO facts VALUES ('schema', ?), ('floor', ?)", (LAYOUT, start))


def _forget_unknown_history(path: Path, connection: sqlite3.Connection, lock: Lock, session: int) -> None:
    """Drops the history of a file that is not as the session before left it, and begin it again at this `session`.

    That is a copy, or a file that lost writes, as with its write-ahead log. A start that ended before the session was
    noted leaves it behind the file's.
    """
    facts: dict[str, int] = dict(connection.execute("SELECT name, value FROM facts"))
    inode, revision = path.stat().st_ino & _INT64_MAX, latest(connection)
    is_older = lock.session is None or facts.get("session", lock.session) < lock.session
    is_copy = "session" in facts and (is_older or facts["inode"] != inode)
    lacks_writes = lock.revision is not None and revision < lock.revision
    if is_copy or lacks_writes:
        connection.execute(
            "DELETE FROM commits WHERE body IS NULL"
            " OR revision NOT IN (SELECT max(revision) FROM commits GROUP BY resource, namespace, name)"
        )
        connection.execute("UPDATE facts SET value = ? WHERE name = 'floor'", (max(session, revision),))
        connection.execute("DELETE FROM floors")
    if lacks_writes:
        log.warning(
            "data file lacks acknowledged writes: watches start over",
            path=str(path),
            revision=revision,
            acknowledged=lock.revision,
        )
    elif is_copy:
        log.warning("data file is a copy: watches start over", path=str(path))
    connection.execute("INSERT OR REPLACE INTO facts VALUES ('inode', ?), ('session', ?)", (inode, session))


def latest(connection: sqlite3.Connection) -> int:
    """Returns the newest revision of the file, also of a dropped commit."""
    (revision,) = connection.execute(
        "SELECT max(revision) FROM (SELECT max(revision) AS revision FROM commits UNION ALL"
        " SELECT revision FROM floors UNION ALL SELECT value FROM facts WHERE name = 'floor')"
    ).fetchone()
    return int(revision)


def _migrate(connection: sqlite3.Connection, layout: int) -> None:
    for each in range(layout, LAYOUT):
        _MIGRATIONS[each](connection)
    connection.execute("UPDATE facts SET value = ? WHERE name = 'schema'", (LAYOUT,))


def _checked_layout(path: Path, connection: sqlite3.Connection) -> int:
    """Returns the layout of the file. Raises InputError for a foreign, newer or damaged one."""
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    if mark != APPLICATION_ID:
        raise InputError(f"{path} is an SQLite file, but not kdns's; choose another data directory")
    (layout,) = connection.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone()
    if layout not in {*_MIGRATIONS, LAYOUT}:
        raise InputError(
            f"{path} has format {layout}, this kdns {kdns.__version__} reads formats up to {LAYOUT}; "
            f"use the kdns that wrote it{_writer(connection)}"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise InputError(f"{path} is damaged ({verdict}); restore a copy, or move it away to start empty")
    return int(layout)


def _writer(connection: sqlite3.Connection) -> str:
    try:
        (version,) = connection.execute("SELECT version FROM writer").fetchone()
    except (sqlite3.Error, TypeError):
        return ""
    return f" ({version})"
