"""Keeps the snapshot of a watched cluster: loads it if no API answers in time, and saves the current objects.

Objects are loaded and encoded in slices of time, between which the loop serves others; files are read and written in
threads.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from kdns import logs
from kdns.cluster.io.cluster import Cluster
from kdns.cluster.objects import EndpointSlice, Object
from kdns.cluster.packed import unpacked_slice
from kdns.cluster.snapshot import BYTES_MAX, FORMAT, Header, SnapshotError, read, trailer
from kdns.cluster.source import SnapshotFile
from kdns.cluster.watch import RESOURCES
from kdns.runtime.tasks import in_slices

PATIENCE_S: Final = 3.0
"""If the API does not list everything in this time, the snapshot is served."""
EVERY_S: Final = 10.0
"""The shortest time between two writes."""
SHARE: Final = 50
"""The shortest pause after a write, in multiples of the time that the write took."""
REFRESH_S: Final = 3600.0
"""An unchanged snapshot is saved again after this time, or after a quarter of its maximum age."""
_CHUNK_BYTES: Final = 1024 * 1024
_OWNER_ONLY: Final = 0o600

log = logs.get(__name__)


class SnapshotKeeper:
    """Runs until cancelled."""

    def __init__(
        self,
        cluster: Cluster,
        file: SnapshotFile,
        *,
        patience_s: float = PATIENCE_S,
        every_s: float = EVERY_S,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._cluster, self._path, self._max_age_s = cluster, Path(file.path), file.max_age_s
        self._patience_s, self._every_s, self._now_s = patience_s, every_s, now_s
        self._failure = ""

    async def run(self) -> None:
        cluster, state = self._cluster, self._cluster.state
        if not await self._is_listed_in_time():
            await self._load()
        has_waited = bool(state.stale)
        while True:
            has_changed = await self._noticed(min(REFRESH_S, self._max_age_s / 4))
            if has_waited and not state.stale:
                has_waited = False
                log.info("the API's objects take the place of the snapshot")
            if cluster.is_synced and not state.stale and (has_changed or cluster.is_connected):
                began_s = time.monotonic()
                await self._save()
                await asyncio.sleep(max(self._every_s, SHARE * (time.monotonic() - began_s)))

    async def _is_listed_in_time(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                while not self._cluster.is_synced:
                    await self._cluster.noticed.wait()
                    self._cluster.noticed.clear()
        self._cluster.noticed.set()
        return self._cluster.is_synced

    async def _noticed(self, timeout_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._cluster.noticed.wait()
        is_noticed = self._cluster.noticed.is_set()
        self._cluster.noticed.clear()
        return is_noticed

    # Loading

    async def _load(self) -> None:
        state = self._cluster.state
        try:
            header, lines = await asyncio.to_thread(self._read)
            objects = [obj async for obj in in_slices(lines)]
        except FileNotFoundError:
            log.info("no snapshot yet", file=str(self._path))
            return
        except (OSError, SnapshotError) as error:
            log.warning("snapshot refused", file=str(self._path), reason=getattr(error, "strerror", "") or str(error))
            return
        async for obj in in_slices(objects):
            kind = type(obj)
            if kind not in state.synced and obj.key not in state.objects(kind):  # what was listed is newer
                state.upsert(obj)
        unlisted = {kind for kind in self._cluster.kinds if kind not in state.synced}
        state.stale |= unlisted
        state.synced |= unlisted
        state.as_of_s = self._cluster.snapshot.saved_s = header.saved_s
        state.changed_s = max(state.changed_s, header.changed_s)
        self._cluster.changed([])
        age_s = round(self._now_s() - header.saved_s)
        log.warning("no API answers: the snapshot is served", file=str(self._path), age_s=age_s, objects=len(objects))

    def _read(self) -> tuple[Header, Iterator[Object]]:
        with self._path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise SnapshotError(f"it is too large: expected at most {BYTES_MAX >> 20} MiB")
        return read(content, self._cluster.identity, self._now_s(), self._max_age_s)

    # Saving

    async def _save(self) -> None:
        """Writes the current objects into a new file, and replaces the old one."""
        state, saved_s = self._cluster.state, self._now_s()
        objects = {RESOURCES[kind].plural: tuple(state.objects(kind).values()) for kind in self._cluster.kinds}
        counts = {plural: len(listed) for plural, listed in objects.items()}
        header = Header(FORMAT, self._cluster.identity, saved_s, state.changed_s, counts)
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            with await asyncio.to_thread(_created, new) as file:
                await self._write(file, chain([header], chain.from_iterable(objects.values())))
                await asyncio.to_thread(_placed, file, new, self._path)
        except OSError as error:
            self._cluster.snapshot.failures += 1
            reason = error.strerror or str(error)
            if reason != self._failure:
                log.warning("snapshot not saved", file=str(self._path), reason=reason)
            self._failure = reason
            self._cluster.noticed.set()  # retry
            with suppress(OSError):
                new.unlink(missing_ok=True)
        else:
            self._failure, self._cluster.snapshot.saved_s = "", saved_s

    async def _write(self, file: BinaryIO, values: Iterable[object]) -> None:
        encode, digest, chunk, size_bytes = msgspec.json.Encoder().encode, sha256(), bytearray(), 0

        def put() -> None:
            digest.update(chunk)
            file.write(chunk)

        async for value in in_slices(values):
            chunk += encode(unpacked_slice(value) if isinstance(value, EndpointSlice) else value) + b"\n"
            if len(chunk) >= _CHUNK_BYTES:
                size_bytes += len(chunk)
                if size_bytes > BYTES_MAX:
                    raise OSError(errno.EFBIG, f"larger than {BYTES_MAX >> 20} MiB")
                await asyncio.to_thread(put)
                chunk.clear()
        await asyncio.to_thread(put)
        file.write(trailer(digest.hexdigest()))


def _created(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY), "wb")


def _placed(file: BinaryIO, new: Path, path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    new.replace(path)
