"""Messages of IPVS as bytes: what pyroute2 reads in ours, and what is read in the kernel's."""

import errno
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import pytest
from pyroute2.netlink.generic.ipvs import ipvsmsg

from kdns.netlink.io.ipvs import Ipvs
from kdns.netlink.io.requests import Requests
from kdns.netlink.ipvs import Destination, Operation, ServerOptions, Timeouts, Verb, VirtualServerKey, bodies
from kdns.netlink.protocol import Change, attribute
from kdns.netlink.uapi import CTRL_ATTR_FAMILY_ID, GENL_ID_CTRL

WEB = VirtualServerKey("10.96.0.1", 80, "TCP")
DNS6 = VirtualServerKey("fd00::a", 53, "UDP")
SIGNAL = VirtualServerKey("10.96.0.2", 3868, "SCTP")
POD, POD6 = ("10.0.0.5", 8080), ("fd01::5", 5353)
FAMILY = 31
HEADER_BYTES = 16


def decoded(operation: Operation) -> dict[str, Any]:
    (body,) = bodies([operation])
    make: Any = ipvsmsg
    message = make((HEADER_BYTES + len(body)).to_bytes(4, "little") + bytes(HEADER_BYTES - 4) + body)
    message.decode()
    found = {"cmd": message["cmd"], "version": message["version"]}
    for part in ("SERVICE", "DEST"):
        for name, value in (message.get(part) or {}).get("attrs", ()):
            found[name.replace("IPVS_", "").replace("_ATTR", "")] = value
    return found


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (
            Operation(Verb.NEW_SERVER, WEB, options=ServerOptions("rr")),
            {"cmd": 1, "SVC_AF": 2, "SVC_PROTOCOL": 6, "SVC_ADDR": "10.96.0.1", "SVC_PORT": 80}
            | {
                "SVC_SCHED_NAME": "rr",
                "SVC_FLAGS": (0, 0xFFFFFFFF),
                "SVC_TIMEOUT": 0,
                "SVC_NETMASK": "255.255.255.255",
            },
        ),
        (
            Operation(Verb.SET_SERVER, DNS6, options=ServerOptions("mh", 0x11, 10800)),
            {"cmd": 2, "SVC_AF": 10, "SVC_PROTOCOL": 17, "SVC_ADDR": "fd00::a", "SVC_PORT": 53}
            | {"SVC_SCHED_NAME": "mh", "SVC_FLAGS": (17, 0xFFFFFFFF), "SVC_TIMEOUT": 10800, "SVC_NETMASK": "128.0.0.0"},
        ),
        (
            Operation(Verb.DELETE_SERVER, SIGNAL),
            {"cmd": 3, "SVC_AF": 2, "SVC_PROTOCOL": 132, "SVC_ADDR": "10.96.0.2", "SVC_PORT": 3868},
        ),
        (
            Operation(Verb.NEW_DESTINATION, WEB, POD, 1),
            {"cmd": 5, "SVC_AF": 2, "SVC_PROTOCOL": 6, "SVC_ADDR": "10.96.0.1", "SVC_PORT": 80}
            | {"DEST_ADDR_FAMILY": 2, "DEST_ADDR": "10.0.0.5", "DEST_PORT": 8080, "DEST_FWD_METHOD": 0}
            | {"DEST_WEIGHT": 1, "DEST_U_THRESH": 0, "DEST_L_THRESH": 0},
        ),
        (
            Operation(Verb.SET_DESTINATION, DNS6, POD6, 0),
            {"cmd": 6, "SVC_AF": 10, "SVC_PROTOCOL": 17, "SVC_ADDR": "fd00::a", "SVC_PORT": 53}
            | {"DEST_ADDR_FAMILY": 10, "DEST_ADDR": "fd01::5", "DEST_PORT": 5353, "DEST_FWD_METHOD": 0}
            | {"DEST_WEIGHT": 0, "DEST_U_THRESH": 0, "DEST_L_THRESH": 0},
        ),
        (
            Operation(Verb.DELETE_DESTINATION, WEB, POD),
            {"cmd": 7, "SVC_AF": 2, "SVC_PROTOCOL": 6, "SVC_ADDR": "10.96.0.1", "SVC_PORT": 80}
            | {"DEST_ADDR_FAMILY": 2, "DEST_ADDR": "10.0.0.5", "DEST_PORT": 8080},
        ),
    ],
    ids=lambda each: str(each) if isinstance(each, Operation) else "",
)
def test_pyroute2_reads_what_is_meant(operation: Operation, expected: dict[str, Any]) -> None:
    found = decoded(operation)
    if "SVC_FLAGS" in found:
        found["SVC_FLAGS"] = found["SVC_FLAGS"]["flags"], found["SVC_FLAGS"]["mask"]
    assert found == {"version": 1, **expected}


