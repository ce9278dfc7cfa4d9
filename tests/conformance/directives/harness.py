"""Recorded cases of directives: blocks made of their Corefile text, stubs behind them, and replies compared."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from struct import pack
from types import MappingProxyType
from typing import Any, TypeAlias

import recorded_cases
from configured import configured
from dns_chain import FakeWorld, response_to
from zone_text import record_texts

from kdns.answers.chain import Block, Chain, Plugin, Request, Sees, Serve, ServeResult
from kdns.answers.decode import from_wire
from kdns.answers.response import Message, Response
from kdns.dns.message import query
from kdns.dns.names import encode_name, labels_of
from kdns.dns.query import AA, AD, CD, QR, RA, RD, TC, encode_options
from kdns.dns.rrset import RRset
from kdns.dns.types import A, rcode_name, rcode_number, type_number
from kdns.dns.zonefile import parse_record
from kdns.dnsserver.blocks import Server
from kdns.values import evolve

FLAGS = {"qr": QR, "aa": AA, "tc": TC, "rd": RD, "ra": RA, "ad": AD, "cd": CD}
CLASSES = {"IN": 1, "CH": 3, "HS": 4, "NONE": 254, "ANY": 255}
SECTIONS = ("answer", "authority", "additional")
ANY_TTL = 303

Case: TypeAlias = dict[str, Any]


def recorded(name: str) -> Case:
    """The content of NAME-cases.json."""
    return recorded_cases.recorded(f"directives/{name}-cases.json")


def cases_of(name: str, prefix: str = "") -> list[Case]:
    """The cases of NAME-cases.json with ids that begin so."""
    return [case for case in recorded(name)["cases"] if case["id"].startswith(prefix)]


def files_of(case: Case, content: Case) -> dict[str, str]:
    """The files of a case, with its references to long texts resolved."""
    texts: Mapping[str, Any] = case.get("files") or {}
    return {name: text if isinstance(text, str) else content["files"][text["ref"]] for name, text in texts.items()}


def packet_of(query: Case, *, message_id: int = 1) -> bytes:
    """The packet of a recorded query: RD unless `flags` says otherwise, class IN, and the OPT of `edns`."""
    flags = sum(FLAGS[flag] for flag in query.get("flags", ["rd"]))
    edns = query.get("edns")
    qtype, qclass = query.get("type", "A"), query.get("class", "IN")
    question = encode_name(labels_of(query["name"])) + pack("!HH", type_number(qtype), CLASSES[qclass])
    header = pack("!HHHHHH", message_id, flags, 1, 0, 0, edns is not None)
    return header + question + (opt_of(edns) if edns is not None else b"")


def opt_of(edns: Case) -> bytes:
    """The OPT of a recorded `edns`; its options are written CODE=HEX."""
    options = tuple(
        (int(code), bytes.fromhex(data.removeprefix("0x")))
        for code, _, data in (text.partition("=") for text in edns.get("options") or ())
    )
    rdata = encode_options(options)
    do = 0x8000 if edns.get("do") else 0
    size_bytes = edns.get("udp_size", 4096)
    return pack("!BHHBBHH", 0, 41, size_bytes, 0, edns.get("version", 0), do, len(rdata)) + rdata


def client_of(query: Case) -> tuple[str, int]:
    """The client of a recorded query, 10.240.0.1:40212 where it says none."""
    text: str = query.get("client", "10.240.0.1:40212")
    if text.startswith("["):
        host, _, port = text[1:].partition("]:")
        return host, int(port)
    host, _, port = text.partition(":") if text.count(":") == 1 else (text, "", "")
    return host, int(port or 40212)


def response_of(message: Case) -> Response:
    """A recorded message as a plugin's response."""
    answer, authority, additional = (tuple(map(parse_record, message.get(section) or ())) for section in SECTIONS)
    flags = sum(FLAGS[flag] for flag in message.get("flags", ())) & (AA | TC | RA | AD)
    return Response(rcode_number(message.get("rcode", "NOERROR")), flags, answer, authority, additional)


class Metadata(Plugin):
    """Gives each request the metadata of a case."""

    sees = Sees.PACKET

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self.metadata = metadata

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        return next(evolve(request, metadata=self.metadata))


def server_of(config: str, setup: FakeWorld, *behind: Plugin, zone: str = ".", before: Iterable[Plugin] = ()) -> Server:
    """A server of one block whose body is `config`, with other plugins before and behind its own."""
    (server_config,) = configured(f"{zone} {{\n{config}\n}}\n")
    setup.zones = server_config.zones
    chain = Chain((*before, *server_config.build(setup), *behind))
    setup.built = chain.plugins
    server = Server("dns://:53", [Block(one, chain) for one in server_config.zones], "127.0.0.1", port=53)
    setup.servers.append(server)
    return server


