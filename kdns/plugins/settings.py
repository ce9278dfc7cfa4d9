"""Directives that set up their server block and are not in the chain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from math import inf
from typing import Final

from kdns.corefile.address import host_port
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.errors import CorefileError, DoubtfulError
from kdns.serverblocks.block_options import (
    BindConfig,
    BlockOptions,
    HealthPage,
    MetricsPage,
    Page,
    ReadyPage,
    StatusPage,
)
from kdns.serverblocks.directive import Directive, Repeat, Row, World
from kdns.serverblocks.listener_options import DEFAULTS, TLS_USAGE, ClientAuth, ListenerOptions, TlsConfig
from kdns.serverblocks.stanza import (
    Option,
    adds,
    choice,
    configured,
    count,
    duration_s,
    flag,
    integer,
    is_duration,
    not_yet,
    path_of,
    sets,
    text,
)

MAX_INTERFACE_CHARS: Final = 15
MOST_PROCESSES: Final = 1024
LEAST_TIMEOUT_S: Final = 1.0
MOST_TIMEOUT_S: Final = 24 * 3600.0
RELOAD_S: Final = 30.0
RELOAD_JITTER_S: Final = 15.0
LEAST_RELOAD_S: Final = 2.0
LEAST_JITTER_S: Final = 1.0
RELOAD_USAGE: Final = "reload [INTERVAL] [JITTER] | off"
CLIENT_AUTHS: Final = tuple(auth.value for auth in ClientAuth)
ACME: Final = frozenset(("acme", "email", "ca", "storage", "ca_root", "resolver"))
"""CoreDNS's options for certificates from an ACME server."""
NO_ACME: Final = (
    f"kdns obtains no certificates, use `{TLS_USAGE}` with files that cert-manager or an ACME client renews"
)
MONITORS: Final = ("until-ready", "continuously")
PPROF_INSTEAD: Final = "`py-spy dump` and `py-spy top` show the stacks of the process"


def _host(token: Token) -> str:
    """The listeners look interfaces up: a name need not exist yet."""
    try:
        return str(ip_address(token.text))
    except ValueError:
        if re.fullmatch(r"[0-9.]*|.*:.*", token.text, re.DOTALL):
            raise token.expected("an IP address without a port (the server block's zone has the port)") from None
    if len(token.text) > MAX_INTERFACE_CHARS or re.search(r"[\s/]", token.text):
        raise token.expected("an IP address or the name of a network interface")
    return token.text


def _tls(stanza: Stanza, _zones: tuple[str, ...]) -> TlsConfig:
    for line in stanza.block:
        if line.name in ACME:
            raise line.error(f"`{line.name}` is not supported: {NO_ACME}")
    count(stanza, TLS_USAGE)
    cert, key, *ca = (token.text for token in stanza.args)
    return configured(TlsConfig(cert, key, ca[0] if ca else "", at=stanza.words[0]), stanza, TLS)


TLS: Final = {
    "client_auth": Option(
        f"client_auth {'|'.join(CLIENT_AUTHS)}",
        sets("client_auth", lambda word: ClientAuth(choice(word, CLIENT_AUTHS))),
    ),
    "keylog": Option("keylog FILE", sets("keylog", text)),
}


def _timeout_s(token: Token) -> float:
    word = token.text
    seconds = float(word) if word.isascii() and word.isdecimal() and len(word) < 10 else duration_s(token)
    if not LEAST_TIMEOUT_S <= seconds <= MOST_TIMEOUT_S:
        raise token.expected("a timeout from 1s to 24h")
    return seconds


def _queries(token: Token) -> float:
    if token.text == "-1":
        return inf
    try:
        return integer(token, 1)
    except CorefileError as error:
        raise token.expected("a whole number of at least 1, or -1 for no limit") from error


TIMEOUTS: Final = {
    "read": Option("read DURATION", sets("read_s", _timeout_s)),
    "write": Option("write DURATION", sets("write_s", _timeout_s)),
    "idle": Option("idle DURATION", sets("idle_s", _timeout_s)),
    "maxtcpqueries": Option("maxtcpqueries N", sets("max_queries", _queries)),
}


def _reload(stanza: Stanza, _zones: tuple[str, ...]) -> BlockOptions:
    """The jitter is at most half of the interval."""
    count(stanza, RELOAD_USAGE, (0, 2))
    args = stanza.args
    every_s = RELOAD_S, RELOAD_JITTER_S
    if args and args[0].text == "off":
        count(stanza, "reload off")
        every_s = 0.0, 0.0
    elif args:
        if not is_duration(args[0].text):
            raise args[0].expected("an interval such as 30s, or `off`")
        interval_s = _interval_s(args[0])
        jitter_s = _jitter_s(args[1]) if len(args) > 1 else RELOAD_JITTER_S
        every_s = interval_s, min(jitter_s, interval_s / 2)
    return configured(BlockOptions(reload_s=every_s), stanza, {})


def _interval_s(token: Token) -> float:
    seconds = duration_s(token)
    if seconds < LEAST_RELOAD_S:
        raise token.expected(f"an interval of at least {LEAST_RELOAD_S:g}s")
    return seconds