T = TypeVar("T")


class Kernel:
    """Knows these answers: to the question for the family, and to requests by their command."""

    def __init__(self, errors: Sequence[dict[int, int]] = (), answers: dict[int, bytes] | None = None) -> None:
        self.errors, self.answers = list(errors), answers or {}
        self.commands: list[list[int]] = []

    def ask(self, kind: int, body: bytes) -> bytes:
        if kind == GENL_ID_CTRL:
            return bytes(4) + attribute(CTRL_ATTR_FAMILY_ID, FAMILY.to_bytes(2, "little"))
        assert kind == FAMILY
        return self.answers[body[0]]

    def do_all(self, changes: Sequence[Change]) -> dict[int, int]:
        self.commands.append([body[0] for _, _, body in changes])
        return self.errors.pop(0)

    def dump(self, kind: int, body: bytes, decode: Callable[[bytes], T | None]) -> list[T]:
        assert kind == FAMILY
        decoded = decode(self.answers[body[0]])
        return [] if decoded is None else [decoded]


def over(kernel: Kernel) -> Ipvs:
    return Ipvs(cast("Requests", kernel))


NEW = Operation(Verb.NEW_SERVER, WEB, options=ServerOptions("rr"))
DESTINATION = Operation(Verb.NEW_DESTINATION, WEB, POD, 1)
SET = Operation(Verb.SET_DESTINATION, WEB, POD, 0)
GONE = Operation(Verb.DELETE_DESTINATION, WEB, POD)


@pytest.mark.parametrize(
    ("operations", "errors", "commands", "failures"),
    [
        ([NEW, DESTINATION], [{}], [[1, 5]], []),
        ([NEW, DESTINATION], [{0: errno.EEXIST, 1: errno.EEXIST}, {}], [[1, 5], [2, 6]], []),
        ([NEW], [{0: errno.ENOENT}], [[1]], [(NEW, errno.ENOENT)]),
        ([SET], [{0: errno.ENOENT}], [[6]], [(SET, errno.ENOENT)]),
        ([GONE], [{0: errno.ENOENT}], [[7]], []),
        ([GONE], [{0: errno.ESRCH}], [[7]], []),
        ([GONE], [{0: errno.EBUSY}], [[7]], [(GONE, errno.EBUSY)]),
    ],
)
def test_what_is_there_is_set_and_what_is_gone_stays_so(
    operations: list[Operation],
    errors: list[dict[int, int]],
    commands: list[list[int]],
    failures: list[tuple[Operation, int]],
) -> None:
    kernel = Kernel(errors)
    assert list(over(kernel).carry_out(operations)) == failures
    assert kernel.commands == commands


def test_operations_have_words() -> None:
    assert str(NEW) == "new server 10.96.0.1:80/TCP with scheduler rr"
    assert str(DESTINATION) == "new destination 10.0.0.5:8080 of 10.96.0.1:80/TCP"


def test_what_was_written_is_read() -> None:
    (body,) = bodies([Operation(Verb.NEW_SERVER, DNS6, options=ServerOptions("mh", 0x11, 10800))])
    (of_destination,) = bodies([Operation(Verb.NEW_DESTINATION, DNS6, POD6, 3)])
    inner = of_destination[of_destination.index(b"\x14\0\x01\0") - 4 :]
    connections = b"".join(attribute(kind, number.to_bytes(4, "little")) for kind, number in ((7, 4), (8, 5)))
    kernel = Kernel(answers={4: body, 8: bytes(4) + attribute(2, inner[4:] + connections)})
    assert over(kernel).servers() == {DNS6: ServerOptions("mh", 0x11, 10800)}
    assert over(kernel).server(DNS6) == ServerOptions("mh", 0x11, 10800)
    assert over(kernel).destinations(DNS6) == {POD6: Destination(3, 4, 5, masquerades=True)}


def test_timeouts_of_zero_are_asked_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, done = Kernel(), list[tuple[int, bytes]]()
    monkeypatch.setattr(kernel, "do", lambda *request: done.append(request), raising=False)
    over(kernel).set_timeouts(Timeouts(900, 0, 300))
    numbers = b"".join(attribute(kind, value.to_bytes(4, "little")) for kind, value in ((4, 900), (5, 0), (6, 300)))
    assert done == [(FAMILY, bytes((12, 1, 0, 0)) + numbers)]
