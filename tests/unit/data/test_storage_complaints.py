"""What rclone says, as it says it, and what a person reads instead."""

from __future__ import annotations

import pytest

from tailtrain.data.backends.complaints import explain
from tailtrain.data.backends.remote import Remote
from tailtrain.errors import StorageError
from tailtrain.spec import StorageBackend

S3 = Remote("fleet", "bucket/data", StorageBackend.S3, {"secret_access_key": "sentinel-secret"})
_DRIVE_ERROR = "googleapi: Error 403: "
_S3_ERROR = "operation error S3: PutObject, https response error StatusCode: {}, RequestID: 1, HostID: 2, "


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (_DRIVE_ERROR + "The user's Drive storage quota has been exceeded., storageQuotaExceeded", "is full"),
        (
            _DRIVE_ERROR + "Service Accounts do not have storage quota., storageQuotaExceeded",
            "service account",
        ),
        ("Received upload limit error: " + _DRIVE_ERROR + "User rate limit exceeded.", "750 GiB"),
        (_DRIVE_ERROR + "The download quota for this file is exceeded., downloadQuotaExceeded", "10 TiB"),
        (_DRIVE_ERROR + "Daily Limit Exceeded, dailyLimitExceeded", "no more calls today"),
        (_DRIVE_ERROR + "Rate Limit Exceeded, rateLimitExceeded", "too many calls"),
        (_DRIVE_ERROR + "Google Drive API is disabled., accessNotConfigured", "not switched on"),
        (_DRIVE_ERROR + "insufficient permissions, insufficientFilePermissions", "may not do that"),
        ("googleapi: Error 401: Invalid Credentials, authError", "does not take the credentials"),
        ("couldn't fetch token: invalid_grant: maybe token expired?", "the refresh token.*reconnect fleet:"),
        ('couldn\'t fetch token: oauth2: "invalid_client" "Unauthorized"', "does not know the client id"),
        (
            _S3_ERROR.format(404) + "api error NoSuchBucket: The specified bucket does not exist",
            "no such bucket",
        ),
        (_S3_ERROR.format(403) + "api error AccessDenied: Access Denied", "S3 refused.*s3:PutObject"),
        (_S3_ERROR.format(403) + "api error InvalidAccessKeyId: not in our records", "access key"),
        (_S3_ERROR.format(403) + "api error RequestTimeTooSkewed: too large", r"clocks .*timedatectl"),
        (
            _S3_ERROR.format(400) + "api error ExpiredToken: The provided token has expired",
            "token has expired",
        ),
        (_S3_ERROR.format(301) + "api error PermanentRedirect: must be addressed", "another region"),
        (_S3_ERROR.format(503) + "api error SlowDown: Please reduce your request rate", "too many calls"),
        (_S3_ERROR.format(500) + "api error InternalError: We encountered an error", "fault of its own"),
        (_S3_ERROR.format(507) + "api error XMinioStorageFull: reached its minimum", "takes no more"),
        (
            'Get "https://x": tls: failed to verify certificate: x509: certificate signed by unknown',
            "not trusted",
        ),
        ('Get "https://x": http: server gave HTTP response to HTTPS client', "does not speak HTTPS"),
        ('Get "https://x": proxyconnect tcp: dial tcp 127.0.0.1:1: connect: connection refused', "the proxy"),
        ('Get "http://x": dial tcp 127.0.0.1:9: connect: connection refused', "does not answer"),
        ('Get "https://x": dial tcp: lookup x: no such host', "does not answer"),
        ('corrupted on transfer: md5 hashes differ src(s3) "a" vs dst "b"', "not what was sent"),
        ("write /tmp/x: no space left on device", "disk of this machine is full"),
    ],
)
def test_known_complaints_are_in_plain_words_with_what_to_do(said: str, words: str) -> None:
    error = explain(S3, [said, "Attempt 1/1 failed with 1 errors"], 1)
    with pytest.raises(StorageError, match=words):
        raise error
    assert error.field == "fleet:bucket/data"
    assert error.fix


def test_what_is_not_known_is_shown_without_secrets() -> None:
    error = explain(S3, ["a novelty with sentinel-secret in it", ""], 9)
    assert str(error) == (
        "fleet:bucket/data: rclone failed with exit code 9 (found a novelty with *** in it). "
        "Try it: rclone lsf fleet:bucket/data"
    )


def test_an_end_from_outside_is_said() -> None:
    assert "ended from outside (found signal 9)" in str(explain(S3, [], -9))
