"""A chain on a clock that a test sets: what a listener sends, and everything that its metrics count."""

from collections import Counter
from collections.abc import Callable

from configured import configured
from decoded_message import decode
from dns_chain import FakeWorld, held

from kdns.answers.answer import ResponseKind
from kdns.answers.chain import Block, Chain, Plugin
from kdns.answers.table import packet_key
from kdns.dns.wire import records, without_opt
from kdns.dnsserver.blocks import Client, Server, WireResponse


def nothing() -> None:
    """Nothing happens."""


def sent(
    server: Server,
    packet: bytes,
    setup: FakeWorld,
    transport: str = "udp",
    client: Client = ("2001:db8::1", 1),
    meanwhile: Callable[[], None] = nothing,
) -> bytes:
    """What a listener sends, from the table first; `meanwhile` happens whenever a plugin waits."""
    partition = server.table.partition(transport, 6)
    if answer := held(partition, packet, setup.clock_s):
        return answer.wire(packet)
    outcome = server.respond(packet, partition, client, setup.clock_s, packet_key(packet))
    while not isinstance(outcome, WireResponse):
        try:
            outcome.send(None)
        except StopIteration as stop:
            outcome = stop.value
        else:
            meanwhile()
        setup.advance()
    setup.advance()
    return outcome.wire


def meaning(wire: bytes) -> object:
    """A response without its id and the order of its records; None for silence."""
    if not wire:
        return None
    decoded = decode(wire)
    parts = map(Counter, (decoded.answer, decoded.authority, decoded.additional))
    return decoded.rcode, decoded.flags, *parts, without_opt(wire, records(wire))[1]


class ChainWorld:
    """A server of these directives and plugins; without `is_compiled`, its whole chain answers everything."""

    def __init__(
        self,
        stanzas: str,
        *behind: Plugin,
        setup: FakeWorld | None = None,
        is_compiled: bool = True,
        has_table: bool = True,
        elsewhere: Chain | None = None,
        zones: tuple[str, ...] = (".",),
    ) -> None:
        self.setup = setup or FakeWorld()
        (config,) = configured(f". {{\n{stanzas}\n}}\n")
        self.setup.built = (*config.build(self.setup), *behind)
        chain = Chain(self.setup.built)
        chain.is_cacheable = chain.is_cacheable and has_table
        blocks = [Block(zone, elsewhere if elsewhere and number else chain) for number, zone in enumerate(zones)]
        self.server = Server("dns://:53", blocks)
        self.setup.servers.append(self.server)
        if not is_compiled:
            self.server._routes = {}  # noqa: SLF001 - then every question is like one that is not plain

    def ask(self, packet: bytes, transport: str) -> bytes:
        return sent(self.server, packet, self.setup, transport)

    def responses(self) -> dict[tuple[str, ResponseKind], int]:
        """How many responses of each kind were sent over each transport, as a scrape has them."""
        partitions = self.server.table.partitions.values()
        return {(partition.transport, kind): times for partition in partitions for kind, times in partition.totals()}

    def counts(self) -> dict[tuple[str, tuple[str, ...]], object]:
        """The counters of the directives that are not 0, and their histograms."""
        counted = ((name, *sample) for name, each in self.setup.counted.items() for sample in each.samples())
        measured = ((name, *sample) for name, each in self.setup.measured.items() for sample in each.samples())
        found: dict[tuple[str, tuple[str, ...]], object] = {
            (name, labels): count for name, labels, count in counted if count
        }
        return found | {(name, labels): (one.counts, one.sum) for name, labels, one in measured}
