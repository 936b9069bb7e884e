"""The accounts `ceph/s3-tests` wants at the store, and the configuration file that names them."""

from __future__ import annotations

import configparser
from pathlib import Path
from urllib.parse import urlsplit

from real.lakes import Account, User

USERS: dict[str, User] = {
    "s3 main": User(Account("s3testsmain", "s3testsmain-secret"), "testid", "M. Tester", "tester@example.com"),
    "s3 alt": User(Account("s3testsalt", "s3testsalt-secret"), "altid", "Alt Tester", "alt@example.com"),
    "s3 tenant": User(
        Account("s3teststenant", "s3teststenant-secret"),
        "tenantid",
        "Tenant Tester",
        "tenant@example.com",
        tenant="testx",
    ),
    "iam": User(
        Account("s3testsiam", "s3testsiam-secret"),
        "iamid",
        "IAM Tester",
        "iam@example.com",
        capabilities="user-policy=*;roles=*;oidc-provider=*",
    ),
    # Two roots of accounts: a notion our lakes lack, but the file must name them.
    "iam root": User(Account("s3testsroot", "s3testsroot-secret"), "rootid", "Root Tester", "root@example.com"),
    "iam alt root": User(
        Account("s3testsaltroot", "s3testsaltroot-secret"), "altrootid", "Root Two", "root2@example.com"
    ),
}

# Keeps the packs of all accounts, where they are packed. The suite does not know it.
KEEPER = User(Account("s3testskeeper", "s3testskeeper-secret"), "keeperid", "Keeper", "k@example.com", is_admin=True)

# The prefix of the names of buckets, which differs in each run.
BUCKETS = "shoal-{random}-"


def full_name(user: User) -> str:
    """Returns the name of a user with that of his tenant, as Ceph writes it."""
    return f"{user.tenant}${user.user_id}" if user.tenant else user.user_id


def write_configuration(path: Path, url: str, buckets: str = BUCKETS) -> None:
    """Writes the `s3tests.conf` that makes the suite talk to `url`."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"{url} needs a host and a port")
    conf = configparser.RawConfigParser()
    # `localhost` and not an address: some tests put the bucket in front of the host name.
    host = "localhost" if parts.hostname == "127.0.0.1" else parts.hostname
    conf["DEFAULT"] = {
        "host": host,
        "port": str(parts.port),
        "is_secure": str(parts.scheme == "https"),
        "ssl_verify": "False",
    }
    conf["fixtures"] = {
        "bucket prefix": buckets,
        "iam name prefix": "shoal-",
        "iam path prefix": "/shoal/",
    }
    for section, user in USERS.items():
        conf[section] = {
            "display_name": user.display_name,
            "user_id": full_name(user),
            "email": user.email,
            "access_key": user.account.access_key,
            "secret_key": user.account.secret_key,
        }
    conf["s3 main"]["api_name"] = "default"
    conf["s3 tenant"]["tenant"] = USERS["s3 tenant"].tenant
    with path.open("w") as file:
        conf.write(file)