async def reply_to(server: Server, query: Case, *, transport: str = "udp", now_s: float = 0.0) -> bytes:
    """The bytes that a server sends for a recorded query, b"" for silence. The table is not asked."""
    packet = packet_of(query)
    partition = server.table.partition(query.get("proto", transport), 4)
    outcome = server.respond(packet, partition, client_of(query), now_s)
    return (await response_to(outcome)).wire


async def answered(
    server: Server, name: str, qtype: int = A, client: str = "192.0.2.1", now_s: float = 0.0
) -> Response:
    """The records that a client gets over UDP."""
    packet = query(name, qtype, payload_bytes=4096)
    outcome = server.respond(packet, server.table.partition("udp", 4), (client, 40000), now_s)
    return from_wire(Response(body=Message((await response_to(outcome)).wire)))


def shown(wire: bytes) -> Case:
    """A message as the recorded cases write it."""
    response = from_wire(Response(body=Message(wire)))
    flags = int.from_bytes(wire[2:4], "big")
    return {
        "rcode": rcode_name(response.rcode),
        "flags": [name for name, bit in FLAGS.items() if flags & bit],
        "options": [f"{code}={data.hex()}" for code, data in response.options],
        **{section: texts(getattr(response, section)) for section in SECTIONS},
    }


def texts(rrsets: Iterable[RRset]) -> list[str]:
    """Each record as a line."""
    return [line for rrset in rrsets for line in record_texts(rrset)]


def unsigned(line: str) -> str:
    """A record's line, the signature of an RRSIG left out: some of those that are recorded are no Base64."""
    words = line.split(" ")
    return " ".join((*words[:12], "AAAA")) if words[3:4] == ["RRSIG"] else line


@cache
def comparable(line: str, *, any_ttl: bool = False) -> str:
    """A record's line without what is not compared: an SOA's numbers, an RRSIG's times and signature, a TTL of 303."""
    (text,) = record_texts(parse_record(unsigned(line)))
    owner, ttl, rclass, rtype, *rdata = text.split(" ")
    if rtype == "SOA":
        rdata = rdata[:1]
    if rtype == "RRSIG":
        rdata = [*rdata[:3], rdata[7]]
    return " ".join((owner, "*" if any_ttl else ttl, rclass, rtype, *rdata))


def difference(expected: Case, got: Case, sections: Iterable[str] = SECTIONS, *, with_flags: bool = False) -> str:
    """What a reply has otherwise than recorded, "" for nothing; sections that are not recorded are not compared."""
    if "rcode" in expected and got["rcode"] != expected["rcode"]:
        return f"rcode {got['rcode']}, recorded {expected['rcode']}"
    if with_flags and "flags" in expected and set(got["flags"]) != set(expected["flags"]):
        return f"flags {got['flags']}, recorded {expected['flags']}"
    for section in sections:
        if section not in expected:
            continue
        unmatched = [(comparable(line), comparable(line, any_ttl=True)) for line in got[section]]
        for line in expected[section]:
            any_ttl = parse_record(unsigned(line)).ttl == ANY_TTL
            wanted = comparable(line, any_ttl=any_ttl)
            same = next((one for one in unmatched if one[any_ttl] == wanted), None)
            if same is None:
                return f"{section} {got[section]}, recorded {expected[section]}"
            unmatched.remove(same)
        if unmatched:
            return f"{section} has more than recorded: {[line for line, _ in unmatched]}"
    return ""


async def check_cases(
    title: str,
    cases: Iterable[Case],
    outcome: Callable[[Case], str | Awaitable[str | None] | None],
    deviations: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Compares recorded cases and prints how many passed; a deviation that is none any more fails too.

    `outcome` says what differs, "" for nothing, and None of a case that is not for it.
    """
    counts, failures, unmet = Counter[str](), list[str](), set(deviations)
    for case in cases:
        wrong = outcome(case)
        if isinstance(wrong, Awaitable):
            wrong = await wrong
        if wrong is None:
            continue
        is_known = case["id"] in deviations
        counts["passed" if not wrong else "known deviation" if is_known else "failed"] += 1
        if wrong and is_known:
            unmet.discard(case["id"])
        elif wrong:
            failures.append(f"{case['id']}: {wrong}")
    print(f"{title}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    assert counts
    assert not failures, "\n".join(failures)
    assert not unmet, "deviations that are none any more"
