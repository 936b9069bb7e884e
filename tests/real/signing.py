"""AWS Signature Version 4 in its plainest form: a request without a hashed body, signed in the header."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import quote

from .lakes import REGION, Account

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"


def encode_path(bucket: str, key: str) -> str:
    """Returns the path of an object as it goes over the wire."""
    return "/" + quote(bucket, safe="") + "/" + quote(key, safe="/-_.~")


def encode_query(query: dict[str, str]) -> str:
    """Returns the query string, canonical for SigV4 and valid for HTTP."""
    return "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))


def signed_headers(
    account: Account,
    method: str,
    host: str,
    path: str,
    query: str = "",
    headers: dict[str, str] | None = None,
    payload: str = UNSIGNED_PAYLOAD,
    service: str = "s3",
) -> dict[str, str]:
    """Returns `headers` with a signature of `account` for `service` that is valid for fifteen minutes."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    token = {} if account.session_token is None else {"x-amz-security-token": account.session_token}
    everything = {**(headers or {}), **token, "Host": host, "x-amz-date": now, "x-amz-content-sha256": payload}
    # `Range` and conditions stay unsigned, as SDKs may leave them: one signature then serves many ranges.
    to_sign = {
        name.lower(): " ".join(value.split())
        for name, value in everything.items()
        if name.lower() == "host" or name.lower().startswith("x-amz-")
    }
    names = ";".join(sorted(to_sign))
    canonical = "\n".join(
        [method, path, query, *(f"{name}:{to_sign[name]}" for name in sorted(to_sign)), "", names, payload]
    )
    everything["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={account.access_key}/{_scope(now, service)}, "
        f"SignedHeaders={names}, Signature={_signature(account, now, canonical, service)}"
    )
    return everything


def presigned_query(account: Account, method: str, host: str, path: str, expires_s: int = 900) -> str:
    """Returns the query of a presigned URL that signs the host and no other header."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    query = encode_query(
        {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{account.access_key}/{_scope(now)}",
            "X-Amz-Date": now,
            "X-Amz-Expires": str(expires_s),
            "X-Amz-SignedHeaders": "host",
        }
    )
    canonical = "\n".join([method, path, query, f"host:{host}", "", "host", UNSIGNED_PAYLOAD])
    return f"{query}&X-Amz-Signature={_signature(account, now, canonical)}"


def _scope(now: str, service: str = "s3") -> str:
    return f"{now[:8]}/{REGION}/{service}/aws4_request"


def _signature(account: Account, now: str, canonical: str, service: str = "s3") -> str:
    """Returns the signature of a canonical request that is signed `now`."""
    scope = _scope(now, service)
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{account.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()
