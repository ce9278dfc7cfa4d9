"""The formats of names, ports and addresses: each function returns the problems of a text, none if it is valid.

The messages are kube-apiserver's (apimachinery: util/validation), since people and programs search for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TypeAlias

from kdns.net import Address, parse_address

Format: TypeAlias = Callable[[str], list[str]]

_PREFIX_DIGITS = 18
"""Python refuses to parse a number of thousands of digits. Leading zeros may be refused later."""
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"

NOT_AN_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NOT_A_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
PORT_RANGE = "must be between 1 and 65535, inclusive"


def _sentence(words: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{words} (e.g. {shown}regex used for validation is '{pattern}')"


def _format(pattern: str, most: int, sentence: str, unit: str = "characters") -> Format:
    match = re.compile(pattern).fullmatch

    def problems(text: str) -> list[str]:
        length = [f"must be no more than {most} {unit}"] if len(text) > most else []
        return length if match(text) else [*length, sentence]

    return _cached(problems, most)


def _cached(problems: Format, most: int) -> Format:
    """Caches the results for texts of at most `most` characters; longer ones are invalid."""
    cached = lru_cache(4096)(problems)
    return lambda text: cached(text) if len(text) <= most else problems(text)


_ENDS = "must start and end with an alphanumeric character"
_dns_label = _format(
    _LABEL,
    63,
    _sentence(
        f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {_ENDS}",
        _LABEL,
        "my-name",
        "123-abc",
    ),
)


def dns_label(text: str) -> list[str]:
    """A name without dots, such as a Namespace's."""
    problems = _dns_label(text)
    is_dotted = "." in text and re.fullmatch(_SUBDOMAIN, text)
    return [*problems[:-1], "must not contain dots"] if is_dotted else problems


dns_label_1035 = _format(
    _LABEL_1035,
    63,
    _sentence(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
        "start with an alphabetic character, and end with an alphanumeric character",
        _LABEL_1035,
        "my-name",
        "abc-123",
    ),
)
dns_subdomain = _format(
    _SUBDOMAIN,
    253,
    _sentence(
        f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and {_ENDS}",
        _SUBDOMAIN,
        "example.com",
    ),
)
label_value = _format(
    _VALUE,
    63,
    _sentence(
        f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}",
        _VALUE,
        "MyValue",
        "my_value",
        "12345",
    ),
    "bytes",
)
_QUALIFIED_SENTENCE = _sentence(
    f"must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_name_part = _format(_QUALIFIED, 63, _QUALIFIED_SENTENCE, "bytes")


_config_key = _format(
    "[-._a-zA-Z0-9]+",
    253,
    _sentence(
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
        "[-._a-zA-Z0-9]+",
        "key.name",
        "KEY_NAME",
        "key-name",
    ),
)


def config_key(text: str) -> list[str]:
    problems = _config_key(text)
    if text in {".", ".."}:
        return [*problems, f"must not be '{text}'"]
    return [*problems, "must not start with '..'"] if text.startswith("..") else problems


def path_segment(text: str) -> list[str]:
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{letter}'" for letter in ("/", "%") if letter in text]


def _qualified_name(text: str) -> list[str]:
    parts = text.split("/")
    if len(parts) > 2:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {_QUALIFIED_SENTENCE} {optional}"]
    problems = []
    if len(parts) == 2:
        wrong = dns_subdomain(parts[0]) if parts[0] else ["must be non-empty"]
        problems += [f"prefix part {detail}" for detail in wrong]
    wrong = ["must be non-empty", _QUALIFIED_SENTENCE] if not parts[-1] else _name_part(parts[-1])
    return problems + [f"name part {detail}" for detail in wrong]


qualified_name = _cached(_qualified_name, 253 + 1 + 63)
"""A name of at most 63 characters behind an optional DNS prefix: label keys, protocols, load balancer classes."""


def full_domain_name(text: str) -> list[str]:
    """A DNS name of at least two labels; a trailing dot is allowed."""
    problems = dns_subdomain(text.removesuffix("."))
    if problems or "." in text.removesuffix("."):
        return problems
    return ["should be a domain with at least two segments separated by dots"]


def port_name(text: str) -> list[str]:
    """An IANA service name (RFC 6335 §5.1) in lower case."""
    rules = {
        "must be no more than 15 characters": len(text) <= 15,
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)": re.fullmatch("[-a-z0-9]+", text),
        "must contain at least one letter (a-z)": re.search("[a-z]", text),
        "must not contain consecutive hyphens": "--" not in text,
        "must not begin or end with a hyphen": text and text[0] != "-" and text[-1] != "-",
    }
    return [detail for detail, is_met in rules.items() if not is_met]


def port_number(port: object) -> list[str]:
    return [] if isinstance(port, int) and 1 <= port <= 65535 else [PORT_RANGE]


def ip_problems(text: str, stored: Collection[str] = ()) -> list[str]:
    """Values in `stored` were accepted under older rules and stay valid."""
    if text in stored:
        return []
    address = parse_address(text)
    if address is None:
        return [NOT_AN_IP]
    try:
        ip_address(text)
    except ValueError:
        return ["must not have leading 0s"]
    mapped = isinstance(address, IPv6Address) and address.ipv4_mapped
    return ["must not be an IPv4-mapped IPv6 address"] if mapped else []


def canonical_ip_problems(text: str) -> list[str]:
    """The canonical form is that of RFC 5952."""
    problems = ip_problems(text)
    address = parse_address(text)
    if problems or str(address) == text:
        return problems
    return [f'must be in canonical form ("{address}")']


def cidr_problems(text: str, stored: Collection[str] = ()) -> list[str]:
    if text in stored:
        return []
    address, slash, length = text.partition("/")
    parsed = parse_address(address)
    if (
        parsed is None
        or not slash
        or not length.isascii()
        or not length.isdigit()
        or len(length) > _PREFIX_DIGITS
        or int(length) > parsed.max_prefixlen
    ):
        return [NOT_A_CIDR]
    if ip_problems(address) == ["must not have leading 0s"] or length != str(int(length)):
        return ["must not have leading 0s in IP or prefix length"]
    if ip_problems(address):
        return ["must not have an IPv4-mapped IPv6 address"]
    network = ip_network(text, strict=False)
    return [] if network.network_address == parsed else ["must not have bits set beyond the prefix length"]


def endpoint_ip_problems(text: str) -> list[str]:
    """Loopback, link-local and unspecified addresses cannot be endpoints."""
    address = parse_address(text)
    if address is None:
        return ["must be a valid IP address"]
    rules = (
        (address.is_unspecified, f"may not be unspecified ({text})"),
        (address.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (address.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (_link_local_multicast(address), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    )
    return [detail for broken, detail in rules if broken]


def _link_local_multicast(address: Address) -> bool:
    packed = address.packed
    return packed[:3] == b"\xe0\x00\x00" if address.version == 4 else packed[0] == 0xFF and packed[1] & 0x0F == 2
