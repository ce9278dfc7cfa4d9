"""Elements that no map can have are an ApplyError, as those are that the kernel refuses: the process goes on."""

import pytest

from kdns.errors import ApplyError
from kdns.proxy.nftables.elements import element_requests
from kdns.proxy.nftables.objects import ElementKey, Number
from kdns.proxy.nftables.sets import ADDRESSES
from kdns.proxy.nftables.transaction import Transaction

MAP = ADDRESSES.no_endpoints


@pytest.mark.parametrize(
    "key",
    [
        ("10.96.0.1", "tcp", 99999),
        ("10.96.0.1", "tcp", -1),
        ("10.96.0.1", "igmp", 80),
        ("fd00::1", "tcp", 80),
        ("no address", "tcp", 80),
        ("10.96.1", "tcp", 80),
        ("10.096.0.1", "tcp", 80),
        ("10.96.0.1", "tcp"),
        ("10.96.0.1", "tcp", 80, 80),
    ],
)
def test_impossible_elements(key: ElementKey) -> None:
    change = Transaction("IPv4", add={MAP.name: {("10.96.0.2", "tcp", 80): Number(1, "a"), key: Number(1, "a")}})
    with pytest.raises(ApplyError, match=MAP.name):
        list(element_requests(change, {MAP.name: MAP}))
