"""Programs that hang, print without end or leave children behind do not keep their caller, nor take its memory."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kdns.errors import ApplyError, BusyError
from kdns.proxy.nftables.io import nft
from kdns.proxy.xtables.io import programs
from kdns.proxy.xtables.io.programs import Programs
from kdns.runtime import subprocesses
from kdns.runtime.subprocesses import ERROR_BYTES, Completed, run_program

_NOTED = "echo $$ $! > noted; mv noted pids"
HANGS = f"sleep 1000 & {_NOTED}; wait"
LEAVES_A_CHILD = f"sleep 1000 & {_NOTED}; exit 3"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def begun(folder: Path) -> list[int]:
    """The ids of the programs that were started, when the last one has been."""
    async with asyncio.timeout(60):
        while not (folder / "pids").exists():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.01)
    return [int(line) for line in (folder / "pids").read_text(encoding="ascii").split()]


async def have_ended(pids: list[int]) -> bool:
    async with asyncio.timeout(60):
        while any(map(is_running, pids)):  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.01)
    return bool(pids)


@pytest.mark.parametrize(
    ("script", "completed"),
    [
        ("echo out; echo err >&2; exit 3", Completed(3, b"out\n", b"err\n")),
        ("kill -9 $$", Completed(-9, b"", b"")),
        ("head -c 1000000 /dev/zero >&2", Completed(0, b"", bytes(ERROR_BYTES))),
    ],
)
async def test_how_a_program_ended(script: str, completed: Completed) -> None:
    assert await run_program(shell(script), output_bytes=1000) == completed


async def test_output_without_end_is_an_error() -> None:
    with pytest.raises(OSError, match="more than 1000 bytes of output: killed"):
        await run_program(("/usr/bin/yes",), output_bytes=1000)


async def test_output_that_nobody_wants_is_discarded() -> None:
    assert await run_program(shell("head -c 1000000 /dev/zero")) == Completed(0, b"", b"")


async def test_a_program_that_does_not_end_is_killed() -> None:
    pids: list[int] = []
    with pytest.raises(TimeoutError, match=r"still running after 0.1 s: killed"):
        await run_program(("/bin/sleep", "1000"), limit_s=0.1, started=pids.append)
    assert await have_ended(pids)


@pytest.mark.parametrize("script", [HANGS, LEAVES_A_CHILD])
async def test_a_cancelled_call_kills_its_program_and_its_children(folder: Path, script: str) -> None:
    calling = asyncio.create_task(run_program(shell(script)))
    pids = await begun(folder)
    calling.cancel()
    await asyncio.wait((calling,))
    assert calling.cancelled()
    assert await have_ended(pids)


async def test_a_call_that_is_cancelled_while_its_program_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = asyncio.create_subprocess_exec

    async def create_slowly(*args: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*args, **options)
        await begun(folder)
        calling.cancel()
        await asyncio.sleep(0)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_slowly)
    calling = asyncio.create_task(run_program(shell(LEAVES_A_CHILD)))
    await asyncio.wait((calling,))
    assert calling.cancelled()
    assert await have_ended(await begun(folder))


async def test_a_slow_program_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocesses, "SLOW_S", 0.0)
    with capture_logs() as logs:
        await run_program(("/bin/sleep", "0.2"))
    assert [(entry["event"], entry["program"]) for entry in logs] == [("program is slow", "/bin/sleep")]


@pytest.fixture
def fake_programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that come before those of the machine: nft and iptables-restore."""
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(programs, "RESTORE_S", 0.5)
    monkeypatch.setattr(nft, "PROGRAM_S", 0.5)
    return folder


def install(folder: Path, script: str) -> None:
    for name in ("nft", "iptables-restore"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("script", "failure", "reason"),
    [
        ("exec sleep 1000", BusyError, "still running after 0.5 s: killed"),
        ("kill -9 $$", BusyError, "exit code -9"),
        ("exit 4", ApplyError, "exit code 4"),
    ],
)
async def test_a_restore_or_transaction_says_how_its_program_failed(
    fake_programs: Path, script: str, failure: type[ApplyError], reason: str
) -> None:
    install(fake_programs, script)
    with pytest.raises(ApplyError, match=reason) as restored:
        await Programs("nft", (1, 8, 9), "").restore("IPv4", "*nat\nCOMMIT\n")
    with pytest.raises(ApplyError, match=reason) as applied:
        await nft.apply("flush ruleset")
    assert {type(restored.value), type(applied.value)} == {failure}


async def test_a_program_that_was_killed_accepts_nothing(fake_programs: Path) -> None:
    """A check that could not be made must not be taken for one that found nothing."""
    install(fake_programs, "kill -9 $$")
    with pytest.raises(BusyError):
        await nft.check("flush ruleset")


async def test_a_stop_does_not_wait_for_a_program_that_hangs(
    fake_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "RESTORE_S", 1000.0)
    monkeypatch.setattr(nft, "PROGRAM_S", 1000.0)
    monkeypatch.setattr(programs, "PATIENCE_S", 0.1)
    monkeypatch.setattr(nft, "PATIENCE_S", 0.1)
    for change in (Programs("nft", (1, 8, 9), "").restore("IPv4", "*nat\nCOMMIT\n"), nft.apply("flush ruleset")):
        (fake_programs / "pids").unlink(missing_ok=True)
        install(fake_programs, HANGS)
        calling = asyncio.ensure_future(change)
        pids = await begun(fake_programs)
        calling.cancel()
        async with asyncio.timeout(60):
            await asyncio.wait((calling,))
        assert calling.cancelled()
        assert await have_ended(pids)
