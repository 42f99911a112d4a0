"""A certificate authority of one's own, and what it signs: the broker's and the store's certificates.

Keys are on the curve P-256, which Java, Go and OpenSSL all take; everything is PEM.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
SERVER_DAYS = 730
RENEW_DAYS = 30
"""A certificate with fewer days left is made anew."""
_SKEW = timedelta(hours=1)


@dataclass(frozen=True, repr=False)
class Certificate:
    """A certificate and its private key; its ``repr`` shows neither.

    Attributes:
        certificate: PEM.
        key: PEM, PKCS 8, not encrypted.
    """

    certificate: str
    key: str


def make_authority(days: float = AUTHORITY_DAYS) -> Certificate:
    """A new authority, which signs servers' certificates and nothing else."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("pipeline")
    builder = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Certificate, name: str, hosts: Sequence[str], *, mutual: bool = False, days: float = SERVER_DAYS
) -> Certificate:
    """A server's certificate.

    Args:
        authority: signs it.
        name: its common name.
        hosts: names and IP addresses that the server is reached at.
        mutual: whether the server also shows it to others, as a client.
        days: how long it holds from now on; negative: it has expired.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer_key = _private(authority)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if mutual else [])]
    builder = (
        _builder(_name(name), signer.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False)
    )
    return _pair(builder.sign(signer_key, hashes.SHA256()), key)


def serves(certificate: str, authority: str, hosts: Sequence[str], days: float = RENEW_DAYS) -> bool:
    """Whether a certificate is of this authority, names all these hosts, and holds for so many days more.

    Args:
        certificate, authority: PEM.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.encode()))
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return found.not_valid_after_utc - datetime.now(UTC) >= timedelta(days=days) and all(
        _alternative(host) in names for host in hosts
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A machine whose clock is a little behind takes it at once.
        .not_valid_before(min(now, end) - _SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(**allowed: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in names})


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _private(pair: Certificate) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is not on an elliptic curve")
    return key


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certificate:
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificate(certificate.public_bytes(encoding).decode(), private.decode())
