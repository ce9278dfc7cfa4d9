"""`--data DIR`: what was acknowledged is there again, in one process at a time, and only in kdns's own files."""

import asyncio
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import widgets
from object_api import Api
from served_kinds import CATALOGUE
from stored_objects import put
from structlog.testing import capture_logs

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import DEFINITION, NAMESPACE, SERVICE, Json
from kdns.controlplane.kinds.served import ServedKinds
from kdns.controlplane.storage.io import journal as module
from kdns.controlplane.storage.io import sqlite
from kdns.controlplane.storage.io.journal import Journal, open_journal
from kdns.controlplane.storage.io.sqlite import APPLICATION_ID, FILE, LAYOUT
from kdns.controlplane.storage.store import Filter, Store
from kdns.errors import InputError


def service(name: str, port: int = 80) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "x"}, "spec": {"ports": [{"port": port}]}}


async def test_a_new_folder_starts_behind_every_revision_of_the_one_before(tmp_path: Path) -> None:
    revisions = []
    for name in ("a", "b"):
        journal = open_journal(tmp_path / name, CATALOGUE)
        store = journal.store()
        for number in range(50):
            put(store, SERVICE, ("x", f"s{number}"), service(f"s{number}"))
        await journal.close()
        revisions.append((store.oldest(SERVICE), store.revision))
    assert revisions[0][1] < revisions[1][0]


KEYS = [(kind, ("x", name)) for kind in (SERVICE, NAMESPACE) for name in "abcd"]


def bounded(journal: Journal) -> Store:
    """The store of a journal with a history of a few commits a kind."""
    return Store(
        journal.objects,
        revision=journal.revision,
        history=journal.history,
        floors=journal.floors,
        persist=journal.append,
        forget=journal.forget,
        history_commits=7,
    )


def view(store: Store, since: int) -> list[object]:
    """What clients see of a store: the events after each revision, and the list at each revision."""
    seen: list[object] = [store.revision]
    for kind in (SERVICE, NAMESPACE):
        seen.append(store.oldest(kind))
        for revision in range(since, store.revision + 1):
            if revision < store.oldest(kind):
                with pytest.raises(StatusError, match="too old"):
                    store.watch(kind, Filter(), since=revision)
                continue
            events = store.watch(kind, Filter(), since=revision).take()
            seen.append([(event.type, event.stored) for event in events])
            seen.append(store.page(kind, Filter(), revision=revision).items)
    return seen


@pytest.mark.parametrize("seed", range(5))
async def test_a_restart_resumes_history(tmp_path: Path, seed: int) -> None:
    """Any revision of before is as right, or as expired, as it was; and the file has no row that nothing needs."""
    choose = random.Random(seed)
    journal = open_journal(tmp_path, CATALOGUE)
    store = bounded(journal)
    start = store.revision
    for _ in range(4):
        for _ in range(choose.randrange(15)):
            kind, key = choose.choice(KEYS)
            old = store.get(kind, key)
            if old and choose.random() < 0.4:
                store.delete(old)
            else:
                put(store, kind, key, service(key[1], choose.randrange(9)), old)
            if choose.random() < 0.5:
                await journal.durable()
        before = view(store, start)
        await journal.close()
        journal = open_journal(tmp_path, CATALOGUE)
        needed = {version.revision for version in journal.objects}
        needed |= {commit.revision for commit in journal.history}
        needed |= {commit.old.revision for commit in journal.history if commit.old}
        with closing(sqlite3.connect(tmp_path / FILE)) as connection:
            assert {revision for (revision,) in connection.execute("SELECT revision FROM commits")} == needed
        store = bounded(journal)
        assert view(store, start) == before
    await journal.close()


def test_the_lock_of_another_program_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(path, timeout=0)) as connection:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError) as raised:
            connection.execute("BEGIN IMMEDIATE")
    message = str(sqlite.unusable(path, raised.value))
    assert message.endswith("database is locked; end the program that uses it, or choose a file system that has locks")


async def test_a_large_batch_is_written_as_it_ended(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, CATALOGUE)
    store = journal.store()
    names = [f"n{number:03}" for number in range(500)]
    made = [put(store, SERVICE, ("x", name), service(name)) for name in names]
    await journal.durable()
    for number, version in enumerate(made):
        if number % 3:
            store.delete(version)
        else:
            put(store, SERVICE, version.key, service(version.key[1], 81), version)
    put(store, SERVICE, ("x", "n001"), service("n001", 82))
    before = store.page(SERVICE, Filter()).items
    await journal.durable()
    await journal.close()
    again = open_journal(tmp_path, CATALOGUE)
    assert sorted(again.objects, key=lambda version: version.key) == list(before)
    await again.close()


