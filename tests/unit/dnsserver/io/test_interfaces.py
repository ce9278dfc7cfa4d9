"""Which addresses `bind` means, and what is said of those that cannot be had."""

import errno

import pytest
from configured import configured

from kdns.dnsserver.io import interfaces
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import CorefileError
from kdns.net import packed
from kdns.netlink.addresses import InterfaceAddress
from kdns.serverblocks.config import WILDCARD


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[InterfaceAddress]:
    """The addresses of the machine; netlink cannot be asked while there are none."""
    addresses: list[InterfaceAddress] = []

    async def interface_addresses() -> tuple[InterfaceAddress, ...]:
        if not addresses:
            raise PermissionError(errno.EPERM, "no netlink here")
        return tuple(addresses)

    monkeypatch.setattr(interfaces, "interface_addresses", interface_addresses)
    return addresses


async def test_link_local_addresses_of_ipv6_are_left_out(machine: list[InterfaceAddress]) -> None:
    assert await interfaces.usable_addresses() == ()
    machine += [InterfaceAddress("eth0", each) for each in ("10.0.0.1", "169.254.20.10", "fd00::1", "fe80::1")]
    addresses = await interfaces.usable_addresses()
    assert [address.address for address in addresses] == ["10.0.0.1", "169.254.20.10", "fd00::1"]
    bound = interfaces.bound_addresses(["eth0"], [], addresses)
    assert bound == ("10.0.0.1", "169.254.20.10", "fd00::1")
    own = interfaces.own_addresses(WILDCARD, addresses)
    assert own == tuple(packed(each) for each in bound)


async def test_bind_never_falls_back_to_every_address() -> None:
    server = DnsServer(configured(".:0 {\n bind 127.0.0.1 {\n except 127.0.0.1\n }\n}\n"))
    try:
        with pytest.raises(CorefileError, match=r"^Corefile:1: bind: `except` leaves no address to listen on$"):
            await server.start()
    finally:
        await server.stop()
    assert server.addresses == []


WANTED = ", which the block at Corefile:1 listens on; expected `bind` in both or in neither"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            ".:1053 {\nbind lo\n}\n.:1053 {\nbind 127.0.0.1\n}",
            "Corefile:4: . on 127.0.0.1, port 1053, is already served by the block at Corefile:1",
        ),
        (
            ".:1053 {\n}\na:1053 {\nbind lo\n}",
            "Corefile:3: cannot listen on port 1053 on 127.0.0.1 beside every address" + WANTED,
        ),
        (
            "a:1053 {\nbind 127.0.0.1\n}\n.:1053 {\nbind 0.0.0.0\n}",
            "Corefile:4: cannot listen on port 1053 on 0.0.0.0 beside 127.0.0.1" + WANTED,
        ),
        (".:1053 {\nbind lo\n}\na:1053 {\nbind 127.0.0.1\n}", ""),
        (".:1053 {\n}\na:1054 {\nbind 127.0.0.1\n}", ""),
        (".:1053 {\nbind 0.0.0.0\n}\na:1053 {\nbind ::1\n}", ""),
        (".:0 {\nbind lo\n}\n.:0 {\nbind 127.0.0.1\n}\n.:0 {\n}", ""),
    ],
)
async def test_two_blocks_do_not_want_the_same_place(text: str, message: str, machine: list[InterfaceAddress]) -> None:
    machine += [InterfaceAddress("lo", address) for address in ("127.0.0.1", "::1")]
    if message:
        with pytest.raises(CorefileError) as caught:
            await DnsServer(()).build(configured(text))
        assert str(caught.value) == message
    else:
        await DnsServer(()).build(configured(text))
