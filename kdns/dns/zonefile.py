"""The door to dnspython: the text of records and zone files (RFC 1035 §5), for every type that it knows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeAlias

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.tokenizer
import dns.ttl
import dns.zonefile

from kdns.dns.names import folded, text_of
from kdns.dns.rdata import rdata_of, wire_of
from kdns.dns.rrset import Rdata, RRset

MAX_RECORDS: Final = 4_000_000
"""The most records of one zone file, with included and generated ones."""
MAX_INCLUDES: Final = 1000
MAX_DEPTH: Final = 7
MAX_MISTAKES: Final = 100
"""A reader stops after this many."""

ReadFile: TypeAlias = Callable[[str, str], tuple[str, str]]
"""(including file, name) → path and text of the included file; ValueError with the reason."""


class ZoneFileError(ValueError):
    """A mistake in a master file: its path, its line (from 1, 0 for the whole file), and what is wrong.

    `others` are further mistakes of the file and of those that it includes.
    """

    others: tuple[ZoneFileError, ...] = ()

    def __init__(self, path: str, line: int, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")


SHOWN_CHARS: Final = 200
"""The most characters of a record in an error: a template may give 64 KiB of them, at each query."""


def no_includes(path: str, name: str) -> NoReturn:
    raise ValueError(f"{path}: $INCLUDE {name} is not allowed here")


def parse_zone(text: str, origin: str, path: str = "zone", read: ReadFile = no_includes) -> tuple[RRset, ...]:
    """One RRset a record, owners in lower case; records outside of `origin` are left out. ZoneFileError."""
    reader = _Reader(origin, read)
    with suppress(_TooManyMistakesError):
        reader.read_lines(_Tokenizer(text, filename=path))
    if reader.mistakes:
        first, *others = reader.mistakes
        first.others = tuple(others)
        raise first
    return tuple(reader.records)


def parse_record(text: str, default_ttl_s: int = 0) -> RRset:
    """Such as `web. 60 IN A 192.0.2.1`; TTL and class may be swapped or missing. ValueError for other text."""
    try:
        owner, ttl, rclass, (rtype, *rdata) = _parts(text)
        ttl_s = dns.ttl.from_text(ttl) if ttl else default_ttl_s
        number, data = _typed(rclass, rtype, rdata[0] if rdata else "")
        name = dns.name.from_text(owner)
    except (dns.exception.DNSException, ValueError) as error:
        raise ValueError(f"{_shortened(text)!r} is not a record: {_shortened(str(error))}") from error
    return RRset(_text(name), number, ttl_s, (data,), int(rclass))


@lru_cache(16)
def _typed(rclass: dns.rdataclass.RdataClass, rtype: str, text: str) -> tuple[int, Rdata]:
    """Cached: a template gives the same long text for many names."""
    rdata = dns.rdata.from_text(rclass, rtype, text, origin=dns.name.root, relativize=False)
    return int(rdata.rdtype), _rdata(rdata)


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def has_type(text: str) -> bool:
    """Whether the text of a record names a type, whatever its data is."""
    try:
        *_, (rtype, *_) = _parts(text)
        dns.rdatatype.from_text(rtype)
    except (dns.exception.DNSException, ValueError):
        return False
    return True


def _parts(text: str) -> tuple[str, str, dns.rdataclass.RdataClass, list[str]]:
    """Owner, TTL or "", class, and the type with the text of the data; ValueError where the type is missing."""
    owner, *words = text.split(None, 1)
    ttl, rclass = "", dns.rdataclass.IN
    for _ in range(2):
        word, *following = words[0].split(None, 1) if words else [""]
        if word.isdecimal():
            ttl = word
        elif word.upper() in _CLASSES:
            rclass = dns.rdataclass.from_text(word)
        else:
            break
        words = following
    if not words:
        raise ValueError("its type is missing")
    return owner, ttl, rclass, words[0].split(None, 1)


_CLASSES = frozenset(("IN", "CH", "HS", "ANY", "NONE"))


def rdata_text(rtype: int, rdata: Rdata, rclass: int = 1) -> str:
    """With absolute names; unreadable rdata in the form of RFC 3597 §5."""
    wire = wire_of(rdata)
    try:
        return str(dns.rdata.from_wire(_class(rclass), _type(rtype), wire, 0, len(wire)).to_text())
    except (dns.exception.DNSException, ValueError):
        return f"\\# {len(wire)} {wire.hex()}".rstrip()


_type = dns.rdatatype.RdataType.make
_class = dns.rdataclass.RdataClass.make


def _text(name: dns.name.Name) -> str:
    return text_of(tuple(label for label in name.labels if label))


def _rdata(rdata: dns.rdata.Rdata) -> Rdata:
    return rdata_of(int(rdata.rdtype), rdata.to_wire() or b"")


class _Records:
    """The transaction of dnspython's reader, which adds each record as it is read."""

    def __init__(self, origin: dns.name.Name) -> None:
        self.records: list[RRset] = []
        self.manager = self
        self._origin = origin
        self._last: tuple[dns.name.Name, str] = origin, folded(_text(origin))

    def origin_information(self) -> tuple[dns.name.Name, bool, dns.name.Name]:
        return self._origin, False, self._origin

    def check_put_rdataset(self, check: object) -> None:
        """Does nothing: `Zone` checks its records itself."""

    def _set_origin(self, origin: dns.name.Name) -> None:
        """Does nothing: only the reader uses $ORIGIN."""

    def add(self, name: dns.name.Name, ttl: int, rdata: dns.rdata.Rdata) -> None:
        if len(self.records) >= MAX_RECORDS:
            raise dns.exception.SyntaxError(f"more than {MAX_RECORDS:,} records")
        if name is not self._last[0]:
            self._last = name, folded(_text(name))
        try:
            value = _rdata(rdata)
        except ValueError as error:
            raise dns.exception.SyntaxError(str(error)) from error
        self.records.append(RRset(self._last[1], int(rdata.rdtype), ttl, (value,)))


