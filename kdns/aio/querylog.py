"""The `log` and `errors` directives at work: lines for queries of interest, and for answers that failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from kdns import logs
from kdns.plugins.errors import Consolidate, ErrorsConfig
from kdns.plugins.log import Class, Field, LogConfig
from kdns.plugins.names import rcode_name, type_name
from kdns.records.names import labels_of
from kdns.wire.query import NOERROR, NXDOMAIN, SERVFAIL, Query, read_query

log = logs.get(__name__)

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


@dataclass(slots=True)
class Pending:
    """Errors of one rule that wait to become a line."""

    first_s: float
    count: int
    last: str


class QueryLog:
    """One server block's lines; the first rule whose zones and classes fit a query writes it."""

    def __init__(self, configs: tuple[LogConfig, ...], errors: ErrorsConfig | None, local: str) -> None:
        self._rules = [(tuple(labels_of(zone) for zone in config.zones), config) for config in configs]
        self._errors = ErrorLog(errors) if errors else None
        self._local = local

    def __call__(self, packet: bytes, response: bytes, client: tuple[str, int], proto: str, took_s: float) -> None:
        """Write what the rules want of this query."""
        query = read_query(packet)
        if not isinstance(query, Query):
            return
        rcode = response[3] & 15
        if rcode == SERVFAIL and self._errors:
            self._errors.report(f"{query.name} {type_name(query.qtype)}: the answer is not known (SERVFAIL)")
        for zones, config in self._rules:
            if any(not zone or query.labels[-len(zone) :] == zone for zone in zones):
                if config.wants(answer_class(rcode, response)):
                    fields = query_fields(query, response, client, proto, took_s, self._local)
                    log.info(
                        "query", line="".join(p if isinstance(p, str) else _value(p, fields) for p in config.format)
                    )
                return


class ErrorLog:
    """Error lines; those that match a `consolidate` rule are counted and written once a period."""

    def __init__(self, config: ErrorsConfig, now_s: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now_s = now_s
        self._pending: dict[Consolidate, Pending] = {}

    def report(self, text: str) -> None:
        """Write or count one error."""
        self.flush()
        for rule in self._config.consolidate:
            if rule.pattern.search(text):
                waiting = self._pending.get(rule)
                if waiting is None:
                    self._pending[rule] = Pending(self._now_s(), 0 if rule.show_first else 1, text)
                    if rule.show_first:
                        _write(rule.level, text)
                else:
                    waiting.count += 1
                    waiting.last = text
                return
        _write("error", text)

    def flush(self, *, all_of_them: bool = False) -> None:
        """Write the rules whose period is over."""
        for rule, waiting in tuple(self._pending.items()):
            if all_of_them or self._now_s() - waiting.first_s >= rule.period_s:
                del self._pending[rule]
                if waiting.count:
                    _write(rule.level, waiting.last, count=waiting.count, period_s=rule.period_s)


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
