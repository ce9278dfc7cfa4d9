"""What aiohttp says of its connections, in our log: bytes that are no HTTP are a line, and no traceback."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

from kdns import logs

log = logs.get(__name__)


class HttpLog(logging.Logger):
    """Give it to a server as its `logger`."""

    def __init__(self) -> None:
        super().__init__(__name__, logging.ERROR)

    def exception(self, msg: object, *args: object, exc_info: object = True, **_: object) -> None:
        """A request that cannot be read is its sender's trouble; anything else is ours."""
        said = str(msg) % args
        if isinstance(exc_info, HttpProcessingError):
            log.info("request cannot be read", said=said, reason=" ".join(exc_info.message.split()))
        else:
            log.error("request failed", said=said, exc_info=exc_info)