class _TooManyMistakesError(Exception):
    """Ends a reader."""


class _Reader(dns.zonefile.Reader):
    """dnspython's line reader with our own rules for $INCLUDE; it continues after wrong lines."""

    def __init__(self, origin: str, read: ReadFile) -> None:
        self._transaction = _Records(dns.name.from_text(origin))
        self._read_file = read
        self._includes = 0
        self.mistakes: list[ZoneFileError] = []
        super().__init__(
            _Tokenizer(""),
            dns.rdataclass.IN,
            self._transaction,  # type: ignore[arg-type] # it uses these methods only
        )

    @property
    def records(self) -> list[RRset]:
        return self._transaction.records

    def read_lines(self, tokens: _Tokenizer, depth: int = 0) -> None:
        """Reads the lines of one file; an included file leaves origin and owner unchanged (RFC 1035 §5.1)."""
        self.tok = tokens
        is_end = False
        while not is_end:
            try:
                is_end = self._read_line(tokens, depth)
            except (dns.exception.DNSException, ValueError, AssertionError) as error:
                self._note(error, tokens)
                tokens.skip_line()

    def _note(self, error: Exception, tokens: _Tokenizer) -> None:
        if not isinstance(error, ZoneFileError):
            path, _ = tokens.where()
            error = ZoneFileError(str(path), tokens.line, _reason(str(error), tokens.last))
        self.mistakes.append(error)
        if len(self.mistakes) == MAX_MISTAKES or len(self.records) >= MAX_RECORDS:
            raise _TooManyMistakesError
        if not self.default_ttl_known:  # an SOA or $TTL with a mistake would have set it
            self.default_ttl, self.default_ttl_known = 0, True

    def _read_line(self, tokens: _Tokenizer, depth: int) -> bool:
        """True at the end of the text."""
        token = tokens.get(want_leading=True, want_comment=True)
        if token.is_comment():
            tokens.get_eol()
        elif token.is_identifier() and token.value[:1] == "$":
            self._directive(token.value.upper(), tokens, depth)
        elif not token.is_eol_or_eof():
            tokens.unget(token)
            self._rr_line()
        return token.is_eof()

    def _directive(self, name: str, tokens: _Tokenizer, depth: int) -> None:
        if name == "$TTL":
            self.default_ttl = dns.ttl.from_text(tokens.get_string())
            self.default_ttl_known, self.default_ttl_from_soa = True, False
            tokens.get_eol()
        elif name == "$ORIGIN":
            self.current_origin = tokens.get_name(self.current_origin)
            tokens.get_eol()
        elif name == "$GENERATE":
            dns.zonefile.Reader._generate_line(self)  # noqa: SLF001 - the base class's own
        elif name == "$INCLUDE":
            self._include(tokens, depth)
        else:
            raise dns.exception.SyntaxError(f"{name} is none of $ORIGIN, $TTL, $INCLUDE and $GENERATE")

    def _include(self, tokens: _Tokenizer, depth: int) -> None:
        (including, line), path = tokens.where(), tokens.get_string()
        token: Any = tokens.get()
        origin = self.current_origin
        if not token.is_eol_or_eof():
            origin = tokens.as_name(token, origin)
            tokens.get_eol()
        self._includes += 1
        if depth == MAX_DEPTH or self._includes > MAX_INCLUDES:
            raise dns.exception.SyntaxError(f"files included {MAX_DEPTH} deep, or more than {MAX_INCLUDES} of them")
        try:
            included, text = self._read_file(str(including), path)
        except ValueError as error:
            raise ZoneFileError(str(including), line, str(error)) from error
        saved = self.current_origin, self.last_name
        self.current_origin = origin
        self.read_lines(_Tokenizer(text, filename=included), depth + 1)
        self.tok, (self.current_origin, self.last_name) = tokens, saved


