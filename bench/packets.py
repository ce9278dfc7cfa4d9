"""A million packets, most of them nonsense, against a live UDP listener: what kdns must never do, it must not do here.

A third are good questions, asked in every spelling and with every kind of EDNS; a third are those with bytes changed,
cut, doubled or put in; a third is noise. For each response this checks that it is one: a message dnslib can read, with
QR set, the query's id and opcode, the query's own question, and records that are right by a table kept here. What is
silent must deserve it: answers, and fragments shorter than a header. Memory is read on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import sys
import time
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

import dnslib
import msgspec
from _cluster import ENDPOINTS, NAMESPACE, ZONE, cluster_ip, endpoint_ips, objects

from kdns.dnsserver.io.request_metrics import Requests

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from dns_chain import cluster_server

from kdns.answers.order import Order
from kdns.cluster.objects import EndpointSlice, Namespace, Service
from kdns.cluster.state import State
from kdns.dnsserver.io.stream import Clients
from kdns.dnsserver.io.udp import UdpListener
from kdns.plugins.sources.kubernetes.options import Options

SERVICES: Final = 300
BATCH: Final = 64
WARM_UP: Final = 0.1
"""The share of the packets after which memory is read for the first time."""
GROWTH_MIB: Final = 120.0
"""The answers kdns may keep, about 60 MiB when full (answers/table.py); as much again for the allocator."""

Truth: TypeAlias = tuple[str, frozenset[str]]
"""rcode and rdata of a right answer."""
NXDOMAIN: Final[Truth] = ("NXDOMAIN", frozenset())
NODATA: Final[Truth] = ("NOERROR", frozenset())


def state() -> State:
    """The benchmark cluster."""
    known = State(synced={Namespace, Service, EndpointSlice})
    kinds = zip((Namespace, Service, EndpointSlice), objects(SERVICES).values(), strict=True)
    for kind, items in kinds:
        for item in items:
            known.upsert(msgspec.convert(item, kind))
    return known


def truth() -> dict[tuple[str, int], Truth]:
    """The right answer to the questions that are asked on purpose."""
    a, aaaa, srv, txt = (dnslib.QTYPE.A, dnslib.QTYPE.AAAA, dnslib.QTYPE.SRV, dnslib.QTYPE.TXT)
    known: dict[tuple[str, int], Truth] = {(f"dns-version.{ZONE}", txt): ("NOERROR", frozenset({'"1.1.0"'}))}
    for number in range(SERVICES):
        name = f"svc-{number}.{NAMESPACE}.svc.{ZONE}"
        known[name, a] = ("NOERROR", frozenset({cluster_ip(number)}))
        known[name, aaaa] = NODATA
        known[f"{name}.default.svc.{ZONE}", a] = NXDOMAIN
        known[f"_http._tcp.{name}", srv] = known[name, srv] = ("NOERROR", frozenset({f"0 100 80 {name}."}))
        known[f"_tcp.{name}", a] = NODATA
        name = f"set-{number}.{NAMESPACE}.svc.{ZONE}"
        ips = endpoint_ips(number)
        known[name, a] = ("NOERROR", frozenset(ips))
        hosts = {f"0 {100 // ENDPOINTS} 8080 {ip.replace('.', '-')}.{name}." for ip in ips}
        known[f"_http._tcp.{name}", srv] = known[name, srv] = ("NOERROR", frozenset(hosts))
    return known


TRUTH: Final = truth()
QUESTIONS: Final = tuple(TRUTH)
EXISTING: Final = frozenset(name for (name, _), (rcode, _) in TRUTH.items() if rcode == "NOERROR")


def good_query() -> bytes:
    """A question with a known answer, in some spelling, with or without EDNS."""
    name, qtype = random.choice(QUESTIONS)
    spelled = "".join(letter.upper() if random.random() < 0.3 else letter for letter in name)
    record = dnslib.DNSRecord(dnslib.DNSHeader(rd=random.getrandbits(1)), q=dnslib.DNSQuestion(spelled, qtype))
    match random.randrange(4):
        case 0 | 1:
            record.add_ar(dnslib.EDNS0(flags=random.choice(["", "do"]), udp_len=random.choice([0, 512, 1232, 4096])))
        case 2:
            cookie = dnslib.EDNSOption(10, os.urandom(8))
            record.add_ar(dnslib.EDNS0(udp_len=1232, opts=[cookie]))
    return bytes(record.pack())


def new_query() -> bytes:
    """A question that nobody has asked."""
    return bytes(dnslib.DNSRecord.question(f"{os.urandom(12).hex()}.{ZONE}").pack())


def mutated() -> bytes:
    """A good query with something wrong in it."""
    packet = bytearray(good_query())
    for _ in range(random.choice([1, 1, 2, 5])):
        at = random.randrange(len(packet) + 1)
        match random.randrange(6):
            case 0:
                del packet[at:]
            case 1:
                packet[at:at] = os.urandom(random.randrange(1, 8))
            case 2:
                del packet[at : at + random.randrange(1, 4)]
            case 3:
                packet += packet[at:]
            case _ if at < len(packet):
                packet[at] = random.choice([random.getrandbits(8), 0xC0, 0, 63, 64, 255, packet[at] ^ 0x20])
        if not packet:
            return b""
    return bytes(packet[:4000])


def noise() -> bytes:
    """Random bytes; half of them behind a header that claims to be a query."""
    header = b"" if random.getrandbits(1) else b"\0\0\1\0\0\1\0\0\0\0\0\0"
    return header + os.urandom(random.choice([0, 1, 5, 12, 17, 40, 100, 600]))


MAKERS: Final = (good_query, mutated, noise)


@lru_cache(maxsize=20_000)
def wrong(query: bytes, response: bytes) -> str:
    """What is wrong with a response to a query, both without their ids; "" if nothing is."""
    packet, answer = b"\0\0" + query, b"\0\0" + response
    if packet[2] & 0x80:
        return "an answer got an answer"
    try:
        got = dnslib.DNSRecord.parse(answer)
    except (dnslib.DNSError, dnslib.buffer.BufferError) as error:
        if "Invalid label" not in str(error):  # dnslib takes no labels beyond ASCII, DNS does (RFC 2181 §11)
            return f"dnslib cannot read it: {error}"
        return "" if answer[12:].startswith(question_bytes(packet)) and not answer[6:8].strip(b"\0") else "made up"
    if not got.header.qr or got.header.opcode != packet[2] >> 3 & 15:
        return "no QR, or another opcode"
    end = 12 + len(question_bytes(answer))
    if answer[12:end] != packet[12:end]:
        return "the question is not the query's"
    extended = next((record.ttl >> 24 for record in got.ar if record.rtype == dnslib.QTYPE.OPT), 0)
    rcode = "BADVERS" if extended else dnslib.RCODE.get(got.header.rcode)
    if rcode not in {"NOERROR", "NXDOMAIN"}:
        return "" if not got.rr else "an error with records"
    return wrong_records(got, rcode)


def wrong_records(got: dnslib.DNSRecord, rcode: str) -> str:
    """What is wrong with the records of a response that claims to know."""
    if not got.questions:
        return "an answer without its question"
    name = str(got.q.qname).lower().rstrip(".")
    expected = TRUTH.get((name, got.q.qtype)) if got.q.qclass == 1 else None
    if expected is None:
        if rcode == "NXDOMAIN" and name in EXISTING:
            return "the name exists"
        return "" if not got.rr or got.q.qtype not in {1, 28, 33} or "." not in name else f"made up: {got.rr}"
    found = frozenset(str(record.rdata) for record in got.rr)
    if rcode != expected[0]:
        return f"{rcode}, not {expected[0]}"
    if got.header.tc:
        return "" if found < expected[1] else "truncated to something else"
    return "" if found == expected[1] else f"{sorted(found)}, not {sorted(expected[1])}"


def question_bytes(packet: bytes) -> bytes:
    """The question section of a response as it stands there, b"" without one."""
    if packet[4:6] == b"\0\0":
        return b""
    end = 12
    while packet[end]:
        end += packet[end] + 1
    return packet[12 : end + 5]


def may_be_silent(packet: bytes) -> bool:
    """Whether no response is right: what is no message, and what is an answer itself."""
    return len(packet) < 12 or bool(packet[2] & 0x80)


async def batch(client: socket.socket, packets: list[bytes], tally: Counter[str]) -> None:
    """Send some packets, and a query for a new name behind them; check all responses up to its own.

    Answers that are ready overtake others, and that one is not ready.
    """
    last = len(packets)
    sent = [
        number.to_bytes(2, "big") + packet[2:] if len(packet) > 1 else packet for number, packet in enumerate(packets)
    ]
    sent.append(last.to_bytes(2, "big") + new_query()[2:])
    for packet in sent:
        client.send(packet)
    answered: set[int] = set()
    loop = asyncio.get_running_loop()
    while last not in answered:
        response = await asyncio.wait_for(loop.sock_recv(client, 65535), 10)
        number = int.from_bytes(response[:2], "big")
        if number > last or number in answered:
            raise SystemExit(f"a response nobody asked for: {response.hex()}")
        answered.add(number)
        if fault := wrong(sent[number][2:], response[2:]):
            raise SystemExit(f"{fault}\nquery    {sent[number].hex()}\nresponse {response.hex()}")
        tally[str(dnslib.RCODE.get(response[3] & 15, "other"))] += 1
    for number in set(range(last)) - answered:
        if not may_be_silent(sent[number]):
            raise SystemExit(f"no response to {sent[number].hex()}")
        tally["silence"] += 1


def resident_mib() -> float:
    """What this process holds in memory (VmRSS), in MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def run(count: int, table_mib: int) -> None:
    """Send the packets and print what came back."""
    server, _ = cluster_server(state(), Options(ttl_s=30), order=Order(rotate=True))
    if table_mib:
        server.table.generations.max_bytes = table_mib << 20
    listening = socket.socket(type=socket.SOCK_DGRAM)
    listening.bind(("127.0.0.1", 0))
    requests = Requests()
    listener = UdpListener(listening, server, requests, Clients())
    tally: Counter[str] = Counter()
    began_s, sent, before_mib = time.monotonic(), 0, 0.0
    print("| packets | memory MiB | answers in the table |\n|---|---|---|")
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect(listening.getsockname())
        for step in (WARM_UP, 0.25, 0.5, 0.75, 1.0):
            while sent < count * step:
                await batch(client, [random.choice(MAKERS)() for _ in range(BATCH)], tally)
                sent += BATCH + 1
            before_mib = before_mib or resident_mib()
            print(f"| {sent:,} | {resident_mib():.0f} | {len(server.table):,} |", flush=True)
    await listener.close()
    if requests.panics or requests.unsent:
        raise SystemExit(f"{requests.panics} exceptions, {requests.unsent} responses not sent")
    if resident_mib() - before_mib > GROWTH_MIB:
        raise SystemExit(f"memory grew by {resident_mib() - before_mib:.0f} MiB")
    took_s = time.monotonic() - began_s
    print(f"\n{sent:,} packets in {took_s:.0f} s, every response right: {dict(tally.most_common())}")


def main() -> None:
    """Run with another seed each time, and say which."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--table-mib", type=int, default=0, help="bound of the answer table, instead of its own")
    parser.add_argument("--seed", type=int, default=None, help="of the packets' shapes; their noise is always new")
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    random.seed(seed)
    print(f"seed {seed}")
    asyncio.run(run(options.packets, options.table_mib))


if __name__ == "__main__":
    main()
