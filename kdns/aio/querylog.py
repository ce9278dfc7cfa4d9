"""The `log` and `errors` directives at work: lines for queries of interest, and for answers that failed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from kdns import logs
from kdns.metrics import Requests
from kdns.plugins.errors import Consolidate, ErrorsConfig
from kdns.plugins.log import Class, Field, LogConfig
from kdns.plugins.names import rcode_name, type_name
from kdns.plugins.server import Server
from kdns.records.names import is_below, labels_of
from kdns.wire.query import HEADER_BYTES, NOERROR, NXDOMAIN, SERVFAIL, Query, read_query
from kdns.wire.respond import error

log = logs.get(__name__)

Later = Callable[[float, Callable[[], None]], object]
"""Calls a function after so many seconds, as `loop.call_later` does."""

SHOWN_BYTES: Final = 512
"""How much of a packet that broke something is logged."""

_FLAGS: Final = (
    ("qr", 0x8000),
    ("aa", 0x0400),
    ("tc", 0x0200),
    ("rd", 0x0100),
    ("ra", 0x0080),
    ("ad", 0x0020),
    ("cd", 0x0010),
)


class Observer(Protocol):
    """Sees what was answered to whom."""

    def __call__(self, packet: bytes, response: bytes, client: tuple[str, int], proto: str, took_s: float) -> None:
        """One query and its response."""


class QueryLog:
    """One server block's lines; the first rule whose zones fit a query decides."""

    def __init__(self, configs: tuple[LogConfig, ...], errors: ErrorsConfig | None, local: str, later: Later) -> None:
        self._rules = [(tuple(labels_of(zone) for zone in config.zones), config) for config in configs]
        self._errors = ErrorLog(errors, later) if errors else None
        self._local = local

    def write(self, query: Query, response: bytes, client: tuple[str, int], proto: str, took_s: float) -> None:
        """Write what the rules want of this query."""
        rcode = response[3] & 15
        if rcode == SERVFAIL and self._errors:
            self._errors.report(f"{query.name} {type_name(query.qtype)}: the answer is not known (SERVFAIL)")
        for zones, config in self._rules:
            if any(is_below(query.labels, zone) for zone in zones):
                if config.wants(answer_class(rcode, response)):
                    fields = query_fields(query, response, client, proto, took_s, self._local)
                    log.info(
                        "query", line="".join(p if isinstance(p, str) else _value(p, fields) for p in config.format)
                    )
                return

    def close(self) -> None:
        """Write what is still being counted."""
        if self._errors:
            self._errors.close()


class ServerLog:
    """The observer of one server: every query is logged as its own block wants it; `logs_by_zone` are the blocks'."""

    def __init__(self, server: Server, logs_by_zone: Mapping[str, QueryLog]) -> None:
        self._server = server
        self._logs = logs_by_zone

    def __call__(self, packet: bytes, response: bytes, client: tuple[str, int], proto: str, took_s: float) -> None:
        """Write the lines of one query."""
        query = read_query(packet)
        block = self._server.block_of(query.labels) if isinstance(query, Query) else None
        if isinstance(query, Query) and block and block.zone in self._logs:
            self._logs[block.zone].write(query, response, client, proto, took_s)

    def close(self) -> None:
        """Write what is still being counted."""
        for one in self._logs.values():
            one.close()


@dataclass(slots=True)
class Pending:
    """Errors of one rule that wait to become a line."""

    count: int
    last: str


class ErrorLog:
    """Error lines; those that match a `consolidate` rule are counted, and are one line when its period is over."""

    def __init__(self, config: ErrorsConfig, later: Later) -> None:
        self._config = config
        self._later = later
        self._pending: dict[Consolidate, Pending] = {}

    def report(self, text: str) -> None:
        """Write or count one error."""
        rule = next((rule for rule in self._config.consolidate if rule.pattern.search(text)), None)
        if rule is None:
            _write("error", text)
        elif waiting := self._pending.get(rule):
            waiting.count += 1
            waiting.last = text
        else:
            self._pending[rule] = Pending(0 if rule.show_first else 1, text)
            self._later(rule.period_s, partial(self._end, rule))
            if rule.show_first:
                _write(rule.level, text)

    def close(self) -> None:
        """Write what is still being counted."""
        for rule in tuple(self._pending):
            self._end(rule)

    def _end(self, rule: Consolidate) -> None:
        waiting = self._pending.pop(rule, None)
        if waiting and waiting.count:
            _write(rule.level, waiting.last, count=waiting.count, period_s=rule.period_s)


def log_failure(failure: Exception, packet: bytes, server: Server) -> None:
    """Write one line about an exception that nobody expected, and its stack where `errors { stacktrace }` wants it.

    The packet is in the line, so that the failure can be repeated.
    """
    frames = traceback.extract_tb(failure.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    facts = {"server": server.label, "error": f"{type(failure).__name__}: {failure}", "where": where}
    stack = {"exc_info": failure} if server.stacktrace else {}
    log.error("query failed unexpectedly", **facts, packet=packet[:SHOWN_BYTES].hex(), **stack)


def failure_response(failure: Exception, packet: bytes, server: Server, requests: Requests) -> bytes:
    """SERVFAIL for a query that met a defect: logged and counted, so that it does not end the others."""
    log_failure(failure, packet, server)
    requests.panics += 1
    return error(packet, SERVFAIL, HEADER_BYTES, None)


def answer_class(rcode: int, response: bytes) -> Class:
    """The class of an answer, as the `log` directive names them: denial for NXDOMAIN and NODATA."""
    if rcode == NXDOMAIN or (rcode == NOERROR and response[6:8] == b"\x00\x00"):
        return "denial"
    return "success" if rcode == NOERROR else "error"


def query_fields(
    query: Query, response: bytes, client: tuple[str, int], proto: str, took_s: float, local: str
) -> dict[str, str]:
    """All that a format may name, in CoreDNS's words."""
    flags = int.from_bytes(response[2:4], "big")
    return {
        "type": type_name(query.qtype),
        "name": query.name,
        "class": "IN" if query.qclass == 1 else f"CLASS{query.qclass}",
        "proto": proto,
        "size": str(len(query.packet)),
        "remote": f"[{client[0]}]" if ":" in client[0] else client[0],
        "port": str(client[1]),
        "local": local,
        ">id": str(int.from_bytes(query.packet[:2], "big")),
        ">opcode": str(query.flags >> 11 & 15),
        ">do": "true" if query.edns and query.edns.do else "false",
        ">bufsize": str(query.edns.payload_bytes if query.edns else 512),
        ">rflags": ",".join(name for name, bit in _FLAGS if flags & bit),
        "rcode": rcode_name(flags & 15),
        "rsize": str(len(response)),
        "duration": f"{took_s:.9f}s",
    }


def _value(field: Field, fields: dict[str, str]) -> str:
    return fields.get(field.name, "-")


def _write(level: str, text: str, **facts: float) -> None:
    getattr(log, level)("query failed", error=text, **facts)
