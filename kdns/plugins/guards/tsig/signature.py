"""The door to dnspython's TSIG: verifies and signs messages with shared secrets (RFC 8945)."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from struct import pack
from typing import Any, Final, NamedTuple

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.ANY.TSIG
import dns.tsig

from kdns.dns.names import Labels, encode_name, labels_of, lowered, text_of
from kdns.dns.rdata import name_at
from kdns.dns.types import ANY_CLASS, TSIG
from kdns.dns.wire import ADDITIONAL, records

Secrets = Mapping[str, bytes]
"""Name of a key (folded, with a trailing dot) → its secret."""

BADSIG: Final = 16
BADKEY: Final = 17
BADTIME: Final = 18
FUDGE_S: Final = 300
"""The allowed clock skew (RFC 8945 §10)."""
MAX_MAC_BYTES: Final = 64
MAC_BYTES: Final = {
    "hmac-sha1.": 20,
    "hmac-sha224.": 28,
    "hmac-sha256.": 32,
    "hmac-sha384.": 48,
    "hmac-sha512.": 64,
}
"""The algorithms of signatures; MD5 is no longer allowed (RFC 8945 §6)."""
DEFAULT_ALGORITHM: Final = "hmac-sha256."
_FIXED_BYTES: Final = 10 + 16 + 6


class Tsig(NamedTuple):
    """The TSIG record of a message, and its position."""

    start: int
    key: Labels
    rdata: Any

    @property
    def algorithm(self) -> str:
        return str(self.rdata.algorithm.to_text()).lower()


def tsig_of(packet: bytes) -> Tsig | None:
    """None for an unsigned message; ValueError if the TSIG is not the last record (RFC 8945 §5.2)."""
    scanned = records(packet)
    signatures = [record for record in scanned if record.rtype == TSIG]
    if not signatures:
        return None
    record = signatures[0]
    if record is not scanned[-1] or record.section != ADDITIONAL or record.rclass != ANY_CLASS or record.ttl:
        raise ValueError("expected one TSIG at most, last in the additional section")
    size = record.end - record.rdata_at
    try:
        rdata = dns.rdata.from_wire(dns.rdataclass.ANY, dns.rdatatype.TSIG, packet, record.rdata_at, size)
    except dns.exception.DNSException as error:
        raise ValueError(f"TSIG without its fields: {error}") from error
    key = lowered(name_at(packet, record.owner_at)[0])
    return Tsig(record.owner_at, key, rdata)


def unsigned(packet: bytes, tsig: Tsig) -> bytes:
    additionals = int.from_bytes(packet[10:12], "big") - 1
    return packet[:10] + additionals.to_bytes(2, "big") + packet[12 : tsig.start]


class Signer:
    """Signs the messages of one response or request, in order (RFC 8945 §5.3, §5.3.1).

    `request_mac` is that of the request that is answered, b"" for a request.
    """

    def __init__(
        self,
        key: Labels,
        secret: bytes,
        algorithm: str,
        unix_s: Callable[[], float],
        request_mac: bytes = b"",
        *,
        error: int = 0,
        other: bytes = b"",
        signed_s: int | None = None,
    ) -> None:
        self._owner = encode_name(key)
        self.secret = secret
        self._key = dns.tsig.Key(dns.name.from_text(text_of(key)), secret, algorithm)
        self._unix_s = unix_s
        self._request_mac = request_mac
        self._error, self._other, self._signed_s = error, other, signed_s
        self._context: Any = None
        self.mac = b""
        self.size_bytes = len(self._owner) + len(encode_name(labels_of(algorithm))) + _FIXED_BYTES + MAX_MAC_BYTES

    def __call__(self, wire: bytes) -> bytes:
        now_s = int(self._unix_s()) if self._signed_s is None else self._signed_s
        rdata = _rdata(self._key.algorithm, now_s, int.from_bytes(wire[:2], "big"), self._error, self._other)
        signed, self._context = dns.tsig.sign(
            wire, self._key, rdata, now_s, self._request_mac, self._context, multi=True
        )
        self.mac = signed.mac
        return _with_record(wire, self._owner, signed)


class Unsigned:
    """Appends an unsigned TSIG with the error of the request's signature (RFC 8945 §5.2)."""

    def __init__(self, tsig: Tsig, error: int) -> None:
        self._tsig = tsig
        self._error = error
        self.size_bytes = len(encode_name(tsig.key)) + len(tsig.algorithm) + 2 + _FIXED_BYTES

    def __call__(self, wire: bytes) -> bytes:
        message_id = int.from_bytes(wire[:2], "big")
        rdata = _rdata(self._tsig.rdata.algorithm, 0, message_id, self._error, b"")
        return _with_record(wire, encode_name(self._tsig.key), rdata)


