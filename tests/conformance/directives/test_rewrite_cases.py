"""Recorded cases of `rewrite`: what the next directive sees, what the client gets, and which rules are accepted."""

from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType

from configured import configured
from dns_chain import Behind, FakeWorld, response_to
from harness import Case, Metadata, cases_of, check_cases, client_of, packet_of, shown, texts

from kdns.answers.chain import Block, Chain, Reply, Request
from kdns.answers.decode import from_wire
from kdns.answers.response import Message, Response
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line
from kdns.dns.names import labels_of, read_name, text_of
from kdns.dns.query import HEADER_BYTES, TC
from kdns.dns.types import class_name, rcode_number, type_name
from kdns.dns.zonefile import parse_record
from kdns.dnsserver.blocks import Server
from kdns.errors import CorefileError
from kdns.plugins.changes.rewrite import config, plugin
from kdns.plugins.changes.rewrite.answers import by_suffix

REFUSED_EARLY = "a name that cannot be is refused in the Corefile, at its word; CoreDNS answers SERVFAIL"
NO_ECHO = "kdns puts no options of the client's into its answer (RFC 6891 §6.1.2); CoreDNS copies its OPT"

DEVIATIONS: Mapping[str, str] = MappingProxyType(
    {
        "rewrite/TestRewriteIllegalName/0": REFUSED_EARLY,
        "rewrite/TestEdns0LocalSetRevertRestoresPreexisting/0": NO_ECHO,
        "rewrite/TestRewriteEDNS0RevertDoesNotLeakThroughScrubWriter/0": NO_ECHO,
    }
)


def next_reply(case: Case, request: Request) -> Reply:
    """What the recorded next directive answers."""
    behind = case.get("next") or {}
    if "rcode_only" in behind:
        return Response(rcode_number(behind["rcode_only"]))
    lines = behind.get("answer") or []
    if "echo_answer" in behind:
        lines = [behind["echo_answer"].replace("{qname}", request.query.name)]
    answer, additional = (tuple(map(parse_record, part)) for part in (lines, behind.get("additional") or []))
    edns = request.query.edns
    options = edns.options if edns and behind.get("edns") == "echo" else ()
    rcode = rcode_number(behind.get("rcode", "NOERROR"))
    return Response(rcode, answer=answer, additional=additional, options=options)


def looked_up(case: Case, request: Request) -> Reply:
    """What the recorded server finds for a CNAME's new target."""
    found = case["upstream_lookups"].get(request.query.name)
    if found is None:
        return None
    lines = found.get(type_name(request.query.qtype)) or found.get("*") or []
    return Response(flags=TC if found.get("tc") else 0, answer=tuple(map(parse_record, lines)))


def option_text(code: int, data: bytes) -> str:
    """An option as recorded: hexadecimal data, but for NSID and client subnet."""
    if code == 8:
        size = 4 if data[1] == 1 else 16
        packed = data[4:].ljust(size, b"\0")
        host = ".".join(map(str, packed)) if size == 4 else f"[{address6(packed)}]"
        return f"8={host}/{data[2]}/{data[3]}"
    if code in {3, 10}:
        return f"{code}={data.hex()}"
    return f"{code}=0x{data.hex()}"


def address6(packed: bytes) -> str:
    return str(IPv6Address(packed))