async def test_each_commit_is_flushed_to_the_disk(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, CATALOGUE)
    full = journal._connection.execute("PRAGMA synchronous").fetchone()  # noqa: SLF001 - a power cut would show it
    await journal.close()
    assert full == (2,)


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, CATALOGUE)
    with pytest.raises(InputError, match=r"in use by another kdns \(process \d+\)"):
        open_journal(tmp_path, CATALOGUE)
    await journal.close()
    await open_journal(tmp_path, CATALOGUE).close()


async def test_a_restored_copy_is_used(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    for name in "ab":
        journal = open_journal(data, CATALOGUE)
        put(journal.store(), SERVICE, ("x", name), service(name))
        await journal.close()
        if name == "a":
            shutil.copytree(data, copy)
    (data / FILE).write_bytes((copy / FILE).read_bytes())
    journal = open_journal(data, CATALOGUE)
    assert [version.key[1] for version in journal.objects] == ["a"]
    await journal.close()


async def test_an_object_that_is_cut_is_found_in_a_sound_file(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, CATALOGUE)
    put(journal.store(), SERVICE, ("x", "a"), service("a"))
    await journal.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("UPDATE commits SET body = substr(body, 1, 20)")
    with pytest.raises(InputError, match="damaged"):
        open_journal(tmp_path, CATALOGUE)


OWN = f"PRAGMA application_id = {APPLICATION_ID};"
FACTS = "CREATE TABLE facts (name, value); INSERT INTO facts VALUES ('schema', {});"
WRITTEN_BY = "CREATE TABLE writer (version); INSERT INTO writer VALUES ('99.1')"
STRANGE: dict[str, tuple[bytes | str, str]] = {
    "no database": (b"these are not the bytes of a database" * 100, "damaged or not an SQLite file"),
    "empty": (b"", "is damaged: it has 0 bytes; restore a copy, or move it away to start empty"),
    "foreign": ("CREATE TABLE t (x)", "not kdns's"),
    "old": (OWN + FACTS.format(2), f"has format 2, .* reads format {LAYOUT}; use the kdns that wrote it, or move"),
    "new": (OWN + FACTS.format(99), "has format 99"),
    "newest": (OWN + FACTS.format(99) + WRITTEN_BY, r"use the kdns that wrote it \(99\.1\)"),
    "headless": (OWN + "CREATE TABLE other (x)", "damaged"),
}


@pytest.mark.parametrize(("made", "message"), STRANGE.values(), ids=STRANGE)
def test_strange_files_are_refused(tmp_path: Path, made: bytes | str, message: str) -> None:
    if isinstance(made, bytes):
        (tmp_path / FILE).write_bytes(made)
    else:
        with closing(sqlite3.connect(tmp_path / FILE)) as connection:
            connection.executescript(made)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(InputError, match=message):
        open_journal(tmp_path, CATALOGUE)
    assert (tmp_path / FILE).read_bytes() == before


async def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, CATALOGUE)
    store = journal.store()
    for number in range(200):
        put(store, SERVICE, ("x", f"s{number}"), service(f"s{number}"))
    await journal.close()
    raw = bytearray((tmp_path / FILE).read_bytes())
    raw[5000:9000] = b"\xff" * 4000
    (tmp_path / FILE).write_bytes(raw)
    with pytest.raises(InputError, match="damaged"):
        open_journal(tmp_path, CATALOGUE)


async def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^--data .*: cannot be used: "):
        open_journal(tmp_path / "file" / "below", CATALOGUE)


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
    journal = open_journal(tmp_path, CATALOGUE)
    store = journal.store()
    execute = journal._connection.execute  # noqa: SLF001 - the disk
    execute(refuse)
    annotations = {"long": "x" * 100_000}
    large = {**service("a"), "metadata": {"name": "a", "namespace": "x", "annotations": annotations}}
    put(store, SERVICE, ("x", "a"), large)
    waiters = [asyncio.create_task(journal.durable()) for _ in range(3)]
    for outcome in await asyncio.gather(*waiters, return_exceptions=True):
        assert isinstance(outcome, StatusError)
        assert (outcome.code, outcome.reason) == (500, "InternalError")
        assert reason in outcome.message
    with pytest.raises(StatusError, match="cannot write"):
        put(store, SERVICE, ("x", "b"), service("b"))
    assert store.get(SERVICE, ("x", "b")) is None
    execute(allow)
    await until_durable(journal)
    put(store, SERVICE, ("x", "b"), service("b"))
    await journal.durable()
    await journal.close()
    again = open_journal(tmp_path, CATALOGUE)
    assert [version.key[1] for version in again.objects] == ["a", "b"], "what could not be written at first is, later"
    await again.close()