def verified(packet: bytes, tsig: Tsig, secrets: Secrets, unix_s: Callable[[], float]) -> tuple[int, Signer | Unsigned]:
    """The error of a request's signature, 0 for none, and the signer of the response.

    Checks the key first, then the signature, then the time (RFC 8945 §5.2).
    """
    secret = secrets.get(text_of(tsig.key))
    if secret is None or tsig.algorithm not in MAC_BYTES:
        return BADKEY, Unsigned(tsig, BADKEY)
    if not _is_signed(unsigned(packet, tsig), tsig, secret):
        return BADSIG, Unsigned(tsig, BADSIG)
    now_s = int(unix_s())
    rdata = tsig.rdata
    if abs(now_s - rdata.time_signed) > rdata.fudge:
        other = now_s.to_bytes(6, "big")
        return BADTIME, Signer(
            tsig.key,
            secret,
            tsig.algorithm,
            unix_s,
            rdata.mac,
            error=BADTIME,
            other=other,
            signed_s=rdata.time_signed,
        )
    return 0, Signer(tsig.key, secret, tsig.algorithm, unix_s, rdata.mac)


def _is_signed(wire: bytes, tsig: Tsig, secret: bytes) -> bool:
    key = dns.tsig.Key(dns.name.from_text(text_of(tsig.key)), secret, tsig.algorithm)
    right, _ = dns.tsig.sign(wire, key, tsig.rdata, tsig.rdata.time_signed, b"", None, multi=False)
    return hmac.compare_digest(right.mac, tsig.rdata.mac)


def _rdata(algorithm: dns.name.Name, signed_s: int, message_id: int, error: int, other: bytes) -> Any:
    return dns.rdtypes.ANY.TSIG.TSIG(
        dns.rdataclass.ANY, dns.rdatatype.TSIG, algorithm, signed_s, FUDGE_S, b"", message_id, error, other
    )


def _with_record(wire: bytes, owner: bytes, rdata: Any) -> bytes:
    content = bytes(rdata.to_wire())
    additionals = int.from_bytes(wire[10:12], "big") + 1
    record = owner + pack("!HHIH", TSIG, ANY_CLASS, 0, len(content)) + content
    return wire[:10] + additionals.to_bytes(2, "big") + wire[12:] + record


class Verifier:
    """Verifies the messages that answer a signed request, in order (RFC 8945 §5.3.1).

    Between signed messages at most 99 may be unsigned; the last one is signed.
    """

    MAX_UNSIGNED: Final = 99

    def __init__(self, key: Labels, secret: bytes, algorithm: str, request_mac: bytes) -> None:
        self._name = dns.name.from_text(text_of(key))
        self._key = dns.tsig.Key(self._name, secret, algorithm)
        self._request_mac = request_mac
        self._context: Any = None
        self._unsigned = 0
        self.is_complete = False

    def check(self, packet: bytes, now_s: float) -> None:
        """ValueError for a message with a wrong signature, or without a required one."""
        tsig = tsig_of(packet)
        self.is_complete = tsig is not None
        if tsig is None:
            self._unsigned += 1
            if self._context is None or self._unsigned > self.MAX_UNSIGNED:
                raise ValueError("a message that is not signed")
            self._context.update(packet)
            return
        self._unsigned = 0
        try:
            self._context = dns.tsig.validate(
                packet,
                self._key,
                dns.name.from_text(text_of(tsig.key)),
                tsig.rdata,
                int(now_s),
                self._request_mac,
                tsig.start,
                self._context,
                multi=True,
            )
        except dns.exception.DNSException as error:
            raise ValueError(f"a signature that is not right: {type(error).__name__}") from error
