"""`--data DIR`: what was acknowledged is there again, in one process at a time, and only in kdns's own files."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import kdns
from kdns.aio.files import journal as module
from kdns.aio.files.journal import Journal, open_journal
from kdns.aio.files.sqlite import APPLICATION_ID, FILE, LAYOUT, LOCK
from kdns.controlplane.meta.errors import StatusError
from kdns.controlplane.meta.kinds import SERVICE
from kdns.controlplane.storage.store import Store
from kdns.controlplane.storage.watch import Filter
from kdns.errors import InputError


def service(name: str, port: int = 80) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "x"}, "spec": {"ports": [{"port": port}]}}


async def test_a_restart_resumes_objects_and_revision(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    store = Store(journal.objects, revision=journal.revision, persist=journal.append)
    a = store.put(SERVICE, ("x", "a"), service("a"), None)
    store.put(SERVICE, ("x", "b"), service("b"), None)
    store.put(SERVICE, ("x", "a"), service("a", 81), a)
    b = store.get(SERVICE, ("x", "b"))
    assert b
    store.delete(b)
    await journal.durable()
    before = store.page(SERVICE, Filter()).items
    await journal.close()

    again = open_journal(tmp_path)
    restarted = Store(again.objects, revision=again.revision, persist=again.append)
    assert restarted.page(SERVICE, Filter()).items == before
    assert restarted.revision == store.revision
    await again.close()


async def test_a_large_batch_is_written_as_it_ended(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    store = Store(journal.objects, revision=journal.revision, persist=journal.append)
    names = [f"n{number:03}" for number in range(500)]
    made = [store.put(SERVICE, ("x", name), service(name), None) for name in names]
    await journal.durable()
    for number, version in enumerate(made):
        if number % 3:
            store.delete(version)
        else:
            store.put(SERVICE, version.key, service(version.key[1], 81), version)
    store.put(SERVICE, ("x", "n001"), service("n001", 82), None)
    before = store.page(SERVICE, Filter()).items
    await journal.durable()
    await journal.close()
    again = open_journal(tmp_path)
    assert sorted(again.objects, key=lambda version: version.key) == list(before)
    await again.close()


def test_after_a_crash_no_revision_is_given_twice(tmp_path: Path) -> None:
    program = f"""
import asyncio, os
from pathlib import Path
from kdns.aio.files.journal import open_journal
from kdns.controlplane.meta.kinds import SERVICE
from kdns.controlplane.storage.store import Store

async def main():
    journal = open_journal(Path({str(tmp_path)!r}))
    store = Store(journal.objects, revision=journal.revision, persist=journal.append)
    for number in range(20):
        store.put(SERVICE, ("x", f"s{{number}}"), {{"metadata": {{"name": f"s{{number}}"}}}}, None)
        await journal.durable()
    store.put(SERVICE, ("x", "lost"), {{"metadata": {{"name": "lost"}}}}, None)
    print(store.revision, flush=True)
    os._exit(9)

asyncio.run(main())
"""
    crashed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=90)
    assert crashed.returncode == 9, crashed.stderr
    journal = open_journal(tmp_path)
    assert {version.key[1] for version in journal.objects} >= {f"s{number}" for number in range(20)}
    assert journal.revision > int(crashed.stdout)
    asyncio.run(journal.close())


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    with pytest.raises(InputError, match=r"in use by another kdns \(process \d+\)"):
        open_journal(tmp_path)
    await journal.close()
    await open_journal(tmp_path).close()


FORMAT_1 = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
INSERT INTO facts VALUES ('schema', 1), ('revision', 1007);
PRAGMA application_id = 1801743987;
INSERT INTO objects VALUES ('services.', 'x', 'b', 1006, CAST('{"metadata":{"name":"b","namespace":"x"}}' AS BLOB));
INSERT INTO objects VALUES ('services.', 'x', 'a', 1004, CAST('{"metadata":{"name":"a","namespace":"x"}}' AS BLOB));
INSERT INTO objects VALUES ('namespaces.', '', 'x', 2, CAST('{"metadata":{"name":"x"}}' AS BLOB));
INSERT INTO objects VALUES ('lost.example.com', 'x', 'l', 3, CAST('{"metadata":{"name":"l"}}' AS BLOB));
"""
"""A file as kdns 0.1 wrote it first: it is still read."""


