"""The file of a snapshot: what is written is what is read, and what cannot be used is refused with its reason."""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from fake_api import endpoint_slice, meta, service, until
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kdns.cluster.io.cluster import Cluster
from kdns.cluster.io.snapshots import SnapshotKeeper
from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service
from kdns.cluster.snapshot import SnapshotError, read
from kdns.cluster.source import ClusterSpec, Scope, SnapshotFile, Source
from kdns.cluster.state import Change

KINDS: tuple[type[Object], ...] = (Namespace, Service, EndpointSlice, Pod)


class Followed(Cluster):
    """A cluster whose changes are counted."""

    identity = "here"
    is_connected = True
    calls = 0

    def __init__(self) -> None:
        super().__init__(ClusterSpec(Source(), Scope(KINDS)))

    def changed(self, changes: list[Change]) -> None:
        assert not changes
        self.calls += 1
        self.noticed.set()


def objects() -> list[Object]:
    pod = meta("web-0", "default") | {"status": {"podIPs": [{"ip": "10.244.0.1"}], "phase": "Running"}}
    return [
        msgspec.convert(meta("default"), Namespace),
        msgspec.convert(service("web"), Service),
        msgspec.convert(endpoint_slice("web"), EndpointSlice),
        msgspec.convert(pod, Pod),
    ]


def listed(*found: Object) -> Followed:
    """A cluster with these objects, whose API has listed everything."""
    made = Followed()
    for obj in found:
        made.state.upsert(obj)
    made.state.synced.update(KINDS)
    made.noticed.set()
    return made


async def ran(keeper: SnapshotKeeper, until_it: Callable[[], bool]) -> None:
    """The keeper works until this is so."""
    task = asyncio.create_task(keeper.run())
    await until(until_it)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def keeper_of(cluster: Followed, path: Path, *, now_s: float = 1000.0, max_age_s: float = 3600.0) -> SnapshotKeeper:
    return SnapshotKeeper(
        cluster, SnapshotFile(str(path), max_age_s), patience_s=0.01, every_s=0.01, now_s=lambda: now_s
    )


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    cluster = listed(*objects())
    await ran(keeper_of(cluster, tmp_path / "snapshot"), lambda: cluster.snapshot.saved_s > 0)
    return tmp_path / "snapshot"


async def test_what_is_written_is_what_is_read(file: Path) -> None:
    cluster = Followed()
    await ran(keeper_of(cluster, file, now_s=1600.0), lambda: cluster.calls == 1)
    assert {kind: [*cluster.state.objects(kind).values()] for kind in KINDS} == {type(obj): [obj] for obj in objects()}
    assert cluster.state.stale == cluster.state.synced == set(KINDS)
    assert cluster.state.as_of_s == 1000.0
    assert [entry.name for entry in file.parent.iterdir()] == ["snapshot"]
    for kind in KINDS:
        cluster.state.retain(kind, [obj.key for obj in objects()])
    assert not cluster.state.stale


async def test_what_the_api_has_listed_already_is_newer(file: Path) -> None:
    cluster = Followed()
    newer = msgspec.convert(service("web", "10.96.7.7"), Service)
    cluster.state.upsert(newer)
    cluster.state.retain(Namespace, ())
    cluster.state.changed_s = 9e9
    await ran(keeper_of(cluster, file), lambda: cluster.calls == 1)
    assert cluster.state.services == {newer.key: newer}
    assert not cluster.state.namespaces
    assert cluster.state.stale == set(KINDS) - {Namespace}
    assert cluster.state.changed_s == 9e9


def resealed(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """The same file with other bytes, and the hash of these."""

    def change(content: bytes) -> bytes:
        body = content.rstrip().rpartition(b"\n")[0].replace(old, new) + b"\n"
        return body + sha256(body).hexdigest().encode() + b"\n"

    return change


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "damaged: a byte": lambda content: content.replace(b"10.96.0.9", b"10.96.0.8"),
    "damaged: cut": lambda content: content[:-100],
    "damaged: empty": lambda content: content[:0],
    "its header does not decode": resealed(b'"saved_s":1000.0', b'"saved_s":"x"'),
    "expected the format": resealed(b"kdns snapshot 1", b"kdns snapshot 0"),
    "expected kinds": resealed(b'"namespaces":1', b'"cats":1'),
    "one of its services does not decode": resealed(b'"port":80', b'"port":-1'),
    "of another API server": resealed(b'"of":"here"', b'"of":"there"'),
    "too old": resealed(b'"saved_s":1000.0', b'"saved_s":-9000.0'),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_cannot_be_used_is_refused(file: Path, what: str) -> None:
    cluster = Followed()
    await asyncio.to_thread(lambda: file.write_bytes(WRONG[what](file.read_bytes())))
    with capture_logs() as logged:
        await ran(keeper_of(cluster, file), lambda: bool(logged))
    assert [line["event"] for line in logged] == ["snapshot refused"]
    assert what.partition(":")[0] in logged[0]["reason"]
    assert not any(cluster.state.objects(kind) for kind in KINDS)
    assert not cluster.state.synced


async def test_a_quiet_cluster_is_saved_again_while_it_is_followed(tmp_path: Path) -> None:
    """What nothing has changed for a day is not a day old, unless the API has not spoken for as long."""
    now_s, cluster = [1000.0], listed(*objects())
    keeper = SnapshotKeeper(
        cluster, SnapshotFile(str(tmp_path / "snapshot"), 0.04), every_s=0.0, now_s=lambda: now_s[0]
    )
    task = asyncio.create_task(keeper.run())
    await until(lambda: cluster.snapshot.saved_s == 1000.0)
    now_s[0] = 2000.0
    await until(lambda: cluster.snapshot.saved_s == 2000.0)
    cluster.is_connected = False
    await asyncio.sleep(0.05)
    now_s[0] = 3000.0
    await asyncio.sleep(0.05)
    task.cancel()
    assert cluster.snapshot.saved_s == 2000.0


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_and_nothing_else_happens(content: bytes) -> None:
    with pytest.raises(SnapshotError):
        read(content, "here", 0.0, 1.0)
