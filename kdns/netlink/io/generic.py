"""Generic netlink: the number that the kernel has given to a family, which is the type of its messages."""

from __future__ import annotations

import errno
import struct
import sys
from typing import Final

from kdns.netlink.io.protocol import Requests, attribute, attributes
from kdns.netlink.uapi import CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_CMD_GETFAMILY, GENL_ID_CTRL

GENLMSGHDR: Final = struct.Struct("=BBH")
"""The header of every message of generic netlink: command, version, reserved."""


def family_id(kernel: Requests, name: str) -> int:
    """The number of a family; FileNotFoundError where the kernel has none of this name, also after loading modules."""
    body = GENLMSGHDR.pack(CTRL_CMD_GETFAMILY, 1, 0) + attribute(CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0")
    row = attributes(kernel.ask(GENL_ID_CTRL, body), GENLMSGHDR.size)
    if CTRL_ATTR_FAMILY_ID not in row:
        raise FileNotFoundError(errno.ENOENT, f"generic netlink has no family {name}")
    return int.from_bytes(row[CTRL_ATTR_FAMILY_ID], sys.byteorder)
