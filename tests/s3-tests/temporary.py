"""Lakes and nodes that give the suite's users temporary keys for their lasting ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from real import aws
from real.lakes import LAKES, Lake, User, ceph
from sessions import ROLE, STS
from users import USERS, full_name

# The lakes that give a user a key for another one, and the action of their STS that does so.
ACTIONS = {"ceph": "GetSessionToken", "minio": "AssumeRole"}


def start(name: str, folder: Path, users: Sequence[User]) -> Lake:
    """Starts a lake at which all `users` may have temporary keys."""
    if name != "ceph":
        return LAKES[name](folder, users)
    lake = ceph.start(folder, users, gateway=ceph.STS)
    try:
        _permit(lake, users)
    except BaseException:
        lake.stop()
        raise
    return lake


def _permit(lake: Lake, users: Sequence[User]) -> None:
    """Permits what Ceph permits to nobody without a policy."""
    manager = USERS["iam"].account
    iam = aws.client("iam", lake.url, manager)
    document = aws.policy({"Effect": "Allow", "Action": ["sts:GetSessionToken"], "Resource": "*"})
    for user in users:
        iam.put_user_policy(UserName=full_name(user), PolicyName="sessions", PolicyDocument=document)


def table(port: int) -> str:
    """Returns what a node's configuration needs to give temporary keys at a port."""
    return f'\n[sts]\nroles = ["{ROLE}"]\nlisten = "127.0.0.1:{port}"\n'


def variables(lake: Lake, urls: Sequence[str]) -> dict[str, str]:
    """Returns what the plugin `sessions` reads: these URLs give keys of a lake."""
    return {STS: " ".join((ACTIONS[lake.name], *urls))}
