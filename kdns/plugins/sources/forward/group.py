"""The upstreams of one stanza: their order, their health, and the addresses of host names.

Differs: CoreDNS does not start while a name has no address; kdns starts, logs, and retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from kdns.answers.decode import from_wire
from kdns.dns.names import labels_of
from kdns.dns.query import RD, query_for
from kdns.dns.rrset import RRset
from kdns.dns.types import AAAA, NOERROR, NS, NXDOMAIN, A, rcode_name
from kdns.errors import CorefileError, InputError
from kdns.net import HostPort, unpacked
from kdns.plugins.sources.forward.bailiwick import checked
from kdns.plugins.sources.forward.config import MAX_UPSTREAMS, ForwardConfig, Policy
from kdns.plugins.sources.forward.targets import File, Target, resolv_conf
from kdns.serverblocks.directive import Histogram, Histograms, RandomNumbers, World
from kdns.tally import Tally
from kdns.upstream.upstream import Transport, Upstream, UpstreamError, UpstreamSpec

PROXY_NAME: Final = "forward"
BOUNDS_S: Final = tuple(0.00025 * 2**power for power in range(16))
CHECK_TIMEOUT_S: Final = 1.0
SHORTEST_INTERVAL_S: Final = 0.01
FILE_EVERY_S: Final = 30.0
"""The interval at which a file of upstreams is checked."""
CLOSE_AFTER_S: Final = 6.0
"""A removed upstream is closed after this time, in which its pending queries end."""
RESOLV_CONF: Final = "/etc/resolv.conf"
RESOLVE_TIMEOUT_S: Final = 2.0
SHORTEST_TTL_S: Final = 5.0
LONGEST_TTL_S: Final = 3600.0
RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0


class Durations(dict[int, Histogram]):
    """Response times of one upstream by rcode; rcodes without a name are "other"."""

    def __init__(self, address: str, histograms: Histograms) -> None:
        super().__init__()
        self._address = address
        self._histograms = histograms

    def __missing__(self, rcode: int) -> Histogram:
        name = rcode_name(rcode)
        label = "other" if name.startswith("RCODE") else name
        histogram = self[rcode] = self._histograms.histogram(PROXY_NAME, self._address, label)
        return histogram


class Member:
    """One upstream of a stanza with its health; `name` is its form in a Corefile.

    Health checks start when a query gets no response, and end with the first response, whatever its rcode. It `is_down`
    after more than max_fails failed checks in a row.
    """

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        config: ForwardConfig,
        tasks: World,
        failures: Tally,
        durations: Histograms,
    ) -> None:
        self.name = name
        self.upstream = upstream
        self.is_down = False
        self._fails = 0
        self.durations = Durations(str(upstream.spec.address), durations)
        self._check = config.health_check
        self._max_fails = config.max_fails
        self._tasks = tasks
        self._failures = failures
        self._is_checking = False

    def failed(self, transport: Transport) -> None:
        """Starts health checks, over the protocol that got no response, unless they are running."""
        if self._max_fails and not self._is_checking:
            self._is_checking = True
            self._tasks.spawn(lambda: self._check_health(transport))

    async def _check_health(self, transport: Transport) -> None:
        check = self._check
        query = query_for(labels_of(check.domain), NS, flags=RD if check.recursion_desired else 0)
        try:
            while True:
                try:
                    await self.upstream.exchange(query, transport, CHECK_TIMEOUT_S)
                except UpstreamError:
                    self._fails += 1
                    self.is_down = self._fails > self._max_fails
                    self._failures.count += 1
                    await self._tasks.sleep(max(check.interval_s, SHORTEST_INTERVAL_S))
                else:
                    break
        finally:
            self._is_checking = False
        self._fails = 0
        self.is_down = False


Members: TypeAlias = tuple[Member, ...]
Order: TypeAlias = Callable[[Members], Iterable[Member]]


def order(policy: Policy, random: RandomNumbers) -> Order:
    policies: dict[Policy, Order] = {
        "random": partial(_random, random),
        "round_robin": _RoundRobin(),
        "sequential": lambda members: members,
    }
    return policies[policy]


def _random(random: RandomNumbers, members: Members) -> Iterator[Member]:
    """Members in a random order, computed lazily."""
    remaining = list(members)
    while len(remaining) > 1:
        yield remaining.pop(random.randrange(len(remaining)))
    yield from remaining


class _RoundRobin:
    """Rotates the members, in the order of the Corefile."""

    def __init__(self) -> None:
        self._turn = -1

    def __call__(self, members: Members) -> Members:
        self._turn = (self._turn + 1) % max(len(members), 1)
        return members[self._turn :] + members[: self._turn]


class Name:
    """One host name; calls `update` with its addresses after each resolution."""

    def __init__(
        self, target: Target, config: ForwardConfig, world: World, update: Callable[[tuple[Target, ...]], None]
    ) -> None:
        self._target = target
        self._world = world
        self._update = update
        self._resolvers: tuple[Upstream, ...] = ()
        self._is_known = False
        if config.resolvers:
            self._use(config.resolvers)
        else:
            world.watch_file("resolv.conf", RESOLV_CONF, 30.0, self._read)
        world.spawn(self._follow)

    def _read(self, text: str) -> None:
        addresses = [target.address for target in resolv_conf(text).targets]
        if not addresses:
            raise CorefileError(
                RESOLV_CONF, 0, "", f"expected a line `nameserver ADDRESS` to resolve {self._target.host} with"
            )
        self._use(addresses)

    def _use(self, addresses: Iterable[HostPort]) -> None:
        for upstream in self._resolvers:
            self._world.call_later(2 * RESOLVE_TIMEOUT_S, upstream.close)
        self._resolvers = tuple(self._world.upstream(UpstreamSpec(address)) for address in addresses)

    async def _follow(self) -> None:
        pause_s = RETRY_S
        while True:
            addresses, ttl_s = await self._addresses()
            if addresses:
                pause_s = RETRY_S
                self._take(addresses)
                await self._world.sleep(min(max(ttl_s, SHORTEST_TTL_S), LONGEST_TTL_S))
                continue
            self._world.log("warning", "upstream name not resolved", name=self._target.host, retry_s=pause_s)
            await self._world.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_RETRY_S)

    def _take(self, addresses: tuple[str, ...]) -> None:
        try:
            self._update(tuple(map(self._target.at, addresses)))
        except CorefileError as error:
            self._world.log("warning", "upstream addresses not usable", name=self._target.host, error=str(error))

    async def _addresses(self) -> tuple[tuple[str, ...], float]:
        """The name's current addresses, and their TTL; () if no resolver answered.

        If only one of the two types fails, known addresses stay in use.
        """
        answers: list[RRset] = []
        for qtype in (A, AAAA):
            rrsets = await self._rrsets(qtype)
            if rrsets is None and self._is_known:
                return (), 0.0
            answers += rrsets or ()
        packed = {rdata for rrset in answers for rdata in rrset.rdata if isinstance(rdata, bytes)}
        self._is_known = self._is_known or bool(packed)
        return tuple(map(unpacked, sorted(packed))), float(min((rrset.ttl for rrset in answers), default=0))

    async def _rrsets(self, qtype: int) -> list[RRset] | None:
        """Addresses of one family from the first resolver that answers; None if none does."""
        query = query_for(labels_of(self._target.host), qtype)
        for resolver in self._resolvers:
            try:
                wire = await resolver.exchange(query, "udp", RESOLVE_TIMEOUT_S)
                response = from_wire(checked(wire, query, ""))
            except (UpstreamError, ValueError):
                continue
            if response.rcode in {NOERROR, NXDOMAIN}:
                return [rrset for rrset in response.answer if rrset.rtype == qtype]
        return None


class Group:
    """The upstreams of a stanza, in the order of its words; `members` changes with files and host names.

    `usable` are the members that are not disabled. A member that stays keeps its connections and its health.
    """

    def __init__(self, config: ForwardConfig, world: World) -> None:
        self.members: Members = ()
        self.usable: Members = ()
        self._config = config
        self._world = world
        self._failures = world.counters(
            "coredns_proxy_healthcheck_failures", "Health checks of upstreams that failed.", ("proxy_name", "to")
        )
        self._durations = world.histograms(
            "coredns_proxy_request_duration_seconds",
            "Time that upstreams took to answer.",
            ("proxy_name", "to", "rcode"),
            BOUNDS_S,
        )
        self._parts: list[tuple[Target, ...]] = [()] * len(config.targets)
        self._by_target: dict[Target, Member] = {}
        self._disabled: AbstractSet[Member] = frozenset()
        names: list[Name] = []
        for part, target in enumerate(config.targets):
            update = partial(self._update, part)
            if isinstance(target, File) or (target.may_be_file and world.has_file(target.host)):
                path = target.path if isinstance(target, File) else target.host
                world.watch_file("file of upstreams", path, FILE_EVERY_S, partial(self._read, path, part))
            elif target.is_name:
                names.append(Name(target, config, world, update))
            else:
                update((target,))
        if not self.members and not names:
            raise self._error("no upstream; expected a line `nameserver ADDRESS` in one of the files")

    def disable(self, members: AbstractSet[Member]) -> None:
        self._disabled = members
        self.usable = tuple(member for member in self.members if member not in members)

    def _read(self, path: str, part: int, text: str) -> None:
        """A file that becomes empty changes nothing."""
        nameservers = resolv_conf(text)
        for line, word in nameservers.wrong:
            self._world.log(
                "warning", "nameserver line ignored", file=path, line=line, got=word, expected="nameserver ADDRESS"
            )
        if not nameservers.targets and self._parts[part]:
            raise CorefileError(path, 0, "", "expected a line `nameserver ADDRESS`")
        self._update(part, nameservers.targets)

    def _update(self, part: int, targets: tuple[Target, ...]) -> None:
        """Sets the upstreams of one word of the stanza; CorefileError for too many, and for an unusable one."""
        if targets == self._parts[part]:
            return
        parts = [*self._parts[:part], targets, *self._parts[part + 1 :]]
        all_targets = list(chain.from_iterable(parts))
        if len(all_targets) > MAX_UPSTREAMS:
            raise self._error(f"expected at most {MAX_UPSTREAMS} upstreams, got {len(all_targets)}")
        members = {target: self._by_target.get(target) or self._member(target) for target in all_targets}
        removed = [member for target, member in self._by_target.items() if target not in members]
        self._parts, self._by_target = parts, members
        self.members = tuple(members[target] for target in all_targets)
        self.disable(self._disabled & set(self.members))
        for member in removed:
            self._world.call_later(CLOSE_AFTER_S, member.upstream.close)

    def _member(self, target: Target) -> Member:
        try:
            upstream = self._world.upstream(self._config.spec(target))
        except CorefileError:
            raise
        except InputError as error:
            raise self._error(f"{target}: {error}") from error
        failures = self._failures.tally(PROXY_NAME, str(upstream.spec.address))
        return Member(str(target), upstream, self._config, self._world, failures, self._durations)

    def _error(self, reason: str) -> CorefileError:
        token = self._config.targets[0].token
        return token.error(reason) if token else CorefileError("", 0, "", reason)
