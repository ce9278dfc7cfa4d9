"""`--data DIR`: what was acknowledged is there again, in one process at a time, and only in kdns's own files."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kdns.aio.sqlite import APPLICATION_ID, FILE, open_journal
from kdns.controlplane.kinds import SERVICE
from kdns.controlplane.status import StatusError
from kdns.controlplane.store import Store
from kdns.controlplane.watch import Filter
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


def test_after_a_crash_no_revision_is_given_twice(tmp_path: Path) -> None:
    program = f"""
import asyncio, os
from pathlib import Path
from kdns.aio.sqlite import open_journal
from kdns.controlplane.kinds import SERVICE
from kdns.controlplane.store import Store

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
    crashed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
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


def no_database(path: Path) -> None:
    path.write_bytes(b"these are not the bytes of a database" * 100)


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
        (foreign, "not kdns's"),
        (newer, "has format 99, this kdns reads format 1"),
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
    with pytest.raises(InputError, match="cannot use the data directory"):
        open_journal(tmp_path / "file" / "below")


async def test_after_a_failed_write_nothing_is_acknowledged(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    store = Store(journal.objects, revision=journal.revision, persist=journal.append)
    journal._connection.execute("DROP TABLE objects")  # noqa: SLF001 - the disk that fails
    store.put(SERVICE, ("x", "a"), service("a"), None)
    with pytest.raises(StatusError) as caught:
        await journal.durable()
    assert caught.value.code == 500
    with pytest.raises(StatusError):
        store.put(SERVICE, ("x", "b"), service("b"), None)
    assert store.get(SERVICE, ("x", "b")) is None
    await journal.close()