def _jitter_s(token: Token) -> float:
    seconds = duration_s(token)
    if 0 < seconds < LEAST_JITTER_S:
        raise token.expected(f"a jitter of at least {LEAST_JITTER_S:g}s, or 0s for none")
    return seconds


def _pprof(stanza: Stanza, _zones: tuple[str, ...]) -> Token:
    """Only the position of the directive is used, for its warning."""
    count(stanza, "pprof [ADDRESS]")
    for token in stanza.args:
        host_port(token)
    return configured(stanza.words[0], stanza, PPROF)


def _pprof_rate(at: Token, line: Line) -> Token:
    for token in line.args:
        integer(token, 0)
    return at


PPROF: Final = {"block": Option("block [RATE]", _pprof_rate)}


def _pprof_warnings(at: Token) -> Iterator[CorefileError]:
    yield DoubtfulError(at.path, at.line, at.text, f"has no effect: {PPROF_INSTEAD}")


def _log_pprof(_at: Token, world: World) -> None:
    world.log("info", "pprof has no effect", instead=PPROF_INSTEAD)


def _listener(options: ListenerOptions) -> BlockOptions:
    return BlockOptions(listener=options)


def _page(page: Page) -> BlockOptions:
    return BlockOptions(pages=(page,))


def _as_is(options: BlockOptions) -> BlockOptions:
    return options


_ROWS: Final[tuple[Row, ...]] = (
    Directive("root PATH", lambda path: BlockOptions(root=path), argument=path_of, sets_up=_as_is),
    Directive(
        TLS_USAGE,
        TlsConfig,
        options=TLS,
        parse=_tls,
        example="cert key",
        sets_up=lambda tls: BlockOptions(listener=ListenerOptions(tls=tls)),
    ),
    Directive(
        "https",
        lambda: ListenerOptions(https_connections=DEFAULTS.https_connections),
        options={
            "max_connections": Option(
                "max_connections N", sets("https_connections", lambda word: integer(word, 0) or inf), once=True
            )
        },
        sets_up=_listener,
    ),
    Directive(
        "quic",
        lambda: ListenerOptions(quic_streams=DEFAULTS.quic_streams, quic_pending=DEFAULTS.quic_pending),
        options={
            "max_streams": Option("max_streams N", sets("quic_streams", integer, 1), once=True),
            "worker_pool_size": Option("worker_pool_size N", sets("quic_pending", integer, 1), once=True),
        },
        sets_up=_listener,
    ),
    Directive(
        "timeouts",
        ListenerOptions,
        options=TIMEOUTS,
        sets_up=_listener,
        needs={"": f"expected a block with at least one of {', '.join(TIMEOUTS)}"},
    ),
    # Differs: CoreDNS opens N sockets for each address in one process; N is one for the whole server here.
    Directive(
        "multisocket [N]",
        lambda processes=inf: BlockOptions(processes=processes),
        argument=lambda word: integer(word, 1, MOST_PROCESSES),
        sets_up=_as_is,
    ),
    Directive(RELOAD_USAGE, BlockOptions, parse=_reload, sets_up=_as_is),
    Directive(
        "bind ADDRESS|INTERFACE...",
        lambda *hosts: BindConfig(tuple(dict.fromkeys(hosts))),
        options={"except": Option("except ADDRESS|INTERFACE...", adds("exclude", _host))},
        repeat=Repeat.ADD,
        argument=_host,
        example="::1",
        sets_up=lambda bind: BlockOptions(binds=(bind,)),
    ),
    # Differs: CoreDNS crashes on a query that fails unexpectedly; kdns answers SERVFAIL and logs the stack trace.
    Directive("debug", lambda: BlockOptions(logs_stacks=True, logs_debug=True), repeat=Repeat.LAST, sets_up=_as_is),
    Directive(
        "ready [ADDRESS]",
        ReadyPage,
        options={
            "monitor": Option(
                "monitor until-ready|continuously",
                sets("continuously", lambda word: choice(word, MONITORS) == "continuously"),
            )
        },
        argument=host_port,
        sets_up=_page,
    ),
    Directive(
        "health [ADDRESS]",
        HealthPage,
        options={"lameduck": Option("lameduck DURATION", sets("lameduck_s", duration_s))},
        repeat=Repeat.LAST,
        argument=host_port,
        sets_up=_page,
    ),
    # Differs: Python has no profiles in pprof's format; py-spy shows the stacks of a running process.
    Directive("pprof [ADDRESS]", Token, _log_pprof, PPROF, parse=_pprof, warnings=_pprof_warnings),
    Directive(
        "prometheus [ADDRESS]",
        MetricsPage,
        options={
            "runtime_metrics": Option("runtime_metrics", flag("runtime")),
            "tls": Option("tls [FILE...]", not_yet("metrics are served over plain HTTP")),
        },
        argument=host_port,
        sets_up=_page,
    ),
    Directive("status [ADDRESS]", StatusPage, argument=host_port, sets_up=_page),
)

SETTINGS: Final = {row.name: row for row in _ROWS}
