"""Signatures: what is signed is verified by the other side, and files of keys are read or refused."""

import pytest

from kdns.dns.message import query
from kdns.dns.names import labels_of
from kdns.dns.types import SOA, A
from kdns.errors import CorefileError
from kdns.plugins.guards.tsig.plugin import TsigConfig, parse_secrets
from kdns.plugins.guards.tsig.signature import BADKEY, BADSIG, BADTIME, MAC_BYTES, Signer, Verifier, tsig_of, verified

KEY = labels_of("key.")
SECRET = b"secret"
NOW_S = 1_800_000_000.0


def now_s() -> float:
    return NOW_S


def request(algorithm: str = "hmac-sha256.", secret: bytes = SECRET) -> tuple[bytes, bytes]:
    """A signed query, and the MAC of its signature."""
    signer = Signer(KEY, secret, algorithm, now_s)
    return signer(query("x.", A)), signer.mac


def test_types_of_tsig_are_those_of_queries() -> None:
    """A NOTIFY has the type SOA too."""
    config = TsigConfig(("example.",), qtypes=frozenset({SOA}))
    assert [config.requires(SOA, 0), config.requires(A, 0), config.requires(SOA, 4)] == [True, False, False]


@pytest.mark.parametrize("algorithm", MAC_BYTES)
def test_a_transfer_is_verified_message_by_message(algorithm: str) -> None:
    packet, mac = request(algorithm)
    tsig = tsig_of(packet)
    assert tsig
    error, signer = verified(packet, tsig, {"key.": SECRET}, now_s)
    assert error == 0
    verifier = Verifier(KEY, SECRET, algorithm, mac)
    plain = query("x.", A)
    for _ in range(3):
        signed = signer(plain)
        assert len(signed) <= len(plain) + signer.size_bytes
        verifier.check(signed, NOW_S)
        assert verifier.is_complete


def test_a_message_between_others_may_be_unsigned_and_none_may_be_missing() -> None:
    packet, mac = request()
    seals = []
    for _ in range(2):
        tsig = tsig_of(packet)
        assert tsig
        seals.append(verified(packet, tsig, {"key.": SECRET}, now_s)[1])
    messages = [seals[0](query(f"{name}.", A)) for name in "abc"]
    verifier = Verifier(KEY, SECRET, "hmac-sha256.", mac)
    verifier.check(messages[0], NOW_S)
    verifier.check(query("b.", A), NOW_S)
    assert not verifier.is_complete
    with pytest.raises(ValueError, match="signature"):
        verifier.check(messages[2], NOW_S)
    with pytest.raises(ValueError, match="not signed"):
        Verifier(KEY, SECRET, "hmac-sha256.", mac).check(query("a.", A), NOW_S)


@pytest.mark.parametrize(
    ("secrets", "secret", "clock_s", "error"),
    [
        ({}, SECRET, NOW_S, BADKEY),
        ({"key.": SECRET}, b"other", NOW_S, BADSIG),
        ({"key.": SECRET}, SECRET, NOW_S + 301, BADTIME),
        ({"key.": SECRET}, SECRET, NOW_S - 301, BADTIME),
        ({"key.": SECRET}, SECRET, NOW_S - 300, 0),
    ],
)
def test_errors(secrets: dict[str, bytes], secret: bytes, clock_s: float, error: int) -> None:
    packet, _ = request(secret=secret)
    tsig = tsig_of(packet)
    assert tsig
    found, signer = verified(packet, tsig, secrets, lambda: clock_s)
    assert found == error
    answered = tsig_of(signer(query("x.", A)))
    assert answered
    assert answered.rdata.error == error
    assert bool(answered.rdata.mac) == (error in {0, BADTIME})


def test_a_signature_stands_last() -> None:
    packet, _ = request()
    assert tsig_of(query("x.", A)) is None
    with pytest.raises(ValueError, match="last"):
        tsig_of(packet[:11] + b"\x02" + packet[12:] + b"\0\0\x29\x04\xd0\0\0\0\0\0\0")


def test_files_of_keys() -> None:
    text = '# a\nkey "A.org" {\n algorithm hmac-sha256; // b\n secret "c2VjcmV0";\n};\n'
    text += "/* c\n*/ key b { secret c2VjcmV0; };\n"
    assert parse_secrets(text, "keys") == {"a.org.": SECRET, "b.": SECRET}
    assert parse_secrets(" \n", "keys") == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\nzone a { };", 2),
        ('key a { secret "c2VjcmV0"; };\n\nkey b { algorithm x; };', 3),
        ('key a { secret "!"; };', 1),
        ('key a { secret "c2VjcmV0"; file "x"; };', 1),
    ],
)
def test_mistakes_in_files_of_keys(text: str, line: int) -> None:
    with pytest.raises(CorefileError) as caught:
        parse_secrets(text, "keys")
    assert (caught.value.path, caught.value.line, caught.value.others) == ("keys", line, ())
    assert "c2VjcmV0" not in str(caught.value)


def test_every_mistake_in_a_file_of_keys_is_told() -> None:
    text = 'key a { secret "!"; };\nzone b { };\nkey c { secret "c2VjcmV0"; };\nkey d { };\nkeys\n'
    with pytest.raises(CorefileError) as caught:
        parse_secrets(text, "keys")
    assert [mistake.line for mistake in (caught.value, *caught.value.others)] == [1, 2, 4, 5]
