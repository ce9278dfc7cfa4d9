"""aiohttp's log messages in kdns's log: no client can fill it with tracebacks."""

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
        """Malformed requests and disconnects are the client's, everything else is a defect."""
        message = str(msg) % args
        if isinstance(exc_info, (ConnectionResetError, BrokenPipeError)):
            log.debug("client disconnected", message=message, reason=str(exc_info))
        elif isinstance(exc_info, HttpProcessingError):
            log.info("malformed request", message=message, reason=" ".join(exc_info.message.split()))
        else:
            log.error("request failed", message=message, exc_info=exc_info)
