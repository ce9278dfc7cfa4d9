"""The tree of errors that users see, with fields.

A message has the place, the value and the expected value.
`exit_code` is that of a command: 1 for a failure at run time, 2 for wrong usage or input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = [
    "ApiServerError",
    "ApplyError",
    "BusyError",
    "ControlPlaneError",
    "CorefileError",
    "DoubtfulError",
    "InputError",
    "KdnsError",
    "KubeconfigError",
    "ListenError",
    "ManifestError",
    "SettingsError",
]

MAX_TOKEN_LENGTH: Final = 200
"""A message shows this many characters of a token: log lines have a maximum length."""


class KdnsError(Exception):
    """Base of all errors of kdns."""

    exit_code = 1


class InputError(KdnsError):
    """A mistake in the user's input."""

    exit_code = 2


class CorefileError(InputError):
    """An invalid Corefile: file, line (from 1, 0 for the file), the offending token and the reason.

    The token is shown unless the reason quotes it or begins with it. `others` are further mistakes in the same file.
    """

    others: tuple[CorefileError, ...] = ()

    def __init__(self, path: str, line: int, token: str, reason: str) -> None:
        self.path, self.line, self.token, self.reason = path, line, token, reason
        super().__init__(path, line, token, reason)

    def __str__(self) -> str:
        shown = repr(self.token[:MAX_TOKEN_LENGTH])
        is_shown = not self.token or shown in self.reason or self.reason.startswith(f"{self.token}: ")
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {self.reason}" if is_shown else f"{where}: {self.reason} (at {shown})"

    def of(self, directive: str) -> CorefileError:
        """Puts the directive's name before the reason, once; returns the error itself."""
        self.reason = f"{directive}: {self.reason.removeprefix(f'{directive}: ')}"
        return self


def first_of(mistakes: Iterable[CorefileError]) -> CorefileError:
    """The first mistake, with the others of its file."""
    first, *others = mistakes
    first.others = tuple(others)
    return first


class DoubtfulError(CorefileError):
    """A line or word that CoreDNS takes as well, or ignores, but that hardly means what it says: a warning."""


class ManifestError(InputError):
    """An invalid manifest: file, line (from 1, 0 if unknown), the field path and the reason."""

    def __init__(self, path: str, line: int, field: str, reason: str) -> None:
        self.path, self.line, self.field, self.reason = path, line, field, reason
        where = f"{path}:{line}" if line else path
        super().__init__(f"{where}: {field}: {reason}" if field else f"{where}: {reason}")


class SettingsError(InputError):
    """Invalid settings of the dataplane: every mistake with its place."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class KubeconfigError(InputError):
    """Invalid access data of an API server: the file, the problem and the expected content."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        self.path, self.found, self.expected = path, found, expected
        super().__init__(f"{path}: {found}; expected {expected}")


class ApiServerError(KdnsError):
    """A failed request to the API server; status is 0 without a complete response."""

    def __init__(self, server: str, reason: str, status: int = 0, retry_after_s: float = 0.0) -> None:
        self.server, self.reason, self.status, self.retry_after_s = server, reason, status, retry_after_s
        super().__init__(f"{server}: {status} {reason}" if status else f"{server}: {reason}")


class ControlPlaneError(KdnsError):
    """A failure of the control plane's process, with its exit code."""

    def __init__(self, reason: str, exit_code: int) -> None:
        self.reason, self.exit_code = reason, exit_code
        super().__init__(reason)


class ListenError(KdnsError):
    """An address that cannot be bound; `where` is its flag or file, if known."""

    def __init__(self, address: str, reason: str, where: str = "") -> None:
        self.address, self.reason = address, reason
        super().__init__(f"{where and f'{where}: '}cannot listen on {address}: {reason}")


class ApplyError(KdnsError):
    """A change that the kernel refused: the program and its standard error."""

    def __init__(self, argv: tuple[str, ...], stderr: str) -> None:
        self.argv, self.stderr = argv, stderr
        super().__init__(f"{' '.join(argv)}: {stderr}")


class BusyError(ApplyError):
    """A program could not run; its input may be valid."""