async def test_a_file_that_is_missing_at_the_start(tmp_path: Path) -> None:
    """It is told, and what is left of it must go first."""
    await open_journal(tmp_path, CATALOGUE).close()
    (tmp_path / FILE).unlink()
    (tmp_path / f"{FILE}-wal").write_bytes(b"x")
    with pytest.raises(InputError, match=r"is missing, but its kdns\.sqlite-wal is there; restore both"):
        open_journal(tmp_path, CATALOGUE)
    (tmp_path / f"{FILE}-wal").unlink()
    (tmp_path / f"{FILE}.new").write_bytes(b"of a start that was killed")
    with capture_logs() as logs:
        await open_journal(tmp_path, CATALOGUE).close()
        await open_journal(tmp_path, CATALOGUE).close()
    assert [entry["event"] for entry in logs] == ["data file missing: starting empty"]


async def until_durable(journal: Journal) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                return await journal.durable()
            except StatusError:
                await asyncio.sleep(0.01)


async def test_any_failure_reaches_the_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tmp_path, CATALOGUE)
    store = journal.store()

    def broken(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(journal, "_write", broken)
    put(store, SERVICE, ("x", "a"), service("a"))
    async with asyncio.timeout(60):
        with pytest.raises(StatusError, match="cannot write"):
            await journal.durable()
        await journal.close()


def test_a_full_disk_at_start_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(InputError, match="unable to open database file; check the disk"):
        open_journal(tmp_path, CATALOGUE)


async def test_nobody_else_may_read_what_is_kept(tmp_path: Path) -> None:
    """Also after an older kdns: its files become the owner's alone, the log of SQLite too."""
    folder = tmp_path / "new"
    for _ in range(2):
        journal = open_journal(folder, CATALOGUE)
        found = {each.name: each.stat().st_mode & 0o077 for each in folder.iterdir() if each.name != "kdns.lock"}
        assert set(found) >= {"kdns.sqlite", "kdns.sqlite-wal"}
        assert set(found.values()) == {0}
        await journal.close()
        (folder / "kdns.sqlite").chmod(0o644)
    assert folder.stat().st_mode & 0o077 == 0


async def test_a_restart_resumes_the_objects_of_custom_kinds(tmp_path: Path) -> None:
    """Also those whose rows precede the newest one of their definition; those of a deleted one are gone."""
    kinds = ServedKinds()
    journal = open_journal(tmp_path, kinds)
    api = Api(journal.store(), kinds=kinds)
    for plural in ("widgets", "gadgets"):
        name = plural.removesuffix("s").capitalize()
        names: Json = {"plural": plural, "kind": name, "shortNames": [], "categories": []}
        made = api.create(DEFINITION, widgets.definition(names=names))
        api.create(kinds.by_type("example.com/v1", name) or DEFINITION, {**widgets.widget(), "kind": name})
        made["metadata"]["labels"] = {"a": "b"}
        api.update(DEFINITION, f"{plural}.example.com", made)
    api.delete(DEFINITION, "gadgets.example.com")
    await journal.durable()
    await journal.close()

    kinds = ServedKinds()
    again = open_journal(tmp_path, kinds)
    api = Api(again.store(), kinds=kinds)
    kind = kinds.by_type("example.com/v1", "Widget")
    assert kind
    assert api.names(kind) == ["one"]
    assert kinds.by_type("example.com/v1", "Gadget") is None
    await again.close()


async def test_objects_of_several_stored_versions_are_read_in_each(tmp_path: Path) -> None:
    kinds = ServedKinds()
    journal = open_journal(tmp_path, kinds)
    api = Api(journal.store(), kinds=kinds)
    made = api.create(DEFINITION, widgets.definition(widgets.version("v1"), widgets.version("v2", storage=False)))
    api.create(kinds.by_type("example.com/v1", "Widget") or DEFINITION, widgets.widget())
    for version in made["spec"]["versions"]:
        version["storage"] = version["name"] == "v2"
    api.update(DEFINITION, "widgets.example.com", made)
    await journal.durable()
    await journal.close()

    kinds = ServedKinds()
    again = open_journal(tmp_path, kinds)
    api = Api(again.store(), kinds=kinds)
    for name in ("example.com/v1", "example.com/v2"):
        kind = kinds.by_type(name, "Widget")
        assert kind
        found = api.get(kind.stored_kind, "one", served_version=kind if kind.stored_as else None)
        assert found["apiVersion"] == name
    await again.close()
