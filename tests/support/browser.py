"""Chromium without a screen, led by its DevTools protocol: pages as a person with a keyboard has them."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium")
START_S = 60.0
KEYS = {"Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), " ": ("Space", 32, " ")}
"""Key → its code, its number, and the text that it makes."""


@dataclass
class Tab:
    """One tab."""

    socket: aiohttp.ClientWebSocketResponse
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    async def do(self, method: str, **parameters: Any) -> Any:
        """The result of a command."""
        number = next(self.numbers)
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(START_S):
            while True:
                told = json.loads((await self.socket.receive()).data)
                if told.get("id") == number:
                    assert "error" not in told, told
                    return told["result"]

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression is."""
        result = await self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(START_S):
            while not await self.value(expression):  # noqa: ASYNC110 - the page is asked, and raises no event
                await asyncio.sleep(0.05)

    async def press(self, key: str) -> None:
        """Press a key, and let it go."""
        code, number, text = KEYS[key]
        same = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        await self.do("Input.dispatchKeyEvent", type="keyDown", text=text, **same)
        await self.do("Input.dispatchKeyEvent", type="keyUp", **same)

    async def type(self, text: str) -> None:
        """Type a text where the focus is."""
        await self.do("Input.insertText", text=text)

    async def open(self, url: str) -> None:
        """Open a page."""
        await self.do("Page.navigate", url=url)
        await self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Tab]:
    """A tab of a browser of its own, whose profile is in a folder."""
    assert PROGRAM
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0")
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *flags,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr
        async with asyncio.timeout(START_S):
            while not (found := re.search(rb"ws://(127\.0\.0\.1:\d+)/", line := await process.stderr.readline())):
                assert line, "the browser has ended"
        reading = asyncio.create_task(process.stderr.read())
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{found[1].decode()}/json") as response:
                (page, *_) = (each for each in await response.json() if each["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Tab(socket)
        reading.cancel()
    finally:
        process.terminate()
        await process.wait()
