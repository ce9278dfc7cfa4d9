"""Parser of `rewrite` stanzas: one rule, on its line or in its block, whose lines are joined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.dns.names import encode_name, labels_of
from kdns.dns.query import HOP_BY_HOP
from kdns.dns.types import CLIENT_SUBNET, NSID, class_number, rcode_number, type_number
from kdns.errors import DoubtfulError
from kdns.plugins.changes.rewrite.answers import (
    Change,
    LimitTtls,
    RenameRecords,
    ReplaceRcode,
    RestoreOption,
    RetargetCname,
    by_pattern,
)
from kdns.plugins.changes.rewrite.patterns import KINDS, NamePattern, pattern_of
from kdns.plugins.changes.rewrite.rules import (
    ACTIONS,
    OF_PACKET,
    VARIABLES,
    AnswerRule,
    ExactNameRule,
    NameRule,
    NumberRule,
    OptionRule,
    Rule,
    Step,
    Value,
    metadata_value,
    restored_suffix,
    subnet_value,
)
from kdns.plugins.observers.metadata import is_label
from kdns.serverblocks.directive import World
from kdns.serverblocks.stanza import count, mnemonic
from kdns.spelling import closest

MAX_TTL_S: Final = 2**31 - 1
"""RFC 2181 §8."""
MAX_RCODE: Final = 4095

_OF_ANSWERS: Final = ("name", "value")
_FOREIGN_GROUP: Final = re.compile(r"[$\\]([0-9])|\$\{([0-9]+)\}")

Words: TypeAlias = Sequence[Token]

USAGES: Final = {
    "type": "type FROM TO",
    "class": "class FROM TO",
    "name": f"name [{'|'.join(KINDS)}] FROM TO [answer auto] [answer name|value FROM TO]...",
    "edns0": "edns0 local|nsid|subnet set|append|replace|unset ...",
    "ttl": f"ttl [{'|'.join(KINDS)}] FROM SECONDS|MIN-MAX|MIN-|-MAX",
    "cname": f"cname [{'|'.join(KINDS)}] FROM TO",
    "rcode": f"rcode [{'|'.join(KINDS)}] FROM RCODE RCODE",
}
EDNS_USAGES: Final = {
    "local": "edns0 local set|append|replace CODE DATA [revert], or edns0 local unset CODE",
    "nsid": "edns0 nsid set|append|replace [revert], or edns0 nsid unset",
    "subnet": "edns0 subnet set|append|replace IPV4BITS IPV6BITS [revert], or edns0 subnet unset",
}


@dataclass(frozen=True, slots=True)
class CnameTarget:
    """A rule of kind `cname`, completed with `World.resolve` when the block is built."""

    pattern: NamePattern


@dataclass(frozen=True, slots=True)
class RewriteConfig:
    """One rule; with `stops`, no later rule is tried if it applies. `doubts` are warnings."""

    rule: Rule | CnameTarget
    stops: bool = True
    doubts: tuple[DoubtfulError, ...] = ()

    def step(self, world: World) -> Step:
        if isinstance(self.rule, CnameTarget):
            return Step(AnswerRule(None, RetargetCname(self.rule.pattern, world.resolve)), self.stops)
        return Step(self.rule, self.stops)


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> RewriteConfig:
    words = list(stanza.args)
    if len(words) > 1 and stanza.block:
        raise stanza.block[0].error("expected a rule on the line of `rewrite` or in its block, got both")
    words += [word for line in stanza.block for word in line.words]
    stops = True
    if words and words[0].text.lower() in {"stop", "continue"}:
        stops = words.pop(0).text.lower() == "stop"
    if not words:
        raise stanza.error(f"a rule is missing; expected for example `rewrite {USAGES['name']}`")
    field, arguments = words[0], words[1:]
    kind = field.text.lower()
    if kind == "answer":
        raise field.error("`answer` is allowed only after a rule of kind `name`")
    if kind not in FIELDS:
        raise field.expected(f"a rule of kind {', '.join(FIELDS)}")
    return RewriteConfig(FIELDS[kind](field, arguments), stops, tuple(_doubts(arguments)))


def _doubts(words: Words) -> Iterator[DoubtfulError]:
    """Groups in the syntax of other programs, which are literal text here as in CoreDNS."""
    patterns = [at for at, word in enumerate(words[:-2]) if word.text.lower() in {"regex", *_OF_ANSWERS}]
    for replacement in (words[at + 2] for at in patterns):
        if group := _FOREIGN_GROUP.search(replacement.text):
            number = group[1] or group[2]
            reason = f"`{group[0]}` is literal text; a group of the expression is `{{{number}}}`"
            yield DoubtfulError(replacement.path, replacement.line, replacement.text, reason)


def _count(field: Token, words: Words, usage: str, least: int, most: int) -> None:
    count(Line((field, *words)), f"rewrite {usage}", (least, most))


def _type(field: Token, words: Words) -> Rule:
    _count(field, words, USAGES["type"], 2, 2)
    return NumberRule("qtype", _type_number(words[0]), _type_number(words[1]))


def _type_number(word: Token) -> int:
    wanted = "a record type, such as A, AAAA or TYPE65280"
    number = mnemonic(word, type_number, wanted, folds=True)
    if not 0 < number < 65536:
        raise word.expected(wanted)
    return number


def _class(field: Token, words: Words) -> Rule:
    _count(field, words, USAGES["class"], 2, 2)
    wanted = "a class: IN, CH, HS, NONE or ANY"
    number, to = (mnemonic(word, class_number, wanted, folds=True) for word in words)
    return NumberRule("qclass", number, to)


def _name(field: Token, words: Words) -> Rule:
    _count(field, words, USAGES["name"], 2, len(words))
    kind = words[0].text.lower()
    kind, arguments = (kind, words[1:]) if kind in KINDS and len(words) > 2 else ("exact", words)
    pattern = pattern_of(kind, arguments[0], arguments[1])
    auto, answers = _answers(arguments[2:], words[0])
    if kind == "exact":
        return ExactNameRule(_labels(arguments[0], pattern.text), _labels(arguments[1], pattern.to), answers)
    if kind == "suffix" and auto:
        return NameRule(pattern, False, (restored_suffix(pattern), *answers))
    return NameRule(pattern, auto, answers)


def _labels(word: Token, name: str) -> tuple[bytes, ...]:
    try:
        labels = labels_of(name)
        encode_name(labels)
    except ValueError as error:
        raise word.error(f"expected a name: {error}") from error
    return labels


def _answers(words: Words, first: Token) -> tuple[bool, tuple[Change, ...]]:
    """The word `answer` is required before the first option only."""
    auto = False
    changes: list[Change] = []
    position = 0
    while position < len(words):
        word = words[position]
        if word.text.lower() == "answer":
            position += 1
        elif not position:
            meant = f"; `{first.text}` is not one of {', '.join(KINDS)}" if first.text not in KINDS else ""
            near = closest(first.text, KINDS) if meant else ""
            meant += f": did you mean `{near}`?" if near else ""
            raise word.expected(f"`answer`, as in `rewrite {USAGES['name']}`{meant}")
        option = words[position] if position < len(words) else word
        match option.text.lower():
            case "auto" if option is not word or position:
                auto = True
                position += 1
            case "name" | "value" as part:
                if len(words) < position + 3:
                    raise option.error("expected 2 arguments: an expression and its replacement")
                pattern = pattern_of("regex", words[position + 1], words[position + 2])
                changes.append(RenameRecords(by_pattern(pattern), part == "name", part == "value"))
                position += 3
            case _:
                raise option.expected("one of auto, name, value")
    return auto, tuple(changes)


def _ttl(field: Token, words: Words) -> Rule:
    kind, arguments = _matched(field, words, 2, USAGES["ttl"])
    return AnswerRule(pattern_of(kind, arguments[0]), _limits(arguments[1]))


def _matched(field: Token, words: Words, least: int, usage: str) -> tuple[str, Words]:
    _count(field, words, usage, least, least + 1)
    if len(words) == least:
        return "exact", words
    kind = words[0].text.lower()
    if kind not in KINDS:
        raise words[0].expected(f"one of {', '.join(KINDS)}, as in `rewrite {usage}`")
    return kind, words[1:]


def _limits(word: Token) -> LimitTtls:
    least, dash, most = word.text.partition("-")
    bounds = [text for text in (least, most) if text]
    if not bounds or not all(text.isascii() and text.isdecimal() and int(text[:11]) <= MAX_TTL_S for text in bounds):
        raise word.expected(f"a TTL in seconds up to {MAX_TTL_S}, or bounds such as 30-300, 30- or -300")
    if not dash:
        return LimitTtls(int(least), int(least))
    limits = LimitTtls(int(least or 0), int(most or MAX_TTL_S))
    if limits.least_s > limits.most_s:
        raise word.expected("a lower bound not above the upper one")
    return limits


def _cname(field: Token, words: Words) -> CnameTarget:
    kind, arguments = _matched(field, words, 2, USAGES["cname"])
    pattern = pattern_of(kind, arguments[0], arguments[1])
    if kind == "exact":
        _labels(arguments[1], pattern.to)
    return CnameTarget(pattern)


def _rcode(field: Token, words: Words) -> Rule:
    kind, (pattern, rcode, to) = _matched(field, words, 3, USAGES["rcode"])
    return AnswerRule(pattern_of(kind, pattern), ReplaceRcode(_rcode_number(rcode), _rcode_number(to)))


def _rcode_number(word: Token) -> int:
    text = word.text.upper()
    try:
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else rcode_number(text)
    except KeyError:
        number = MAX_RCODE + 1
    if number > MAX_RCODE:
        raise word.expected("a response code, such as NXDOMAIN or 3")
    return number


def _edns0(field: Token, words: Words) -> Rule:
    _count(field, words, USAGES["edns0"], 2, len(words))
    option, action_word, arguments = words[0], words[1], list(words[2:])
    kind, action = option.text.lower(), ACTIONS.get(action_word.text.lower())
    if kind not in EDNS_USAGES:
        raise option.expected(f"one of {', '.join(EDNS_USAGES)}, as in `rewrite {USAGES['edns0']}`")
    if action is None:
        raise action_word.expected(f"one of {', '.join(ACTIONS)}, as in `rewrite {EDNS_USAGES[kind]}`")
    usage = EDNS_USAGES[kind]
    most = {"local": 2, "nsid": 0, "subnet": 2}[kind] if action != "unset" else int(kind == "local")
    reverts = len(arguments) == most + 1 and action != "unset" and arguments[-1].text.lower() == "revert"
    _count(field, arguments, usage, most, most + reverts)
    code = {"nsid": NSID, "subnet": CLIENT_SUBNET}.get(kind) or _number(arguments[0], 65535)
    changes = (RestoreOption(code),) if reverts else ()
    if action == "unset" or kind == "nsid":
        return OptionRule(code, action, lambda _request: b"", code in HOP_BY_HOP, reverts=changes)
    if kind == "subnet":
        value = subnet_value(_number(arguments[0], 32), _number(arguments[1], 128))
        return OptionRule(code, action, value, reads_client=True, needs_value=True, reverts=changes)
    value, reads_client, is_variable = _data(arguments[1])
    return OptionRule(code, action, value, reads_client or code in HOP_BY_HOP, is_variable, changes)


def _number(word: Token, most: int) -> int:
    """In Go's syntax: 65518, 0xffee, 0o17, 0b11."""
    text = word.text
    try:
        number = int(text, 0) if text.isascii() and len(text) < 20 and text[:1].isdecimal() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= most:
        raise word.expected(f"a number from 0 to {most}, such as {min(most, 24)} or {min(most, 24):#x}")
    return number


def _data(word: Token) -> tuple[Value, bool, bool]:
    """The data, whether it depends on more than the packet, and whether it may be missing."""
    text = word.text
    if text.startswith("{") and text.endswith("}"):
        if text in VARIABLES:
            return VARIABLES[text], text not in OF_PACKET, True
        if is_label(text[1:-1]):
            return metadata_value(text[1:-1]), True, True
        raise word.expected(f"one of the variables {', '.join(VARIABLES)}, or a metadata label such as {{a/b}}")
    if text.startswith("0x"):
        try:
            data = bytes.fromhex(text[2:]) if text[2:].isalnum() else b""
        except ValueError as error:
            raise word.expected("pairs of hexadecimal digits after 0x") from error
    else:
        data = text.encode("utf-8")
    return lambda _request: data, False, False


FIELDS: Final[dict[str, Callable[[Token, Words], Rule | CnameTarget]]] = {
    "type": _type,
    "class": _class,
    "name": _name,
    "edns0": _edns0,
    "ttl": _ttl,
    "cname": _cname,
    "rcode": _rcode,
}
