"""The numbers of netlink, against those of pyroute2."""

import socket
from collections.abc import Iterator
from inspect import getmembers, isclass
from typing import Any

from pyroute2 import netlink
from pyroute2.netlink import generic, nfnetlink, nlsocket, rtnl
from pyroute2.netlink.generic import ipvs
from pyroute2.netlink.nfnetlink import ipset, nfctsocket, nftsocket
from pyroute2.netlink.rtnl import ifaddrmsg, ifinfmsg

from kdns.netlink import uapi

MODULES = (socket, netlink, nfnetlink, nlsocket, rtnl, nfctsocket, nftsocket, ifaddrmsg, ifinfmsg, generic, ipvs, ipset)
OURS = {name: value for name, value in vars(uapi).items() if isinstance(value, int)}
UNKNOWN_TO_PYROUTE2 = {
    "IPSET_ATTR_BITMASK",
    "IPSET_PROTOCOL",
    "IPVS_GENL_VERSION",
    "IP_VS_CONN_F_MASQ",
    "IP_VS_SVC_F_PERSISTENT",
    "IP_VS_SVC_F_SCHED1",
    "IP_VS_SVC_F_SCHED2",
    "NETLINK_CAP_ACK",
    "NFACCT_NAME",
    "NFACCT_PKTS",
    "NFNL_MSG_ACCT_GET",
    "NFNL_MSG_ACCT_NEW",
    "NFNL_MSG_BATCH_BEGIN",
    "NFNL_MSG_BATCH_END",
    "NFT_GOTO",
    "NFT_SET_ANONYMOUS",
    "NFT_SET_MAP",
    "NLA_TYPE_MASK",
    "SOCK_DIAG_BY_FAMILY",
    "UDIAG_SHOW_NAME",
    "UDIAG_SHOW_UID",
    "UNIX_DIAG_NAME",
    "UNIX_DIAG_UID",
}


def named_numbers() -> dict[str, int]:
    """Constants of modules, and attribute types: an attribute's place in its table."""
    found: dict[str, int] = {}
    for module in MODULES:
        found |= {name: value for name, value in vars(module).items() if isinstance(value, int)}
        for _, cls in getmembers(module, isclass):
            found.update(attribute_types(cls))
    return found


def attribute_types(cls: Any) -> Iterator[tuple[str, int]]:
    table = vars(cls).get("nla_map", ())
    if not isinstance(table, dict):
        yield from ((row[0], number) for number, row in enumerate(table) if isinstance(row[0], str))
        yield from ((row[1], row[0]) for row in table if isinstance(row[0], int))
    for _, inner in getmembers(cls, isclass):
        if inner is not type and inner.__qualname__.startswith(f"{cls.__qualname__}."):
            yield from attribute_types(inner)


def test_numbers_are_those_of_pyroute2() -> None:
    theirs = named_numbers()
    assert {name: theirs[name] for name in OURS if name in theirs} == {
        name: value for name, value in OURS.items() if name in theirs
    }
    assert OURS.keys() - theirs.keys() == UNKNOWN_TO_PYROUTE2
