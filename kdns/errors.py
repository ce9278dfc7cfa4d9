"""The errors a person may see, as a small tree with fields.

A message says where it happened, what was found and what was wanted.
`exit_code` is what a command returns: 1 failed at run time, 2 wrong usage or input.
"""

from __future__ import annotations


class KdnsError(Exception):
    """Base of everything kdns raises on purpose."""

    exit_code = 1


class InputError(KdnsError):
    """Something the user wrote is not as it should be."""

    exit_code = 2


class CorefileError(InputError):
    """A Corefile that cannot be used: file, line (from 1, 0 for the file), the offending token and the reason."""

    def __init__(self, path: str, line: int, token: str, reason: str) -> None:
        self.path, self.line, self.token, self.reason = path, line, token, reason
        found = f" (at {token!r})" if token else ""
        where = f"{path}:{line}" if line else path
        super().__init__(f"{where}: {reason}{found}")


class ManifestError(InputError):
    """A manifest that cannot be used: file, line (from 1, 0 where unknown), the field path and the reason."""

    def __init__(self, path: str, line: int, field: str, reason: str) -> None:
        self.path, self.line, self.field, self.reason = path, line, field, reason
        where = f"{path}:{line}" if line else path
        super().__init__(f"{where}: {field}: {reason}" if field else f"{where}: {reason}")


class SettingsError(InputError):
    """Settings of the dataplane that cannot be used: everything that is wrong, each with where it was found."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class KubeconfigError(InputError):
    """Access to the API server that is not set up as it should be: the file, what is wrong and what is wanted."""

    def __init__(self, path: str, found: str, wanted: str) -> None:
        self.path, self.found, self.wanted = path, found, wanted
        super().__init__(f"{path}: {found}; wanted: {wanted}")


class ApiServerError(KdnsError):
    """A request the API server did not fulfil; status is 0 when no whole answer came."""

    def __init__(self, server: str, reason: str, status: int = 0, retry_after_s: float = 0.0) -> None:
        self.server, self.reason, self.status, self.retry_after_s = server, reason, status, retry_after_s
        super().__init__(f"{server}: {status} {reason}" if status else f"{server}: {reason}")


class ListenError(KdnsError):
    """An address that cannot be listened on."""

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"cannot listen on {address}: {reason}")


class ApplyError(KdnsError):
    """A change to the kernel that was refused: the program and what it said."""

    def __init__(self, argv: tuple[str, ...], stderr: str) -> None:
        self.argv, self.stderr = argv, stderr
        super().__init__(f"{' '.join(argv)}: {stderr}")
