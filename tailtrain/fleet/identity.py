"""A node's peer-to-peer identity: a key file as libp2p reads it, and the peer id that follows from it.

Made on the control machine, so that every node's configuration can name its peers before any of them has
started. The peer id is the hash of the public key, and libp2p proves possession of the private key when a
connection opens: a peer id in a configuration is therefore as good as a pinned host key.

Formats: https://github.com/libp2p/specs/blob/master/peer-ids/peer-ids.md (keys are protobuf messages
`{1: key type, 2: DER bytes}`; a peer id is the base58 text of a SHA-256 multihash of the public key message).
RSA, because the daemon that hivemind ships reads its identity as PKCS#1.
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tailtrain.errors import FleetError

_KEY_BITS = 2048
_PUBLIC_EXPONENT = 65537
_KEY_TYPE_RSA = b"\x08\x00"  # field 1, varint, value 0
_DATA_TAG = b"\x12"  # field 2, length-delimited
_SHA256_MULTIHASH = b"\x12\x20"  # sha2-256, 32 bytes
_MORE = 0x80  # in a varint: another byte follows
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def new_identity() -> tuple[bytes, str]:
    """A fresh identity.

    Returns:
        The content of the identity file (secret: mode 0600), and the peer id.
    """
    key = rsa.generate_private_key(public_exponent=_PUBLIC_EXPONENT, key_size=_KEY_BITS)
    der = key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return _message(der), _peer_id(key.public_key())


def peer_id_of(key_bytes: bytes) -> str:
    """The peer id that belongs to an identity file's content.

    Raises:
        FleetError: the bytes are not such an identity.
    """
    try:
        key = serialization.load_der_private_key(_data_of(key_bytes), password=None)
    except (ValueError, TypeError, IndexError) as error:
        raise _not_an_identity() from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise _not_an_identity()
    return _peer_id(key.public_key())


def _not_an_identity() -> FleetError:
    return FleetError(
        "this is not a peer identity",
        field="identity.key",
        expected="an RSA key in libp2p's form",
        fix="Remove the file; the next deploy makes a new identity",
    )


def _peer_id(public: rsa.RSAPublicKey) -> str:
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _base58(_SHA256_MULTIHASH + hashlib.sha256(_message(der)).digest())


def _message(data: bytes) -> bytes:
    """The protobuf message {key type: RSA, data}."""
    length, varint = len(data), b""
    while length >= _MORE:
        varint += bytes([length & 0x7F | _MORE])
        length >>= 7
    return _KEY_TYPE_RSA + _DATA_TAG + varint + bytes([length]) + data


def _data_of(message: bytes) -> bytes:
    """The DER bytes inside such a message; ValueError if it is not one."""
    start = len(_KEY_TYPE_RSA) + len(_DATA_TAG)
    if message[:start] != _KEY_TYPE_RSA + _DATA_TAG:
        raise ValueError
    length = shift = 0
    while True:
        byte = message[start]
        start += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < _MORE:
            break
    if len(message) != start + length:
        raise ValueError
    return message[start:]


def _base58(data: bytes) -> str:
    """Bitcoin's base 58; a SHA-256 multihash never begins with a zero byte, so no leading ones are needed."""
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return text
