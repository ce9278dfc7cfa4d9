"""Certificates for tests, made on the spot."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: Authority | None,
    hosts: Sequence[str] = ("127.0.0.1",),
    end_h: float = 1,
    groups: Sequence[str] = (),
) -> x509.Certificate:
    names = [*((x509.NameOID.ORGANIZATION_NAME, group) for group in groups), (x509.NameOID.COMMON_NAME, name)]
    subject = x509.Name([x509.NameAttribute(*each) for each in names])
    now = dt.datetime.now(dt.UTC)
    signer = issuer.key if issuer else key
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=2))
        .not_valid_after(now + dt.timedelta(hours=end_h))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False)
        # Clients of CPython 3.13 and later require these (VERIFY_X509_STRICT).
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=issuer is None,
                crl_sign=issuer is None,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def authority(name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    return Authority(key, _certificate(name, key, None))


def issue(
    ca: Authority,
    name: str,
    folder: Path,
    hosts: Sequence[str] = ("127.0.0.1",),
    end_h: float = 1,
    *,
    groups: Sequence[str] = (),
) -> tuple[Path, Path]:
    """A certificate for these hosts, which ends in so many hours, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    cert_path, key_path = folder / f"{name}.crt", folder / f"{name}.key"
    cert_path.write_bytes(_certificate(name, key, ca, hosts, end_h, groups).public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key_path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return cert_path, key_path


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The TLS contexts of a server and of a client that trusts it."""
    ca = authority("ca")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*issue(ca, "server", folder))
    return server, ssl.create_default_context(cadata=ca.pem.decode())
