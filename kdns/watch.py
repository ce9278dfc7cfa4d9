"""One way to look again and again at files, in shells and where time is passed in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kdns.errors import CorefileError


async def watch(
    sleep: Callable[[float], Awaitable[None]],
    every_s: float,
    look: Callable[[], Awaitable[None]],
    report: Callable[[list[CorefileError]], None],
) -> None:
    """Looks every `every_s` seconds; never returns. An error is reported once, until a look has another one or none."""
    reported = ""
    while True:
        await sleep(every_s)
        try:
            await look()
            reported = ""
        except CorefileError as error:
            if str(error) != reported:
                report([error, *error.others])
            reported = str(error)
