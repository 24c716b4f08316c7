"""Certificates for stand-ins, from an authority that is thrown away with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

AUTHORITY = "authority.pem"
"""The authority's certificate, in the folder of `make_certificates`."""

SERVER = "server.pem"
"""The server's certificate and its key."""


def make_certificates(folder: Path, names: Sequence[str]) -> None:
    """Write `AUTHORITY` and `SERVER`, good for these host names and two days."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "throw-away authority")])
    begin = datetime.now(UTC) - timedelta(days=1)

    def draft(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + timedelta(days=3))
        )

    authority = (
        draft(issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    server = (
        draft(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]), key.public_key())
        .add_extension(alternatives, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / AUTHORITY).write_bytes(authority.public_bytes(pem))
    (folder / SERVER).write_bytes(server.public_bytes(pem) + private)