class _Tokenizer(dns.tokenizer.Tokenizer):
    """Remembers the last token: dnspython's messages do not name it."""

    last: dns.tokenizer.Token | None = None
    line: int = 1
    """Line of the last word; dnspython's own counter is one further after a line end."""

    def get(self, want_leading: bool = False, want_comment: bool = False) -> dns.tokenizer.Token:
        self.last = None
        self.last = token = super().get(want_leading, want_comment)
        if not token.is_eol_or_eof():
            self.line = self.line_number - (self.ungotten_char == "\n")
        return token

    def skip_line(self) -> None:
        """Skips to the end of the line, or of the text if a parenthesis is open."""
        while not self.quoting and (self.last is None or not self.last.is_eol_or_eof()):
            try:
                self.get()
            except dns.exception.DNSException:
                self.multiline = 0
        self.quoting, self.delimiters = False, _DELIMITERS  # a quote ends with its line


_DELIMITERS: Final = {" ", "\t", "\n", ";", "(", ")", '"'}

_WANTED: Final = {
    "expecting an identifier": "expected a word",
    "expecting an integer": "expected a whole number",
    "expecting a string": "expected a word or a text in quotes",
    "Text input is malformed.": "expected other data of the record",
    "Text input ended unexpectedly.": "expected data of the record",
    "expected EOL or EOF": "expected the end of the line",
}


def _reason(message: str, last: dns.tokenizer.Token | None) -> str:
    wanted = next((text for start, text in _WANTED.items() if message.startswith(start)), "")
    if not wanted or last is None:
        return message.replace("unknown rdatatype", "unknown record type") or "not what can stand here"
    word = str(last.value)
    quoted = f'"{word}"' if last.is_quoted_string() else repr(word)
    wanted += " without quotes" if wanted == "expected a word" and last.is_quoted_string() else ""
    got = "the end of the line" if last.is_eol_or_eof() else _shortened(quoted)
    comment = "; a comment begins with ;" if word.startswith("#") else ""
    return f"{wanted}, got {got}{comment}"
