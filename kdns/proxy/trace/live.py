"""Real connections in words: where the kernel led them, beside where the plan leads them."""

from __future__ import annotations

from collections.abc import Mapping

from kdns.net import join_host_port
from kdns.netlink.conntrack import Connection
from kdns.proxy.plan.plan import FrontKey
from kdns.proxy.trace.trace import Fate, Packet, Trace


def concerns(packet: Packet, connection: Connection) -> bool:
    destination = str(packet.destination), packet.port
    return (connection.protocol, connection.source[0], connection.destination) == (
        packet.protocol,
        str(packet.source),
        destination,
    )


def described(connection: Connection, packet: Packet, trace: Trace) -> str:
    """Returns a connection in one line, with what the plan does not say of it."""
    where = join_host_port(*connection.answers_from)
    said = [f"{join_host_port(*connection.source)} → {where}", connection.state]
    if connection.packets is not None:
        said.append(f"{connection.packets} packet{'s' * (connection.packets != 1)}")
    if connection.answers_to[0] != connection.source[0]:
        said.append(f"the endpoint sees {connection.answers_to[0]}")
    if remark := _difference(connection, packet, trace):
        said.append(remark)
    return ", ".join(said)


def _difference(connection: Connection, packet: Packet, trace: Trace) -> str:
    if connection.answers_from == connection.destination:
        return "not translated" if trace.fate is Fate.FORWARDED else ""
    planned = {(endpoint.address, endpoint.port) for endpoint in trace.endpoints}
    if connection.answers_from in planned:
        return ""
    if connection.answers_from[0] == str(packet.destination) or not planned:
        return "translated by other rules than these"
    return "not one of these endpoints: the connection is older than they are, or other rules or a relay led it there"


def counted(key: FrontKey, before: Mapping[FrontKey, int], now: Mapping[FrontKey, int]) -> str:
    """Returns what the kernel counts of a front, from all clients; "" if it counts nothing of it."""
    if key not in now:
        return ""
    more = now[key] - before.get(key, 0)
    return f"the kernel counted {now[key]} connections to it from all clients, {more} of them meanwhile"
