"""Mode ipvs as it is written: sets, rules, virtual servers and addresses read from the text of `kdns render`, and a
packet's way through them.

It knows nothing of Services. Every destination that a scheduler may choose is followed, so the result is a set of ends.

A virtual server takes packets of others behind filter INPUT and those of the machine behind nat OUTPUT; both go on
through filter OUTPUT with the destination translated (ip_vs_nat_xmit in the kernel).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import TypeAlias

import ipt_walk
from ipt_walk import Arguments, At

Key: TypeAlias = tuple[str, int, str]
"""Address, port and protocol in lower case."""

_PROTOCOLS = {"-t": "tcp", "-u": "udp", "--sctp-service": "sctp"}


class Content(ipt_walk.Node):
    """What one family's part of the text makes of a machine with these addresses, which has none of it before."""

    def __init__(self, text: str, addresses: Iterable[str]) -> None:
        super().__init__(addresses)
        self.own = self.addresses
        self.kernel = ipt_walk.Kernel()
        self.types: dict[str, str] = {}
        self.sets: dict[str, set[str]] = {}
        self.servers: dict[Key, list[tuple[str, int]]] = {}
        self.options: dict[Key, str] = {}
        self.virtual: Key | None = None
        """The virtual server that has translated the packet."""
        for part in text.strip("\n").split("\n\n"):
            _, _, what = part.partition("\n")[0].partition(": ")
            lines = [line for line in part.splitlines() if line and not line.startswith("#")]
            self._read(what.split(" ")[0], lines)

    def _read(self, program: str, lines: list[str]) -> None:
        match program:
            case "ipset":
                for line in lines:
                    self.entry(line)
            case "iptables-restore" | "ip6tables-restore":
                self.kernel.restore("\n".join(lines))
            case "ipvsadm":
                for line in lines:
                    self._server(shlex.split(line))
            case "ip":
                for line in lines:
                    _, _, address, _, link = line.split()
                    assert link == "kube-ipvs0"
                    self.addresses |= {address.partition("/")[0]}
            case _:
                raise ValueError(f"unknown part: {program}")

    def entry(self, line: str) -> None:
        """One line of ipset restore."""
        match line.split(" "):
            case ["create", name, kind, *_]:
                if name in self.sets or len(name) > 31:
                    raise ValueError(line)
                self.types[name], self.sets[name] = kind, set()
            case ["add", name, entry]:
                if entry in self.sets[name]:
                    raise ValueError(line)
                self.sets[name].add(entry)
            case ["del", name, entry]:
                self.sets[name].remove(entry)
            case _:
                raise ValueError(line)

    def _server(self, words: list[str]) -> None:
        command, protocol, where, *rest = words
        key: Key = (*_socket_address(where), _PROTOCOLS[protocol])
        if command == "-A":
            if key in self.servers:
                raise ValueError(f"twice: {where}")
            self.servers[key], self.options[key] = [], " ".join(rest)
            return
        assert (command, rest[0], rest[2:]) == ("-a", "-r", ["-m", "-w", "1"])
        self.servers[key].append(_socket_address(rest[1]))

    def holds(self, option: str, values: Arguments, at: At) -> bool:
        """The matches of sets and of virtual servers."""
        match option, values:
            case "--match-set", (name, directions):
                return self._in_set(name, directions.split(","), at)
            case "--vaddr", (network,):
                return self.virtual is not None and ip_address(self.virtual[0]) in ip_network(network)
            case "--vport", (port,):
                return self.virtual is not None and self.virtual[1] == int(port)
            case "--vproto", (protocol,):
                return self.virtual is not None and self.virtual[2] == protocol
        return super().holds(option, values, at)

    def _in_set(self, name: str, directions: list[str], at: At) -> bool:
        """Directions are of the parts of an entry, in order: "dst,dst,src" of an address, a port and an address."""
        kind, entries = self.types[name], self.sets[name]
        addresses = {"src": at.saddr, "dst": at.daddr}
        if kind == "bitmap:port":
            assert directions == ["dst"]
            return str(at.dport) in entries
        address = addresses[directions[0]]
        if kind == "hash:ip":
            return address in entries
        assert directions[1] == "dst"
        place = f"{address},{at.protocol}:{at.dport}"
        if kind == "hash:ip,port":
            return place in entries
        peer = ip_address(addresses[directions[2]])
        peers = [entry.removeprefix(f"{place},") for entry in entries if entry.startswith(f"{place},")]
        return any(peer in ip_network(each) for each in peers)


def _socket_address(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


def parts(text: str) -> dict[str, str]:
    """The text of each family."""
    first, separator, second = text.partition("# IPv6: ipset")
    return {"IPv4": first, "IPv6": separator + second}


def walk(content: Content, packet: At) -> list[At]:
    """Every way that the packet can end."""
    content.virtual = None
    key = packet.daddr, packet.dport, packet.protocol
    if content.is_local(packet.saddr):
        (at,) = _hooked(content, [("nat", "OUTPUT")], packet)
        return _translated(content, at, key) if key in content.servers else _of_node(content, at)
    (at,) = _hooked(content, [("nat", "PREROUTING")], packet)
    if not content.is_local(at.daddr):
        return _hooked(content, [("filter", "FORWARD"), ("nat", "POSTROUTING")], at)
    (at,) = _hooked(content, [("filter", "INPUT")], at)
    if at.ended in {"drop", "reject"} or key not in content.servers:
        return [at]
    return _translated(content, at, key)


def _of_node(content: Content, at: At) -> list[At]:
    """The machine's own packet that no virtual server takes: to itself, it comes in through lo."""
    hooks = [("filter", "OUTPUT"), ("nat", "POSTROUTING")]
    (at,) = _hooked(content, hooks, at)
    return _hooked(content, [("filter", "INPUT")], at) if content.is_local(at.daddr) and not at.ended else [at]


def _translated(content: Content, at: At, key: Key) -> list[At]:
    """A virtual server without destinations refuses; a destination on the machine gets packets of others at once."""
    content.virtual = key
    if not content.servers[key]:
        return [replace(at, ended="reject")]
    ends = []
    for address, port in content.servers[key]:
        to = replace(at, daddr=address, dport=port, is_dnat=True, ended="")
        if address in content.own and not content.is_local(at.saddr):
            ends.append(to)
        else:
            ends += _hooked(content, [("filter", "OUTPUT"), ("nat", "POSTROUTING")], to)
    return ends


def _hooked(content: Content, hooks: Iterable[tuple[str, str]], at: At) -> list[At]:
    """The packet after these hooks. Only filters end its way."""
    for table, chain in hooks:
        (at,) = ipt_walk.hooked(content.kernel, [(table, chain)], [replace(at, ended="")], content)
        if at.ended in {"drop", "reject"}:
            break
    return [at]
