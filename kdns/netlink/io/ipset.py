"""Requests to ipset. All of them block."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from kdns.net import Family
from kdns.netlink import uapi
from kdns.netlink.io.requests import Requests
from kdns.netlink.ipset import (
    ERROR_TEXTS,
    Header,
    SetType,
    changes,
    creation,
    entries_of,
    header_of,
    name_attribute,
    request,
    type_query,
)
from kdns.netlink.protocol import NFGENMSG, Change, attribute, attributes, text_attribute


class IpSets:
    """Requests to ipset, one after the other."""

    def __init__(self, kernel: Requests) -> None:
        self._kernel = kernel
        self._revisions: dict[tuple[str, Family], int] = {}

    def headers(self) -> dict[str, Header]:
        only_headers = struct.pack(">I", uapi.IPSET_FLAG_LIST_HEADER)
        flags = attribute(uapi.IPSET_ATTR_FLAGS | uapi.NLA_F_NET_BYTEORDER, only_headers)
        kind, _, body = request(uapi.IPSET_CMD_LIST, flags)
        return dict(self._kernel.dump(kind, body, header_of))

    def entries(self, name: str) -> set[str]:
        """FileNotFoundError if the set does not exist."""
        kind, _, body = request(uapi.IPSET_CMD_LIST, name_attribute(name))
        return set(chain.from_iterable(self._kernel.dump(kind, body, lambda part: list(entries_of(part)))))

    def lacks(self, type_name: str) -> str:
        """Why the kernel does not support sets of a type, or ""."""
        try:
            self._revision(type_name, "IPv4")
        except OSError as error:
            return error_text(error.errno or 0)
        return ""

    def create(self, name: str, kind: SetType) -> None:
        revision = self._revision(kind.type_name, kind.family)
        self._do((creation(name, kind, revision),), f"create set {name} {kind.type_name}")

    def destroy(self, name: str) -> bool:
        """Destroys a set; returns whether it no longer exists. False if a rule uses it."""
        refused = self._kernel.do_all([request(uapi.IPSET_CMD_DESTROY, name_attribute(name))])
        return refused.get(0, errno.ENOENT) == errno.ENOENT

    def swap(self, one: str, other: str) -> None:
        """Exchanges two sets of the same type: rules that use the one then use the other."""
        names = name_attribute(one), text_attribute(uapi.IPSET_ATTR_TYPENAME, other)
        self._do((request(uapi.IPSET_CMD_SWAP, *names),), f"swap sets {one} and {other}")

    def add(self, name: str, entries: Iterable[str]) -> None:
        self._do(tuple(changes(uapi.IPSET_CMD_ADD, name, entries)), f"add entries to set {name}")

    def delete(self, name: str, entries: Iterable[str]) -> None:
        self._do(tuple(changes(uapi.IPSET_CMD_DEL, name, entries)), f"delete entries of set {name}")

    def _revision(self, type_name: str, family: Family) -> int:
        """The latest revision that the kernel has: ipset(8) cannot list entries of SCTP in sets of revision 0.

        Asking for it loads the type's module.
        """
        if (type_name, family) not in self._revisions:
            kind, _, body = type_query(type_name, family)
            try:
                answer = self._kernel.ask(kind, body)
            except OSError as error:
                text = f"sets of type {type_name} for {family}: {error_text(error.errno or 0)}"
                raise OSError(error.errno, text) from error
            self._revisions[type_name, family] = attributes(answer, NFGENMSG.size)[uapi.IPSET_ATTR_REVISION][0]
        return self._revisions[type_name, family]

    def _do(self, messages: Sequence[Change], purpose: str) -> None:
        for error in self._kernel.do_all(messages).values():
            raise OSError(error, f"{purpose}: {error_text(error)}")


@contextmanager
def ipsets() -> Iterator[IpSets]:
    with Requests(uapi.NETLINK_NETFILTER) as kernel:
        yield IpSets(kernel)


def error_text(error: int) -> str:
    """Some numbers are beyond those of the C library."""
    return ERROR_TEXTS.get(error) or os.strerror(error)
