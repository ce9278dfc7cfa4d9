"""rrl [ZONES…] { … }: limits responses per kind, and queries, per client network and second over UDP.

So queries with forged sources cannot make the server flood others. As BIND's rate-limit and CoreDNS's external plugin
rrl.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, then
from kdns.answers.outcome import ResponseClass, answered_type, referral_owner, response_class_of, soa_owner
from kdns.answers.response import Response
from kdns.dns.names import ZoneSet
from kdns.dns.query import TC
from kdns.net import client_address
from kdns.serverblocks.directive import Directive, World
from kdns.serverblocks.stanza import Option, flag, integer, rate, sets

Verdict: TypeAlias = Literal["send", "slip", "drop"]

MAX_SLIP: Final = 10
MAX_TABLE: Final = 10_000_000
CREDIT_S: Final = 1.0
"""The most credit of an account: the allowance of this time may be used at once."""
SHARES: Final = 16
"""A network may have 1/16 of the table's accounts."""
SHARED: Final = 1024
"""Accounts that networks share for which the table has no room."""
SWEPT: Final = 2
"""Accounts that are checked for each new one, and dropped if their credit is full."""


@dataclass(frozen=True, slots=True)
class RrlConfig:
    """Allowances per second; 0: no limit, None: that of `responses`. Prefix lengths are in bits."""

    zones: tuple[str, ...]
    window_s: float = 15.0
    ipv4_prefix: int = 24
    ipv6_prefix: int = 56
    responses: float = 0.0
    nodata: float | None = None
    nxdomains: float | None = None
    referrals: float | None = None
    errors: float | None = None
    requests: float = 0.0
    max_table_size: int = 100_000
    slip_ratio: int = 0
    report_only: bool = False

    def allowance(self, outcome: ResponseClass) -> float:
        of_kind = {
            ResponseClass.SUCCESS: self.responses,
            ResponseClass.NODATA: self.nodata,
            ResponseClass.NXDOMAIN: self.nxdomains,
            ResponseClass.REFERRAL: self.referrals,
            ResponseClass.ERROR: self.errors,
        }[outcome]
        return self.responses if of_kind is None else of_kind


