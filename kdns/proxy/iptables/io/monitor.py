"""Notices foreign changes of mode iptables' rules. Other programs write the same tables, and often: only what changes
our chains, or the jumps to them, counts.

The back end nft reports every transaction, with the port of its author's netlink socket; our programs are known by
theirs. The back end legacy reports nothing; there the proxier compares the sizes of tables.

Differs: kube-proxy looks every 30 s whether a chain of table mangle is there. It does not notice a flush of nat alone,
or of a Service's chain, until a full sync is due for other reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kdns import logs
from kdns.netlink.io.transactions import TransactionSocket
from kdns.netlink.protocol import ADDRESS_FAMILY, NFGENMSG, Message, attributes, text_of
from kdns.netlink.transactions import Author, TransactionReader
from kdns.netlink.uapi import (
    NFT_MSG_DELCHAIN,
    NFT_MSG_DELRULE,
    NFT_MSG_DELTABLE,
    NFT_MSG_NEWRULE,
    NFTA_CHAIN_NAME,
    NFTA_RULE_CHAIN,
    NFTA_TABLE_NAME,
)
from kdns.netlink.xtables import chains_in
from kdns.proxy.xtables.io import programs
from kdns.proxy.xtables.names import FILTER, FIREWALL, FIXED, NAT, is_service_chain

_BURST: Final = 64
"""Datagrams that are read before others of this event loop have their turn."""
_ROOM_BYTES: Final = 1 << 23

_LOOPBACK: Final = (FILTER, FIREWALL)
_REMOVALS: Final = {NFT_MSG_DELRULE, NFT_MSG_DELCHAIN}

log = logs.get(__name__)


def is_own(table: str, chain: str) -> bool:
    """Returns whether a chain is the proxy's alone; the kubelet makes KUBE-FIREWALL as well."""
    is_fixed = chain in FIXED.get(table, ()) and chain != FIREWALL
    return is_fixed or (table == NAT and is_service_chain(chain))


def changes_rules(message: Message) -> bool:
    """Returns whether a message changes our chains, or removes a jump to them.

    In KUBE-FIREWALL others may add rules. It has the rule without which route_localnet lets others reach 127.0.0.1.
    """
    body, kind = message.body, message.kind & 0xFF
    if body[0] not in ADDRESS_FAMILY.values() or (b"KUBE-" not in body and kind != NFT_MSG_DELTABLE):
        return False
    row = attributes(body, NFGENMSG.size)
    table = text_of(row.get(NFTA_TABLE_NAME, b""))
    if kind == NFT_MSG_DELTABLE or table not in FIXED:
        return table in FIXED
    is_rule = kind in {NFT_MSG_NEWRULE, NFT_MSG_DELRULE}
    chain = text_of(row.get(NFTA_RULE_CHAIN if is_rule else NFTA_CHAIN_NAME, b""))
    if is_own(table, chain):
        return True
    if kind not in _REMOVALS:
        return False
    leading = chains_in(body) if kind == NFT_MSG_DELRULE else ()
    return (table, chain) == _LOOPBACK or any(is_own(table, each) or (table, each) == _LOOPBACK for each in leading)


class TransactionMonitor:
    """Calls `changed` when another process changed the rules of iptables-nft. Lives in one event loop.

    `look` is called where messages were lost, and calls `changed` itself.
    """

    def __init__(self, changed: Callable[[str], None], look: Callable[[], None]) -> None:
        self._changed, self._look = changed, look
        self._socket: TransactionSocket | None = None
        self._own: set[int] = set()
        self._ended: list[int] = []
        self._starting = 0
        self._suspects: list[Author] = []

    def start(self) -> None:
        """Listens. A refusal of the kernel is logged; then only the periodic full sync repairs foreign changes."""
        try:
            self._socket = TransactionSocket(TransactionReader(changes_rules, self._own), room_bytes=_ROOM_BYTES)
        except OSError as error:
            log.warning("foreign changes of rules are not noticed at once", reason=error.strerror)
            return
        asyncio.get_running_loop().add_reader(self._socket, self._readable)
        programs.observers.append(self._program)

    def close(self) -> None:
        if self._socket:
            programs.observers.remove(self._program)
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _program(self, pid: int, runs: bool) -> None:
        """An own program is about to start, runs, or has ended. Its port is its id, which a new process may get.

        Programs run one at a time.
        """
        if self._socket is None:
            return
        if not pid:
            self._starting += 1 if runs else -1
        elif runs:
            self._starting -= 1
            self._own.add(pid)
            self._socket.pass_over(pid)
        else:
            self._ended.append(pid)
            self._socket.pass_over(None)
        asyncio.get_running_loop().call_soon(self._readable)

    def _readable(self) -> None:
        if self._socket is None:
            return
        ended = len(self._ended)
        authors, is_empty = self._socket.authors(_BURST)
        self._suspects += authors
        if self._starting:  # one of them may be the program whose id is not known yet
            return
        foreign = [each for each in self._suspects if each.port not in self._own]
        self._suspects.clear()
        if is_empty:
            self._own.difference_update(self._ended[:ended])
            del self._ended[:ended]
        if is_empty and self._socket.is_overrun:  # until then the kernel keeps losing messages
            self._socket.is_overrun = False
            self._look()
        if foreign:
            self._changed(str(foreign[-1]))
