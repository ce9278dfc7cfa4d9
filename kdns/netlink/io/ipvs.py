"""Requests to IPVS. All of them block."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from kdns.netlink import uapi
from kdns.netlink.io.requests import Requests
from kdns.netlink.ipvs import (
    Destination,
    DestinationKey,
    Operation,
    ServerOptions,
    Timeouts,
    Verb,
    VirtualServerKey,
    bodies,
    connections_of,
    destination_of,
    header,
    identity_of,
    server_of,
    timeout_attributes,
    timeouts_of,
)
from kdns.netlink.protocol import GENLMSGHDR, attributes, integer_of, text_attribute

NAME: Final = "IPVS"
PROC: Final = Path("/proc/thread-self/net/ip_vs")
"""It exists once the kernel has loaded IPVS."""

Failures: TypeAlias = Sequence[tuple[Operation, int]]
"""Operations that the kernel refused, each with its error."""

_MISSING: Final = frozenset({errno.ENOENT, errno.ESRCH})
_DELETIONS: Final = frozenset({Verb.DELETE_SERVER, Verb.DELETE_DESTINATION})
_UPDATES: Final = {Verb.NEW_SERVER: Verb.SET_SERVER, Verb.NEW_DESTINATION: Verb.SET_DESTINATION}
"""The verb of a second attempt, for objects that exist already."""


class Ipvs:
    """Requests to IPVS, one after the other."""

    def __init__(self, kernel: Requests) -> None:
        self._kernel = kernel
        self._family = _family_id(kernel)

    def servers(self) -> dict[VirtualServerKey, ServerOptions]:
        return dict(self._kernel.dump(self._family, header(uapi.IPVS_CMD_GET_SERVICE), server_of))

    def connections(self) -> dict[VirtualServerKey, int]:
        return dict(self._kernel.dump(self._family, header(uapi.IPVS_CMD_GET_SERVICE), connections_of))

    def server(self, key: VirtualServerKey) -> ServerOptions | None:
        try:
            answer = self._kernel.ask(self._family, header(uapi.IPVS_CMD_GET_SERVICE) + identity_of(key))
        except OSError as error:
            if error.errno in _MISSING:
                return None
            raise
        server = server_of(answer)
        return server[1] if server else None

    def destinations(self, key: VirtualServerKey) -> dict[DestinationKey, Destination]:
        """Empty if the virtual server does not exist."""
        body = header(uapi.IPVS_CMD_GET_DEST) + identity_of(key)
        try:
            return dict(self._kernel.dump(self._family, body, lambda part: destination_of(part, key)))
        except OSError as error:
            if error.errno not in _MISSING:
                raise
        return {}

    def carry_out(self, operations: Sequence[Operation]) -> Failures:
        """Carries out operations in their order, each for itself; returns those that the kernel refused.

        A new object that exists already gets the options or weight all the same; one to be deleted may be missing.
        """
        updates: list[Operation] = []
        failures: list[tuple[Operation, int]] = []
        for operation, error in self._send(operations):
            if error == errno.EEXIST and operation.verb in _UPDATES:
                updates.append(operation._replace(verb=_UPDATES[operation.verb]))
            elif operation.verb not in _DELETIONS or error not in _MISSING:
                failures.append((operation, error))
        return failures + list(self._send(updates)) if updates else failures

    def _send(self, operations: Sequence[Operation]) -> Iterator[tuple[Operation, int]]:
        messages = [(self._family, 0, body) for body in bodies(operations)]
        for index, error in self._kernel.do_all(messages).items():
            yield operations[index], error

    def timeouts(self) -> Timeouts:
        return timeouts_of(self._kernel.ask(self._family, header(uapi.IPVS_CMD_GET_CONFIG)))

    def set_timeouts(self, timeouts: Timeouts) -> None:
        """Sets the timeouts; those of 0 are kept."""
        self._kernel.do(self._family, header(uapi.IPVS_CMD_SET_CONFIG) + timeout_attributes(timeouts))


@contextmanager
def ipvs() -> Iterator[Ipvs]:
    with Requests(uapi.NETLINK_GENERIC) as kernel:
        yield Ipvs(kernel)


def _family_id(kernel: Requests) -> int:
    """The type of messages that the kernel has given to IPVS.

    Raises FileNotFoundError if the kernel does not have IPVS, also after loading modules.
    """
    body = GENLMSGHDR.pack(uapi.CTRL_CMD_GETFAMILY, 1, 0) + text_attribute(uapi.CTRL_ATTR_FAMILY_NAME, NAME)
    row = attributes(kernel.ask(uapi.GENL_ID_CTRL, body), GENLMSGHDR.size)
    if uapi.CTRL_ATTR_FAMILY_ID not in row:
        raise FileNotFoundError(errno.ENOENT, f"generic netlink has no family {NAME}")
    return integer_of(row[uapi.CTRL_ATTR_FAMILY_ID])