class Accounts:
    """The remaining allowances of client networks, at most `size` accounts, the least recently used first.

    An account is the time at which its balance was 0, so the clock credits it. One with a credit of CREDIT_S is as good
    as new, and may be dropped. If a network has its share of the table, or the table is full, a further account is one
    of the SHARED ones: several networks then have one allowance, and none evicts the accounts of others.
    """

    def __init__(self, size: int, window_s: float, slip_ratio: int) -> None:
        self._size = size
        self._share = max(size // SHARES, 1)
        self._window_s = window_s
        self._slip_ratio = slip_ratio
        self._accounts: dict[object, tuple[float, int, bytes | None]] = {}
        self._shared: dict[object, tuple[float, int, bytes | None]] = {}
        self._of_network: Counter[bytes | None] = Counter()

    def __len__(self) -> int:
        return len(self._accounts)

    def debit(self, key: object, allowance: float, now_s: float, network: bytes | None = None) -> Verdict:
        """`allowance` is per second; without a `network` the account counts in no share."""
        self._sweep(now_s)
        accounts = self._accounts
        if key not in accounts:
            is_shared = network is not None and self._of_network[network] >= self._share
            if is_shared or len(accounts) >= self._size:
                accounts, key = self._shared, hash(network) % SHARED
            else:
                self._of_network[network] += 1
        zero_s, dropped, _ = accounts.pop(key, (now_s - CREDIT_S, 0, None))
        balance_s = max(min(now_s - zero_s, CREDIT_S) - 1 / allowance, -self._window_s)
        verdict: Verdict = "send"
        if balance_s < 0:
            dropped += 1
            verdict = "slip" if self._slip_ratio and dropped % self._slip_ratio == 0 else "drop"
        accounts[key] = (now_s - balance_s, dropped, network)
        return verdict

    def _sweep(self, now_s: float) -> None:
        for _ in range(SWEPT):
            key = next(iter(self._accounts), None)
            if key is None or now_s - self._accounts[key][0] < CREDIT_S:
                return
            _, _, network = self._accounts.pop(key)
            self._of_network[network] -= 1
            if not self._of_network[network]:
                del self._of_network[network]


class Rrl(Plugin):
    """Drops or truncates responses beyond the limit. Streams are not limited: their sources cannot be forged.

    Differs: denials of one zone share an account, as in BIND, because random names would each have their own.
    Differs: metrics have no label for clients, whose number is unlimited.
    """

    sees = Sees.EVERY

    def __init__(self, config: RrlConfig, world: World) -> None:
        self._config = config
        self._zones = ZoneSet(config.zones)
        self._accounts = Accounts(config.max_table_size, config.window_s, config.slip_ratio)
        name, text = "coredns_rrl_responses_exceeded", "Responses above the allowance of a network."
        self._responses = world.counters(name, text, ()).tally()
        name, text = "coredns_rrl_requests_exceeded", "Queries above the allowance of a network."
        self._requests = world.counters(name, text, ()).tally()

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """Internal queries are not limited."""
        config = self._config
        if request.is_stream or request.depth or request.query.labels not in self._zones:
            return next(request)
        network = self._network(request.client[0])
        if config.requests and self._accounts.debit(network, config.requests, request.received_s, network) != "send":
            self._requests.count += 1
            if not config.report_only:
                return None
        return then(next(request), partial(self._limited, request, network))

    def _limited(self, request: Request, network: bytes, reply: Reply) -> Reply:
        if reply is None:
            return None
        outcome = response_class_of(reply)
        allowance = self._config.allowance(outcome)
        if not allowance:
            return reply
        key = (network, outcome, *_subject(request, reply, outcome))
        verdict = self._accounts.debit(key, allowance, request.received_s, network)
        if verdict == "send":
            return reply
        self._responses.count += 1
        if self._config.report_only:
            return reply
        return Response(reply.rcode, reply.flags | TC, plugin=reply.plugin) if verdict == "slip" else None

    def _network(self, host: str) -> bytes:
        address = client_address(host)
        bits = self._config.ipv4_prefix if len(address) == 4 else self._config.ipv6_prefix
        free = max(len(address) * 8 - bits, 0)
        return (int.from_bytes(address, "big") >> free << free).to_bytes(len(address), "big")


def _subject(request: Request, reply: Response, outcome: ResponseClass) -> tuple[object, ...]:
    """The key that equal responses share, so that a client cannot get further accounts by invented names and types.

    The zone of a denial, the delegation of a referral, the wildcard or name of an answer.
    """
    query = request.query
    match outcome:
        case ResponseClass.ERROR:
            return ()
        case ResponseClass.NXDOMAIN | ResponseClass.NODATA:
            return (soa_owner(reply),)
        case ResponseClass.REFERRAL:
            return (referral_owner(reply),)
        case _:
            rtype = answered_type(reply)
            return () if rtype is None else (reply.wildcard or query.labels, rtype)


OPTIONS = {
    "window": Option("window SECONDS", sets("window_s", lambda word: float(integer(word, 1, 3600)))),
    "ipv4-prefix-length": Option("ipv4-prefix-length LENGTH", sets("ipv4_prefix", integer, 1, 32)),
    "ipv6-prefix-length": Option("ipv6-prefix-length LENGTH", sets("ipv6_prefix", integer, 1, 128)),
    **{
        f"{name}-per-second": Option(f"{name}-per-second ALLOWANCE", sets(name, rate))
        for name in ("responses", "nodata", "nxdomains", "referrals", "errors", "requests")
    },
    "max-table-size": Option("max-table-size SIZE", sets("max_table_size", integer, 1, MAX_TABLE)),
    "slip-ratio": Option("slip-ratio N", sets("slip_ratio", integer, 0, MAX_SLIP)),
    "report-only": Option("report-only", flag("report_only")),
}


DIRECTIVE: Final = Directive("rrl [ZONES...]", RrlConfig, Rrl, OPTIONS)
