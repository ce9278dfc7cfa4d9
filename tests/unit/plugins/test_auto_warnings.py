"""What `auto` says of files and directories that it cannot use: once, as long as it is so."""

import asyncio

import pytest
from dns_chain import FakeWorld

from kdns.errors import CorefileError
from kdns.plugins.sources import auto
from kdns.plugins.sources.auto import AutoConfig

PATH = "/zones/db.a.example"
ZONE = "@ 60 IN SOA ns.example. root.example. 1 60 60 60 60\n@ 60 IN NS ns.example.\n"
BROKEN = "@ 60 IN NS ns.example.\n"


async def looks(setup: FakeWorld) -> asyncio.Task[None]:
    """The task that looks at the directory at intervals, where it waits."""
    await setup.prepared()
    (work,) = setup.works
    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    return task


async def look(setup: FakeWorld) -> list[str]:
    """The warnings so far, after another look."""
    setup.wait(60.0)
    for _ in range(5):
        await asyncio.sleep(0)
    return [str(line["event"]) for line in setup.lines if line["log_level"] == "warning"]


async def test_a_mistake_that_comes_back_is_said_again() -> None:
    setup = FakeWorld(files={PATH: ZONE})
    auto.AutoZones((AutoConfig(("a.example.",), "/zones"),), setup)
    task = await looks(setup)
    for text, count in ((BROKEN, 1), (BROKEN, 1), (ZONE, 1), (BROKEN, 2)):
        setup.files[PATH] = text
        assert await look(setup) == ["zone file not usable"] * count
    task.cancel()


async def test_a_directory_with_too_many_files_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = FakeWorld(files={PATH: ZONE})
    plugin = auto.AutoZones((AutoConfig(("a.example.",), "/zones"),), setup)
    task = await looks(setup)

    def too_many(_files: FakeWorld, directory: str) -> tuple[str, ...]:
        raise CorefileError(directory, 0, "", "has more than 10,000 files")

    with monkeypatch.context() as patched:
        patched.setattr(FakeWorld, "files_below", too_many)
        assert await look(setup) == ["directory not usable"]
        assert await look(setup) == ["directory not usable"]
    setup.files.clear()
    await look(setup)
    assert plugin.zones == ()
    task.cancel()
