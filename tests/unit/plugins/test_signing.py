"""Keys from files and signatures of RRsets, judged by dnspython."""

from base64 import b64encode

import dns.dnssec
import dns.name
import dns.rrset
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from zone_text import record_texts

from kdns.dns.names import labels_of
from kdns.dns.rrset import Mx, RRset, Srv
from kdns.dns.types import MX, NSEC, SRV, A
from kdns.plugins.changes.dnssec.keys import read_key
from kdns.plugins.changes.dnssec.signing import canonical, nsec_rdata, signature

NOW_S = 1_700_000_000


def text(number: int) -> str:
    return b64encode(number.to_bytes((number.bit_length() + 7) // 8, "big")).decode()


def elliptic(algorithm: int, curve: ec.EllipticCurve) -> tuple[str, str]:
    key = ec.generate_private_key(curve)
    public = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]
    size_bytes = len(public) // 2
    secret = b64encode(key.private_numbers().private_value.to_bytes(size_bytes, "big")).decode()
    return b64encode(public).decode(), f"Algorithm: {algorithm} (X)\nPrivateKey: {secret}\n"


def edwards(algorithm: int, key: ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey) -> tuple[str, str]:
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    secret = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return b64encode(public).decode(), f"Algorithm: {algorithm} (X)\nPrivateKey: {b64encode(secret).decode()}\n"


def rsa_pair(algorithm: int) -> tuple[str, str]:
    numbers = rsa.generate_private_key(65537, 1024).private_numbers()  # noqa: S505 - made in a moment
    public = numbers.public_numbers
    modulus = public.n.to_bytes(128, "big")
    fields = {
        "Modulus": public.n, "PublicExponent": public.e, "PrivateExponent": numbers.d, "Prime1": numbers.p,
        "Prime2": numbers.q, "Exponent1": numbers.dmp1, "Exponent2": numbers.dmq1, "Coefficient": numbers.iqmp,
    }  # fmt: skip
    private = "".join(f"{name}: {text(number)}\n" for name, number in fields.items())
    return b64encode(b"\x03\x01\x00\x01" + modulus).decode(), f"Algorithm: {algorithm} (X)\n{private}"


PAIRS = {
    8: rsa_pair(8),
    10: rsa_pair(10),
    13: elliptic(13, ec.SECP256R1()),
    14: elliptic(14, ec.SECP384R1()),
    15: edwards(15, ed25519.Ed25519PrivateKey.generate()),
    16: edwards(16, ed448.Ed448PrivateKey.generate()),
}
RRSETS = [
    RRset("Web.Example.org.", A, 60, (b"\x0a\x00\x00\x02", b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02")),
    RRset("example.org.", MX, 60, (Mx(10, "B.example.org."), Mx(5, "a.Example.org."))),
    RRset("*.example.org.", SRV, 60, (Srv(0, 1, 2, "A.example.org."),)),
    RRset("a.example.org.", NSEC, 60, (nsec_rdata((b"\x00", b"a", b"example", b"org"), (1, 46, 47, 1234)),)),
]


@pytest.mark.parametrize("algorithm", PAIRS)
@pytest.mark.parametrize("rrset", RRSETS, ids=[rrset.owner for rrset in RRSETS])
def test_signatures_are_valid(algorithm: int, rrset: RRset) -> None:
    public, private = PAIRS[algorithm]
    key = read_key(f"; a comment\nexample.org. 3600 IN DNSKEY 257 3 {algorithm} {public}\n", private)
    zone = labels_of("example.org.")
    made = signature(key, zone, rrset, canonical(rrset), NOW_S - 10, NOW_S + 10)
    signer = dns.name.from_text("example.org.")
    dnskeys = dns.rrset.from_text(signer, 3600, "IN", "DNSKEY", f"257 3 {algorithm} {public}")
    rdata = {line.split(None, 4)[4] for line in record_texts(rrset)}
    signed = dns.rrset.from_text_list(rrset.owner, rrset.ttl, "IN", record_texts(rrset)[0].split()[3], rdata)
    rrsig = dns.rrset.from_text(rrset.owner, rrset.ttl, "IN", "RRSIG", record_texts(made)[0].split(None, 4)[4])
    dns.dnssec.validate_rrsig(signed, rrsig[0], {signer: dnskeys}, now=NOW_S)
    assert rrsig[0].key_tag == dns.dnssec.key_id(dnskeys[0]) == key.tag


@pytest.mark.parametrize(
    ("public", "private", "reason"),
    [
        ("", PAIRS[13][1], "one DNSKEY"),
        ("a. IN A 1.2.3.4", PAIRS[13][1], "one DNSKEY"),
        (f"a. IN DNSKEY 0 3 13 {PAIRS[13][0]}", PAIRS[13][1], "not the key of a zone"),
        (f"a. IN DNSKEY 256 3 15 {PAIRS[13][0]}", PAIRS[13][1], "another algorithm"),
        (f"a. IN DNSKEY 256 3 13 {PAIRS[15][0]}", PAIRS[13][1], "do not belong together"),
        (f"a. IN DNSKEY 256 3 13 {PAIRS[13][0]}", "Algorithm: 13\n", "cannot be read"),
        (f"a. IN DNSKEY 256 3 13 {PAIRS[13][0]}", "Algorithm: 13\nPrivateKey: ?\n", "cannot be read"),
        (f"a. IN DNSKEY 256 3 15 {PAIRS[15][0]}", "Algorithm: 15\nPrivateKey: AAAA\n", "32 bytes"),
        (f"a. IN DNSKEY 256 3 5 {PAIRS[8][0]}", PAIRS[8][1].replace("8 (X)", "5"), "algorithm 5 cannot sign"),
        ("a. IN DNSKEY", PAIRS[13][1], "not a record"),
    ],
    ids=map(str, range(10)),
)
def test_what_is_no_key(public: str, private: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_key(public, private)
