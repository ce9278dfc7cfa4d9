"""Files that a directive reads again when they change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from kdns import logs
from kdns.errors import CorefileError
from kdns.runtime.files.bounded import CHARACTERS_MAX, bounded_text
from kdns.runtime.tasks import in_daemon_thread

SMALL_CHARACTERS_MAX: Final = 64 * 1024
"""The longest file that is read in the event loop: a resolv.conf, a key."""

log = logs.get(__name__)


@dataclass(slots=True)
class WatchedFile:
    """`kind` is the file's name in messages. `parse` runs in a thread, and `read` gets its result, or the text.

    Both may raise CorefileError. With `parse` a file may be large, and `begin` reads it first; without it, the
    constructor does, at most SMALL_CHARACTERS_MAX. A file that `is_optional` is empty if it does not exist.
    """

    kind: str
    path: str
    read: Callable[[Any], None]
    parse: Callable[[str], Any] | None = None
    is_optional: bool = False
    _text: str = field(init=False, default="")

    def __post_init__(self) -> None:
        if self.parse is None:
            self.read(self._load_first())

    async def begin(self) -> None:
        if self.parse is not None:
            text = await in_daemon_thread(self._load_first)
            self.read(await in_daemon_thread(partial(self.parse, text)))

    async def renew(self) -> None:
        text = await in_daemon_thread(self._load)
        if text != self._text:
            self.read(await in_daemon_thread(partial(self.parse, text)) if self.parse else text)
            self._text = text
            log.info("watched file read", kind=self.kind, path=self.path)

    def report(self, errors: list[CorefileError]) -> None:
        log.warning("watched file unusable", kind=self.kind, error=str(errors[0]), answers="as before")

    def _load_first(self) -> str:
        self._text = self._load()
        if self.is_optional and not Path(self.path).exists():
            log.warning("watched file missing", kind=self.kind, path=self.path)
        return self._text

    def _load(self) -> str:
        path = Path(self.path)
        try:
            if path.is_fifo() or path.is_socket():  # it may never have data
                raise CorefileError(self.path, 0, "", f"the {self.kind} cannot be read: it is not a regular file")
            return bounded_text(path, CHARACTERS_MAX if self.parse else SMALL_CHARACTERS_MAX)
        except OSError as error:
            if self.is_optional and isinstance(error, FileNotFoundError):
                return ""
            raise CorefileError(self.path, 0, "", f"the {self.kind} cannot be read: {error.strerror}") from error
