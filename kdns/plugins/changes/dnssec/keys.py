"""The door to cryptography: key pairs of zones, in BIND's files (RFC 4034).

Only imported by a server block with keys.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kdns.dns.names import labels_of, lowered
from kdns.dns.types import DNSKEY
from kdns.dns.zonefile import parse_record
from kdns.plugins.changes.dnssec.signing import SigningKey

ZONE_KEY: Final = 0x0100
CURVES: Final = {13: (ec.SECP256R1(), hashes.SHA256(), 32), 14: (ec.SECP384R1(), hashes.SHA384(), 48)}
RSA_HASHES: Final = {8: hashes.SHA256(), 10: hashes.SHA512()}
ALGORITHMS: Final = (*RSA_HASHES, *CURVES, 15, 16)
"""Numbers of algorithms; 15 and 16 are Ed25519 and Ed448. Those with SHA-1 must not sign (RFC 8624 §3.1)."""
MIN_RSA_BITS: Final = 1024
RSA_FIELDS: Final = ("prime1", "prime2", "privateexponent", "exponent1", "exponent2", "coefficient")


def read_key(public_text: str, private_text: str) -> SigningKey:
    lines = [line for line in public_text.splitlines() if line.split(";")[0].strip()]
    record = parse_record(lines[0]) if len(lines) == 1 else None
    dnskey = record.rdata[0] if record and record.rtype == DNSKEY else None
    if record is None or not isinstance(dnskey, bytes) or len(dnskey) < 5:
        raise ValueError("the file with the public key holds one DNSKEY record")
    if not int.from_bytes(dnskey[:2], "big") & ZONE_KEY or dnskey[2] != 3:
        raise ValueError("not the key of a zone: flags are 256 or 257, the protocol is 3")
    fields = {}
    for line in private_text.splitlines():
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    algorithm = dnskey[3]
    if fields.get("algorithm", "").partition(" ")[0] != str(algorithm):
        raise ValueError("the private key is for another algorithm than the public one, or for none")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm {algorithm} cannot sign; {', '.join(map(str, ALGORITHMS))} can")
    try:
        sign, public = _signer(algorithm, fields)
    except (KeyError, Base64Error, UnsupportedAlgorithm) as error:
        raise ValueError(f"the private key cannot be read: {error}") from error
    if public != dnskey[4:]:
        raise ValueError("the private and the public key do not belong together")
    owner = lowered(labels_of(record.owner))
    return SigningKey(owner, dnskey, algorithm, key_tag(dnskey), sign)


def key_tag(dnskey: bytes) -> int:
    """RFC 4034 appendix B."""
    total = sum(octet << 8 if at % 2 == 0 else octet for at, octet in enumerate(dnskey))
    return (total + (total >> 16)) & 0xFFFF


def _signer(algorithm: int, fields: dict[str, str]) -> tuple[Callable[[bytes], bytes], bytes]:
    if algorithm in CURVES:
        return _ecdsa(algorithm, int.from_bytes(b64decode(fields["privatekey"], validate=True), "big"))
    if algorithm in RSA_HASHES:
        return _rsa(algorithm, fields)
    secret = b64decode(fields["privatekey"], validate=True)
    if algorithm == 15:
        key = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
        return key.sign, key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    large = ed448.Ed448PrivateKey.from_private_bytes(secret)
    return large.sign, large.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def _ecdsa(algorithm: int, secret: int) -> tuple[Callable[[bytes], bytes], bytes]:
    curve, digest, size_bytes = CURVES[algorithm]
    key = ec.derive_private_key(secret, curve)

    def sign(text: bytes) -> bytes:
        r, s = decode_dss_signature(key.sign(text, ec.ECDSA(digest)))
        return r.to_bytes(size_bytes, "big") + s.to_bytes(size_bytes, "big")

    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return sign, point[1:]


def _rsa(algorithm: int, fields: dict[str, str]) -> tuple[Callable[[bytes], bytes], bytes]:
    digest = RSA_HASHES[algorithm]
    numbers = [int.from_bytes(b64decode(fields[name], validate=True), "big") for name in RSA_FIELDS]
    modulus = b64decode(fields["modulus"], validate=True)
    exponent = b64decode(fields["publicexponent"], validate=True)
    if len(modulus) * 8 < MIN_RSA_BITS:
        raise ValueError(f"an RSA key has at least {MIN_RSA_BITS} bits")
    public = rsa.RSAPublicNumbers(int.from_bytes(exponent, "big"), int.from_bytes(modulus, "big"))
    prime1, prime2, private, exponent1, exponent2, coefficient = numbers
    key = rsa.RSAPrivateNumbers(prime1, prime2, private, exponent1, exponent2, coefficient, public).private_key()

    def sign(text: bytes) -> bytes:
        return key.sign(text, padding.PKCS1v15(), digest)

    size = bytes((len(exponent),)) if len(exponent) < 256 else b"\x00" + len(exponent).to_bytes(2, "big")
    return sign, size + exponent + modulus
