"""A private authority, and the certificate that it gives a server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """Files of PEM: the certificate of the authority, and certificate and key of the server."""

    authority: Path
    chain: Path
    key: Path


def certify(folder: Path, *names: x509.GeneralName) -> Certificate:
    """Makes a private authority, and a certificate for these names, in a new folder."""
    folder.mkdir()
    made = Certificate(folder / "authority.pem", folder / "chain.pem", folder / "key.pem")
    signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer, now = _name("authority of a test"), datetime.now(UTC)

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        signed = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(public)
        signed = signed.serial_number(x509.random_serial_number())
        signed = signed.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        return signed.add_extension(identifier, critical=False)

    authority = builder(issuer, signer.public_key())
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    authority = authority.add_extension(x509.SubjectKeyIdentifier.from_public_key(signer.public_key()), critical=False)
    leaf = builder(_name("server of a test"), key.public_key())
    leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made.authority.write_bytes(authority.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM))
    made.chain.write_bytes(leaf.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM))
    made.key.touch(mode=0o600)
    made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return made


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