def recorded_option(text: str) -> tuple[int, bytes]:
    code, _, data = text.partition("=")
    if code == "8":
        host, source, scope = data.split("/")
        address = ip_address(host.strip("[]"))
        bits = int(source)
        head = (1 if address.version == 4 else 2).to_bytes(2, "big") + bytes((bits, int(scope)))
        return 8, head + address.packed[: (bits + 7) // 8]
    return int(code), bytes.fromhex(data.removeprefix("0x"))


def packet(query: Case) -> bytes:
    """The packet of a recorded query, its options in the words of this file."""
    edns = query.get("edns")
    if edns and edns.get("options"):
        options = [f"{code}={data.hex()}" for code, data in map(recorded_option, edns["options"])]
        query = {**query, "edns": {**edns, "options": options}}
    return packet_of(query)


async def wrong(case: Case) -> str:
    """What differs from the recorded outcome, "" for nothing."""
    setup = FakeWorld()
    behind = Behind(lambda request: next_reply(case, request))
    corefile = f". {{\n{case['config']}\n}}\n"
    try:
        (server_config,) = configured(corefile)
    except CorefileError as error:
        return f"refused: {error}"
    if "upstream_lookups" in case:
        setup.resolve = lambda request: looked_up(case, request)  # type: ignore[method-assign] # stands in for the server
    rewrite = plugin.Rewrite(server_config.configs(plugin.DIRECTIVE), setup)
    server = Server(
        "dns://:53",
        [Block(".", Chain([Metadata(case.get("metadata") or {}), rewrite, behind]))],
        (case.get("server") or {}).get("ip", "127.0.0.1"),
        port=53,
    )
    query = case["query"]
    outcome = server.respond(packet(query), server.table.partition("udp", 4), client_of(query))
    wire = (await response_to(outcome)).wire
    expected = case["expect"]
    return seen_otherwise(expected.get("next_sees"), behind.requests) or replied_otherwise(expected, wire)


def seen_otherwise(expected: Case | None, requests: list[Request]) -> str:
    if expected is None:
        return ""
    query = requests[-1].query
    seen = {"name": query.name, "class": class_name(query.qclass), "type": type_name(query.qtype)}
    if "question" in expected and seen != expected["question"]:
        return f"the next directive sees {seen}"
    options = [option_text(*option) for option in (query.edns.options if query.edns else ())]
    if "edns_options" in expected and options != (expected["edns_options"] or []):
        return f"the next directive sees options {options}"
    return ""


def replied_otherwise(expected: Case, wire: bytes) -> str:
    reply = expected.get("reply") or ({"rcode": expected["rcode"]} if "rcode" in expected else {})
    got = shown(wire)
    response = from_wire(Response(body=Message(wire)))
    if "rcode" in reply and got["rcode"] != reply["rcode"]:
        return f"rcode {got['rcode']}, recorded {reply['rcode']}"
    if "tc" in reply and bool(response.flags & TC) is not reply["tc"]:
        return f"tc {bool(response.flags & TC)}"
    if "question" in reply and text_of(read_name(wire, HEADER_BYTES)[0]) != reply["question"]["name"]:
        return "another question"
    for section in ("answer", "additional"):
        if section in reply:
            lines = [line for record in reply[section] for line in texts([parse_record(record)])]
            if sorted(lines) != sorted(got[section]):
                return f"{section} {got[section]}, recorded {lines}"
    options = [option_text(*option) for option in response.options]
    if "edns_options" in reply and options != (reply["edns_options"] or []):
        return f"options {options}, recorded {reply['edns_options']}"
    return ""


def arguments(case: Case) -> list[str]:
    return [word if isinstance(word, str) else word["repeat"] * word["times"] for word in case["args"]]


def parsed_otherwise(case: Case) -> str:
    """`hex:` begins an argument whose bytes are no text; such a Corefile cannot be read at all."""
    words = arguments(case)
    if any(word.startswith("hex:") for word in words):
        return "" if case["expect"]["error"] else "bytes that are no text"
    tokens = tuple(Token("Corefile", 1, word) for word in ("rewrite", *words))
    try:
        config.parse(Line(tokens), (".",))
    except CorefileError as error:
        return "" if case["expect"]["error"] else f"refused: {error}"
    return "accepted" if case["expect"]["error"] else ""


def remapped_otherwise(case: Case) -> str:
    given, expected = case["in"], case["expect"]["out"]
    got = by_suffix(labels_of(given["from"]), labels_of(given["to"]))(labels_of(given["name"]))
    return "" if text_of(got) == text_of(labels_of(expected)) else f"{text_of(got)}, recorded {expected}"


async def test_recorded_cases() -> None:
    kinds = {"parse": parsed_otherwise, "func": remapped_otherwise}
    await check_cases(
        "rewrite-cases.json", cases_of("rewrite"), lambda case: kinds.get(case.get("op", ""), wrong)(case), DEVIATIONS
    )
