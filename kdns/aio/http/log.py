"""aiohttp's log messages in kdns's log: a malformed request is one event, without a traceback."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

from kdns import logs

log = logs.get(__name__)


class HttpLog(logging.Logger):
    """The `logger` of an aiohttp server."""

    def __init__(self) -> None:
        super().__init__(__name__, logging.ERROR)

    def exception(self, msg: object, *args: object, exc_info: object = True, **_: object) -> None:
        """A malformed request is the client's error, everything else is a defect."""
        message = str(msg) % args
        if isinstance(exc_info, HttpProcessingError):
            log.info("malformed request", message=message, reason=" ".join(exc_info.message.split()))
        else:
            log.error("request failed", message=message, exc_info=exc_info)
