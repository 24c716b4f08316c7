"""What rclone, S3 and Google Drive complain of, in plain words with what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tailtrain.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.data.backends.remote import Remote

_AGAIN = "Run it again: what has arrived is kept"
_CLOCK = "Set this machine's clock (timedatectl set-ntp true)"
_MOST_SHOWN = 400


class _Complaint(NamedTuple):
    """A pattern of a message, what it means, what to do; `{name}`, `{path}`, `{bucket}` are the remote's."""

    pattern: str
    problem: str
    fix: str


# The first that is found in any line counts: what is precise comes before what is vague. Reasons of Drive:
# https://developers.google.com/workspace/drive/api/guides/handle-errors; codes of S3:
# https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html; the rest are rclone's words and Go's.
_COMPLAINTS = (
    _Complaint(
        r"storageQuotaExceeded.*Service Accounts|Service Accounts do not have storage quota",
        "a service account has no space of its own on Google Drive",
        "Name a shared drive that the account may write to: rclone config update {name} team_drive=ID",
    ),
    _Complaint(
        r"storageQuotaExceeded|teamDriveFileLimitExceeded|[^a-z]quotaExceeded",
        "Google Drive is full",
        "Make room (rclone cleanup {name}: empties the bin), then run it again",
    ),
    _Complaint(
        r"uploadLimitExceeded|User rate limit exceeded\.|Received upload limit error",
        "Google Drive takes no more today: 750 GiB may be uploaded a day",
        f"{_AGAIN}, tomorrow",
    ),
    _Complaint(
        r"downloadQuotaExceeded|Received download limit error",
        "Google Drive gives no more today: 10 TiB may be downloaded a day, less of one file",
        "Run it again tomorrow, or take another backend",
    ),
    _Complaint(
        r"dailyLimitExceeded|Daily Limit Exceeded",
        "the Google Cloud project of the client id may make no more calls today",
        "Run it again tomorrow, or ask for more at https://console.cloud.google.com/apis/api/drive.googleapis.com/quotas",
    ),
    _Complaint(
        r"rateLimitExceeded|Too Many Requests|\b429\b|SlowDown|Reduce your request rate",
        "too many calls, in spite of waiting",
        f"{_AGAIN}, in some minutes",
    ),
    _Complaint(
        r"invalid_grant",
        "Google does not take the refresh token or the service account any more",
        "Log in again: rclone config reconnect {name}: (the tokens of an app in testing end after 7 days: "
        "publish it)",
    ),
    _Complaint(
        r"invalid_client|unauthorized_client|deleted_client",
        "Google does not know the client id and secret",
        "Make your own, see https://rclone.org/drive/#making-your-own-client-id",
    ),
    _Complaint(
        r"accessNotConfigured|API has not been used in project|it is disabled",
        "the Drive API is not switched on in the client id's project",
        "Switch it on at https://console.cloud.google.com/apis/library/drive.googleapis.com",
    ),
    _Complaint(
        r"insufficientFilePermissions|insufficientPermissions|appNotAuthorizedToFile|ACCESS_TOKEN_SCOPE",
        "this account or its scope may not do that on Google Drive",
        "Use scope drive or drive.file, and give the account the role Content manager on a shared drive",
    ),
    _Complaint(
        r"Error 401|authError|Invalid Credentials|couldn't fetch token|empty token found",
        "Google Drive does not take the credentials",
        "Log in again: rclone config reconnect {name}:",
    ),
    _Complaint(
        r"NoSuchBucket|specified bucket does not exist",
        "there is no such bucket",
        "Correct its name, or make it: rclone mkdir {bucket}",
    ),
    _Complaint(
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidSecret|MissingSecurityHeader|AuthFailure",
        "S3 does not take the access key",
        "Correct access_key_id and secret_access_key of {name}: rclone config",
    ),
    _Complaint(r"RequestTimeTooSkewed|RequestExpired", "the clocks of S3 and of this machine differ", _CLOCK),
    _Complaint(
        r"ExpiredToken|TokenRefreshRequired|InvalidToken",
        "the S3 session token has expired",
        "Set a new one, or better a key that lasts: nodes fetch chunks while they train",
    ),
    _Complaint(
        r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|301 Moved",
        "the bucket is in another region",
        "Set it: rclone config update {name} region=REGION",
    ),
    _Complaint(
        r"EntityTooLarge|QuotaExceeded|XMinioStorageFull|InsufficientStorage|\b507\b",
        "the bucket takes no more",
        "Make room or raise its quota, then run it again",
    ),
    _Complaint(
        r"AccessDenied|Access Denied|AllAccessDisabled|StatusCode: 403",
        "S3 refused",
        "The access key needs s3:ListBucket on the bucket, and s3:GetObject and s3:PutObject in its folder",
    ),
    _Complaint(
        r"x509: |certificate signed by unknown authority|tls: failed to verify",
        "its certificate is not trusted",
        "Set storage's ca_certificate in group_data to the file of the authority that vouches for it",
    ),
    _Complaint(
        r"server gave HTTP response to HTTPS|first record does not look like a TLS",
        "it does not speak HTTPS there",
        "Correct the endpoint: rclone config update {name} endpoint=http://...",
    ),
    _Complaint(
        r"proxyconnect|Proxy Authentication Required",
        "the proxy does not lead there",
        "Correct storage's http_proxy in group_data",
    ),
    _Complaint(
        r"connection refused|no such host|no route to host|network is unreachable|i/o timeout|"
        r"connection reset|unexpected EOF|deadline exceeded|server misbehaving|: EOF",
        "it does not answer",
        f"See whether it is up and reached from here. {_AGAIN}",
    ),
    _Complaint(
        r"corrupted on transfer|hashes differ|sizes differ|BadDigest|IncompleteBody|ContentSHA256Mismatch",
        "what arrived there is not what was sent",
        f"{_AGAIN}. If it stays so, look at this machine's memory and disk",
    ),
    _Complaint(
        r"no space left on device", "the disk of this machine is full", "Make room, then run it again"
    ),
    _Complaint(
        r"didn't find section|didn't find backend|unknown provider",
        "rclone does not understand its configuration",
        "Make it anew: rclone config",
    ),
    _Complaint(
        r"directory not found|object not found|notFound|NoSuchKey|Error 404|StatusCode: 404",
        "what was looked for is not there",
        "See what is there: rclone lsf {path}",
    ),
    _Complaint(
        r"Error 5\d\d|StatusCode: 5\d\d|backendError|internalError|InternalError",
        "it has a fault of its own at the moment",
        f"{_AGAIN}, in some minutes",
    ),
)


def explain(remote: Remote, lines: Sequence[str], code: int) -> StorageError:
    """The error that says what went wrong.

    Args:
        remote: where it went wrong; none of its secrets is in the error.
        lines: what rclone said, the newest last.
        code: its exit code, negative where a signal ended it.
    """
    for complaint in _COMPLAINTS:
        if any(re.search(complaint.pattern, line) for line in lines):
            fix = complaint.fix.format(name=remote.name, path=remote.path, bucket=remote.bucket)
            return StorageError(complaint.problem, field=remote.path, fix=fix)
    last = next((line for line in reversed(lines) if line), "nothing")
    if code < 0:
        return StorageError(
            "rclone was ended from outside", field=remote.path, found=f"signal {-code}", fix=_AGAIN
        )
    said = remote.masked(" ".join(last.split()))[:_MOST_SHOWN]
    return StorageError(
        f"rclone failed with exit code {code}",
        field=remote.path,
        found=said,
        fix=f"Try it: rclone lsf {remote.path}",
    )
