"""Functions that decide what a server accepts: names, zones, networks, addresses and the keys of server blocks."""

from collections.abc import Callable
from ipaddress import ip_network
from typing import Any, Final

from configured import configured
from harness import cases_of, check_cases

from kdns.corefile.address import is_reverse, reverse_zones, zone_addresses, zones
from kdns.corefile.lexer import Token
from kdns.dns.names import is_below, labels_of, reversed_address, text_of
from kdns.errors import CorefileError
from kdns.net import unpacked
from kdns.plugins.guards import acl
from kdns.plugins.sources.forward.targets import Target, target_of

NO_BYTES: Final = "bytes that are no text are refused where a zone is wanted"
SPLIT: Final = "a comma separates zones also without white space"
DEVIATIONS: Final = {
    "plugin/TestOriginsFromArgsOrServerBlock/3": "all zones of the block count, not only the first one of a network",
    "plugin/TestOriginsFromArgsOrServerBlock/4": NO_BYTES,
    "plugin/TestOriginsFromArgsOrServerBlock/5": NO_BYTES,
    "plugin/TestOriginsFromArgsOrServerBlock/6": NO_BYTES,
    "core/dnsserver/TestInspectServerBlocks/7": SPLIT,
    "pkg/parse/TestParseHostPort/3": "a port follows the colon",
    "pkg/parse/TestParseHostPort/7": "only a link-local address has a zone",
    "pkg/parse/TestTransport/1": "neither a zone nor a network is refused",
}
ELSEWHERE: Final = {
    "edns_options_kept": "options that kdns does not understand are not repeated (RFC 6891 §6.1.1)",
    "split_protocol_host_port": "recorded in corefile-parse-cases.json as well",
    "parse_transfer_from": "recorded in corefile-parse-cases.json as well, of `secondary`",
    "zone_name_is_preferred_syntax": "kdns refuses what is no name, and warns of none",
    "startup_lines": "kdns logs facts, not these lines",
    "duplicate_cname": "a CNAME whose owner was answered already ends the chase, see kdns.answers.chain.follow",
    "trim_zone": "names are labels: there is no text to cut off",
    "host_port_or_file": "a file is read later, and a socket's path is no upstream: see parse_host_port",
    "parse_catalog": "concerns `auto` and `secondary`",
    "auto_walk": "concerns `auto`",
    "auto_serve": "concerns `auto`",
    "auto_zone_match": "concerns `auto`",
}
"""Function → why its cases are not run here."""


def token(text: str) -> Token:
    return Token("Corefile", 1, text)


def origins(given: dict[str, Any]) -> object:
    """The zones of a stanza: its own, or those of the server block."""
    block, args = given["serverblock"] or ["."], given["args"] or []
    (server,) = configured(f"{' '.join(block)} {{\nacl {' '.join(args)}\n}}")
    return list(server.configs(acl.DIRECTIVE)[0].zones)


def keys(given: list[dict[str, Any]]) -> object:
    """The places of all blocks, as the recorded keys write them."""
    places = [zone_address for block in given for zone_address in zone_addresses(map(token, block["Keys"]))]
    return [f"{place.scheme}://{place.zone}:{place.port_or_default(53)}" for place in places]


def recorded_keys(out: dict[str, Any]) -> object:
    return [key for block in out["expectedServerBlocks"] for key in block["Keys"]]


def first_refused(given: list[dict[str, str]]) -> object:
    """How many blocks there are when two want the same place."""
    for count in range(1, len(given) + 1):
        blocks = [
            f"{one['Zone']}:{one['Port']} {{\n{'bind ' + one['Address'] if one['Address'] else ''}\n}}"
            for one in given[:count]
        ]
        try:
            configured("\n".join(blocks))
        except CorefileError:
            return count
    return 0


def recorded_refusal(out: list[dict[str, Any]]) -> object:
    return next((count for count, step in enumerate(out, start=1) if step["same"] or step["overlap"]), 0)


def upstream(text: str) -> object:
    """The address and port of an upstream, "" for what is none."""
    try:
        found = target_of(token(text))
    except CorefileError:
        return ""
    return str(found.address) if isinstance(found, Target) and not found.is_name else ""


def argument_zones(text: str) -> object:
    return [zone_address.zone for zone_address in zone_addresses([token(text)])]


def same(out: object) -> object:
    return out


Convert = Callable[[Any], object]
FUNCTIONS: Final[dict[str, tuple[Convert, Convert]]] = {
    "origins_from_args_or_server_block": (origins, same),
    "name_is_subdomain": (lambda given: is_below(labels_of(given["child"]), labels_of(given["parent"])), same),
    "server_blocks_to_keys": (keys, recorded_keys),
    "zone_overlap_check": (first_refused, recorded_refusal),
    "parse_host_port": (upstream, lambda out: out["expected"]),
    "transport_of_address": (lambda text: next(zone_addresses([token(text.strip())])).scheme, same),
    "join_labels": (lambda parts: text_of(tuple(label for part in parts for label in labels_of(part))), same),
    "address_from_reverse_name": (
        lambda name: unpacked(address) if (address := reversed_address(labels_of(name))) else "",
        same,
    ),
    "is_reverse": (is_reverse, bool),
    "cidr_split_to_octet_boundary": (
        lambda text: reverse_zones(ip_network(text, strict=False)),
        lambda out: tuple(zone for text in out for zone in reverse_zones(ip_network(text))),
    ),
    "cidr_to_reverse_zones": (lambda text: list(reverse_zones(ip_network(text, strict=False))), same),
    "zone_argument_to_zones": (argument_zones, same),
    "normalize_name": (lambda text: zones(token(text))[0], same),
}
"""Function → ours, and how the recorded result is written for it."""


def outcome(case: dict[str, Any]) -> str:
    """What differs."""
    ours, written = FUNCTIONS[case["func"]]
    expected = written(case["expect"]["out"])
    try:
        found = ours(case["in"])
    except CorefileError as error:
        return f"refused: {error}"
    if case["func"] == "zone_argument_to_zones" and isinstance(found, list) and isinstance(expected, list):
        found = found[: len(expected)]
    return "" if found == expected else f"{found!r}, recorded {expected!r}"


async def test_recorded_cases() -> None:
    cases = [case for case in cases_of("functions") if case["func"] not in ELSEWHERE]
    await check_cases("functions-cases.json", cases, outcome, DEVIATIONS)
