"""Error messages for unknown directives and options: what was likely meant, and where it belongs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kdns.corefile.lexer import Token
from kdns.corefile.lines import Stanza
from kdns.corefile.parse import ServerBlock
from kdns.serverblocks.advice import ADVICE, EXTERNAL, REMOVED, REMOVED_OPTIONS
from kdns.serverblocks.directive import Row
from kdns.serverblocks.stanza import UnknownOptionError
from kdns.spelling import closest, listed

_COMMENTS: Final = ("//", "/*", "--", ";", "!", "<!")
"""Signs that begin a comment in other formats."""
MAX_OWNERS: Final = 4
"""The most directives that a message names as those of an option."""


def directive_reason(stanza: Stanza, block: ServerBlock, table: Mapping[str, Row]) -> str:
    name = stanza.name
    if not name:
        return "expected a directive, got ''"
    if absent := _absent(name):
        return absent
    if name.startswith(_COMMENTS):
        return f"unknown directive `{name}`; a comment begins with #"
    if stanza.braces and not block.braces:
        return f"unknown directive `{name}`; if it is a zone, put each of several server blocks into {{ braces }}"
    neighbours = _neighbours(stanza, block, table)
    if owners := _owners(name, neighbours, table):
        return f"unknown directive `{name}`; it is an option of {owners}, and belongs into the braces behind that"
    if meant := closest(name, table):
        return f"unknown directive `{name}`; did you mean `{meant}`?"
    for owner in neighbours:
        if meant := closest(name, table[owner].options):
            return f"unknown directive `{name}`; did you mean `{meant}`, an option of `{owner}`?"
    if near := closest(name, (*ADVICE, *EXTERNAL, *REMOVED)):
        return f"unknown directive `{name}`; if it is `{near}`: {_absent(near)}"
    return f"unknown directive `{name}`; kdns has {', '.join(sorted(table))}"


def option_reason(mistake: UnknownOptionError, stanza: Stanza, block: ServerBlock, table: Mapping[str, Row]) -> str:
    name, directive, options = mistake.option.name, stanza.name, mistake.options
    known = f"options: {', '.join(options)}" if options else f"`{directive}` takes no block"
    if not name:
        return "expected an option, got ''"
    if removal := REMOVED_OPTIONS.get((directive, name)):
        return f"CoreDNS removed the option `{name}` in {removal.release}: {removal.instead}"
    if name in table[directive].options:  # of another kind of this directive
        return str(mistake.reason)
    if meant := closest(name, options):
        return f"unknown option `{name}`; did you mean `{meant}`?"
    if name in table:
        return f"unknown option `{name}`; it is a directive: is a `}}` missing before it, to end `{directive}`?"
    if owners := _owners(name, _neighbours(stanza, block, table), table):
        return f"unknown option `{name}`; it is an option of {owners}; {known}"
    if meant := closest(name, table):
        return f"unknown option `{name}`; is a `}}` missing before the directive `{meant}`, to end `{directive}`?"
    return f"unknown option `{name}`; {known}"


def directive_as_zone(block: ServerBlock, table: Mapping[str, Row]) -> Token | None:
    """The directive in place of the zones, in a block that has options of it in place of directives."""
    head = block.addresses[0].token if block.braces and block.addresses else None
    if head is None or head.text not in table:
        return None
    options = {option for option in table[head.text].options if option not in table}
    return head if any(stanza.name in options for stanza in block.stanzas) else None


def _absent(name: str) -> str:
    """About a directive that kdns does not have; "" for any other word."""
    if name in ADVICE:
        return f"kdns does not have the directive `{name}` of CoreDNS; instead: {ADVICE[name]}"
    if name in EXTERNAL:
        return f"`{name}` is an external plugin of CoreDNS, which kdns does not have; instead: {EXTERNAL[name]}"
    if removal := REMOVED.get(name):
        return f"CoreDNS removed the directive `{name}` in {removal.release}: {removal.instead}"
    return ""


def _neighbours(stanza: Stanza, block: ServerBlock, table: Mapping[str, Row]) -> tuple[str, ...]:
    """The block's other directives. The one before the stanza is first: its block may have ended early."""
    directives = [other.name for other in block.stanzas]
    at = next((number for number, other in enumerate(block.stanzas) if other is stanza), 0)
    names = dict.fromkeys((*reversed(directives[:at]), *directives[at + 1 :]))
    return tuple(name for name in names if name in table and name != stanza.name)


def _owners(option: str, neighbours: Iterable[str], table: Mapping[str, Row]) -> str:
    """The directives that have an option, as text: the nearest one of the block, or else of all."""

    def having(names: Iterable[str]) -> Iterator[str]:
        return (f"`{name}`" for name in names if option in table[name].options)

    near = next(having(neighbours), "")
    return near or listed(having(table), MAX_OWNERS)