def written(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


async def test_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    written(tmp_path / FILE, FORMAT_1)
    for _ in range(2):
        journal = open_journal(tmp_path)
        found = [(version.kind.kind, version.key, version.revision, version.obj) for version in journal.objects]
        assert sorted(found, key=lambda each: each[2]) == [
            ("Namespace", ("", "x"), 2, {"metadata": {"name": "x"}}),
            ("Service", ("x", "a"), 1004, {"metadata": {"name": "a", "namespace": "x"}}),
            ("Service", ("x", "b"), 1006, {"metadata": {"name": "b", "namespace": "x"}}),
        ]
        assert journal.revision == 1007
        await journal.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone() == (LAYOUT,)
        assert connection.execute("SELECT count(*) FROM objects").fetchone() == (4,), "kinds of other versions stay"
        assert connection.execute("SELECT version FROM writer").fetchall() == [(kdns.__version__,)]


def test_an_object_that_is_cut_is_found_in_a_sound_file(tmp_path: Path) -> None:
    written(tmp_path / FILE, FORMAT_1.replace('"namespace":"x"}}', '"names'))
    with pytest.raises(InputError, match="damaged"):
        open_journal(tmp_path)


def test_a_migration_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    written(tmp_path / FILE, FORMAT_1 + "CREATE TABLE writer (version);")
    for _ in range(2):
        with pytest.raises(InputError, match="table writer already exists"):
            open_journal(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM objects").fetchone() == (4,)


def no_database(path: Path) -> None:
    path.write_bytes(b"these are not the bytes of a database" * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()


def newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("CREATE TABLE facts (name, value)")
    connection.execute("INSERT INTO facts VALUES ('schema', 99), ('revision', 1)")
    connection.commit()
    connection.close()


def newest(path: Path) -> None:
    newer(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE writer (version); INSERT INTO writer VALUES ('99.1')")


def headless(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("CREATE TABLE other (x)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_database, "damaged or no SQLite file"),
        (empty, "is damaged: it has 0 bytes; restore a copy, or move it away to start empty"),
        (foreign, "not kdns's"),
        (newer, f"has format 99, this kdns .* reads formats up to {LAYOUT}; use the kdns that wrote it"),
        (newest, r"use the kdns that wrote it \(99\.1\)"),
        (headless, "damaged"),
    ],
)
def test_strange_files_are_refused(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    make(tmp_path / FILE)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(InputError, match=message):
        open_journal(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


async def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    store = Store(journal.objects, revision=journal.revision, persist=journal.append)
    for number in range(200):
        store.put(SERVICE, ("x", f"s{number}"), service(f"s{number}"), None)
    await journal.close()
    raw = bytearray((tmp_path / FILE).read_bytes())
    raw[5000:9000] = b"\xff" * 4000
    (tmp_path / FILE).write_bytes(raw)
    with pytest.raises(InputError, match="damaged"):
        open_journal(tmp_path)


async def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^--data .*: cannot be used: "):
        open_journal(tmp_path / "file" / "below")


FULL, ROOMY = "PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000"
READ_ONLY, WRITABLE = "PRAGMA query_only = 1", "PRAGMA query_only = 0"


@pytest.mark.parametrize(
    ("refuse", "allow", "reason"),
    [(FULL, ROOMY, "database or disk is full"), (READ_ONLY, WRITABLE, "attempt to write a readonly database")],
)
async def test_while_the_disk_refuses_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse: str, allow: str, reason: str
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    journal = open_journal(tmp_path)
    store = Store(journal.objects, revision=journal.revision, persist=journal.append)
    execute = journal._connection.execute  # noqa: SLF001 - the disk
    execute(refuse)
    store.put(SERVICE, ("x", "a"), {**service("a"), "long": "x" * 100_000}, None)
    waiters = [asyncio.create_task(journal.durable()) for _ in range(3)]
    for outcome in await asyncio.gather(*waiters, return_exceptions=True):
        assert isinstance(outcome, StatusError)
        assert (outcome.code, outcome.reason) == (500, "InternalError")
        assert reason in outcome.message
    with pytest.raises(StatusError, match="cannot write"):
        store.put(SERVICE, ("x", "b"), service("b"), None)
    assert store.get(SERVICE, ("x", "b")) is None
    execute(allow)
    await until_durable(journal)
    store.put(SERVICE, ("x", "b"), service("b"), None)
    await journal.durable()
    await journal.close()
    again = open_journal(tmp_path)
    assert [version.key[1] for version in again.objects] == ["a", "b"], "what could not be written at first is, later"
    await again.close()


@pytest.mark.parametrize("names", [[FILE], [f"{FILE}-wal"], [FILE, f"{FILE}-wal", f"{FILE}-shm", LOCK]])
@pytest.mark.parametrize("is_replaced", [False, True])
async def test_files_that_are_deleted_under_a_server_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], is_replaced: bool
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    data, away = tmp_path / "data", tmp_path / "away"
    away.mkdir()
    journal = open_journal(data)
    store = Store(journal.objects, revision=journal.revision, persist=journal.append)
    for name in names:
        (data / name).rename(away / name)
        if is_replaced:
            (data / name).write_bytes(b"")
    store.put(SERVICE, ("x", "a"), service("a"), None)
    with pytest.raises(StatusError, match="deleted or replaced by another; put both back"):
        await journal.durable()
    with pytest.raises(StatusError, match="cannot write"):
        store.put(SERVICE, ("x", "b"), service("b"), None)
    for name in names:
        (away / name).replace(data / name)
    await until_durable(journal)
    await journal.close()
    again = open_journal(data)
    assert [version.key[1] for version in again.objects] == ["a"]
    await again.close()


async def test_a_file_that_is_missing_at_the_start(tmp_path: Path) -> None:
    """It is told, and what is left of it must go first."""
    await open_journal(tmp_path).close()
    (tmp_path / FILE).unlink()
    (tmp_path / f"{FILE}-wal").write_bytes(b"x")
    with pytest.raises(InputError, match=r"is missing, but its kdns\.sqlite-wal is there; restore both"):
        open_journal(tmp_path)
    (tmp_path / f"{FILE}-wal").unlink()
    (tmp_path / f"{FILE}.new").write_bytes(b"of a start that was killed")
    with capture_logs() as logs:
        await open_journal(tmp_path).close()
        await open_journal(tmp_path).close()
    assert [entry["event"] for entry in logs] == ["data file missing: starting empty"]


async def until_durable(journal: Journal) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                return await journal.durable()
            except StatusError:
                await asyncio.sleep(0.01)


async def test_any_failure_reaches_the_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tmp_path)
    store = Store(journal.objects, revision=journal.revision, persist=journal.append)

    def broken(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(journal, "_write", broken)
    store.put(SERVICE, ("x", "a"), service("a"), None)
    async with asyncio.timeout(60):
        with pytest.raises(StatusError, match="cannot write"):
            await journal.durable()
        await journal.close()


def test_a_full_disk_at_start_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(InputError, match="unable to open database file; check the disk"):
        open_journal(tmp_path)


async def test_nobody_else_may_read_what_is_kept(tmp_path: Path) -> None:
    """Also after an older kdns: its files become the owner's alone, the log of SQLite too."""
    folder = tmp_path / "new"
    for _ in range(2):
        journal = open_journal(folder)
        found = {each.name: each.stat().st_mode & 0o077 for each in folder.iterdir() if each.name != "kdns.lock"}
        assert set(found) >= {"kdns.sqlite", "kdns.sqlite-wal"}
        assert set(found.values()) == {0}
        await journal.close()
        (folder / "kdns.sqlite").chmod(0o644)
    assert folder.stat().st_mode & 0o077 == 0
