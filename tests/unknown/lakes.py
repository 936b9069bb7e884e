"""Lakes with a second user, the guest: it may do everything in one bucket, and nothing in another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from botocore.client import BaseClient
from minio import MinioAdmin
from minio.credentials import StaticProvider
from real import aws
from real.lakes import Account, Lake, User, ceph, minio

# The name that both lakes know as their own, beside the address.
NAME = "lake.test"
SHARED, CLOSED = "shared", "closed"
GUEST = Account("guestkey", "guestsecret")
_ROLE = "arn:aws:iam:::role/of-the-guest"


@dataclass(frozen=True)
class GuestLake:
    """A lake and its guest."""

    lake: Lake
    guest: Account = GUEST

    @property
    def named_url(self) -> str:
        """Returns the lake's URL by its name, which nobody resolves by himself."""
        return f"http://{NAME}:{self.port}"

    @property
    def port(self) -> int:
        """Returns the lake's port."""
        port = urlsplit(self.lake.url).port
        if port is None:
            raise ValueError(self.lake.url)
        return port

    def client(self, account: Account | None = None, service: str = "s3") -> BaseClient:
        """Returns a client of the lake itself; of the owner, unless another account is named."""
        return aws.client(service, self.lake.url, account or self.lake.account)

    def temporary_key(self) -> Account:
        """Returns a key of the guest with a session token, which the lake's STS gives."""
        sts = self.client(self.guest, "sts")
        return aws.account_of(sts.assume_role(RoleArn=_ROLE, RoleSessionName="guest")["Credentials"])


@contextmanager
def _minio(folder: Path) -> Iterator[GuestLake]:
    with minio.start(folder, environment={"MINIO_DOMAIN": NAME}) as lake:
        _make_buckets(lake)
        provider = StaticProvider(lake.account.access_key, lake.account.secret_key)
        admin = MinioAdmin(endpoint=urlsplit(lake.url).netloc, credentials=provider, secure=False)
        admin.user_add(GUEST.access_key, GUEST.secret_key)
        rights = {"Effect": "Allow", "Action": ["s3:*"], "Resource": _of_bucket(SHARED)}
        admin.policy_add("guest", policy={"Version": "2012-10-17", "Statement": [rights]})
        admin.attach_policy(["guest"], user=GUEST.access_key)
        yield GuestLake(lake)


@contextmanager
def _ceph(folder: Path) -> Iterator[GuestLake]:
    gateway = f"{ceph.STS}\nrgw_dns_name = {NAME}"
    guest = User(GUEST, "guest", "guest", "guest@example.com")
    with ceph.start(folder, [guest], gateway=gateway, capabilities="roles=*;users=*") as lake:
        _make_buckets(lake)
        # The owner as well: he may not read what others put into his bucket.
        principals = {"AWS": ["arn:aws:iam:::user/guest", "arn:aws:iam:::user/lake"]}
        rights = {"Effect": "Allow", "Action": ["s3:*"], "Resource": _of_bucket(SHARED)}
        owner = aws.client("s3", lake.url, lake.account)
        owner.put_bucket_policy(Bucket=SHARED, Policy=aws.policy({**rights, "Principal": principals}))
        trust = {
            "Effect": "Allow",
            "Principal": {"AWS": ["arn:aws:iam:::user/guest"]},
            "Action": ["sts:AssumeRole"],
        }
        iam, role = aws.client("iam", lake.url, lake.account), _ROLE.rpartition("/")[2]
        iam.create_role(RoleName=role, AssumeRolePolicyDocument=aws.policy(trust))
        iam.put_role_policy(RoleName=role, PolicyName="rights", PolicyDocument=aws.policy(rights))
        yield GuestLake(lake)


def _make_buckets(lake: Lake) -> None:
    owner = aws.client("s3", lake.url, lake.account)
    for bucket in (SHARED, CLOSED):
        owner.create_bucket(Bucket=bucket)


def _of_bucket(bucket: str) -> list[str]:
    return [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]


LAKES: dict[str, Callable[[Path], AbstractContextManager[GuestLake]]] = {"minio": _minio, "ceph": _ceph}
