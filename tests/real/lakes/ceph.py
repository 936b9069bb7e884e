"""Ceph RGW from Debian packages: one monitor, one manager, one OSD on a sparse file, one gateway."""

from __future__ import annotations

import base64
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from ..processes import Process, answers, free_port, run
from .base import ACCESS_KEY, SECRET_KEY, Account, Lake, LakeUnavailable, User

PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "monmaptool", "ceph-authtool")
PACKAGES = ("ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "ceph-common")

# 32 bytes in base64, as the gateway wants them.
KMS_KEY = base64.b64encode(b"a key that protects nothing here").decode()

CONFIGURATION = """\
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon_v2},v1:127.0.0.1:{mon_v1}]
mon_initial_members = a
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
run_dir = {folder}/run
admin_socket = {folder}/run/$name.asok
log_file = {folder}/log/$name.log
mon_cluster_log_file = {folder}/log/cluster.log
crash_dir = {folder}/crash
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
mon_max_pg_per_osd = 1000
mon_warn_on_pool_no_redundancy = false
mon_allow_pool_size_one = true
mon_data_avail_warn = 2
mon_data_avail_crit = 1
auth_allow_insecure_global_id_reclaim = false
[mon]
mon_data = {folder}/mon
[mgr]
mgr_data = {folder}/mgr
mgr_initial_modules =
mgr_pool = false
[osd]
osd_data = {folder}/osd.$id
osd_objectstore = bluestore
bluestore_block_create = true
bluestore_block_size = 21474836480
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
osd_memory_target = 939524096
osd_op_num_shards = 2
[client.rgw.a]
rgw_data = {folder}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{rgw}
rgw_thread_pool_size = 64
# Without it the gateway waits 300 s for a monitor that speaks its mode.
ms_mon_client_mode = crc
rgw_enable_usage_log = false
rgw_dns_name = localhost
# Encryption on loopback, with keys that protect nothing.
rgw_crypt_require_ssl = false
rgw_crypt_s3_kms_backend = testing
rgw_crypt_s3_kms_encryption_keys = testkey-1={kms_key}
"""


def start(folder: Path, users: Sequence[User] = ()) -> Lake:
    """Builds a cluster from nothing in about half a minute, with `users` beside the account of the proof."""
    require_programs()
    for part in ("mon", "mgr", "run", "log", "rgw", "osd.0"):
        (folder / part).mkdir(parents=True)
    rgw_port = free_port()
    conf = folder / "ceph.conf"
    fsid = str(uuid.uuid4())
    conf.write_text(
        CONFIGURATION.format(
            fsid=fsid, folder=folder, mon_v2=free_port(), mon_v1=free_port(), rgw=rgw_port, kms_key=KMS_KEY
        )
    )
    account = Account(ACCESS_KEY, SECRET_KEY)
    lake = Lake("ceph", version(), f"http://127.0.0.1:{rgw_port}", account, knows_checksums=False)
    try:
        build(lake, folder, conf, fsid, rgw_port)
        for user in (User(lake.account, "lake", "lake", "lake@example.com"), *users):
            create_user(conf, user)
    except BaseException:
        lake.stop()
        raise
    return lake


def build(lake: Lake, folder: Path, conf: Path, fsid: str, rgw_port: int) -> None:
    """Starts the daemons one after another, each in front of those it must outlive in `lake.processes`."""
    conf_text = conf.read_text()
    mon_host = conf_text.partition("mon_host = ")[2].partition("\n")[0]
    monmap, keyring = folder / "monmap", folder / "mon.keyring"
    run(["monmaptool", "--create", "--addv", "a", mon_host, "--fsid", fsid, monmap])
    run(["ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"])
    run(["ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring, "-c", conf])

    def daemon(name: str, *command: str) -> Process:
        process = Process([*command, "-f", "-c", str(conf)], log=folder / "log" / f"{name}.out")
        # radosgw first, the monitor last: a gateway whose monitor has vanished does not end.
        lake.processes.insert(0, process)
        return process

    daemon("mon", "ceph-mon", "-i", "a")
    run(["ceph", "-c", conf, "--connect-timeout", "30", "mon", "enable-msgr2"])
    daemon("mgr", "ceph-mgr", "-i", "x")
    osd_uuid = str(uuid.uuid4())
    run(["ceph", "-c", conf, "osd", "new", osd_uuid, "0"])
    run(["ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_uuid, "-c", conf])
    osd = daemon("osd", "ceph-osd", "-i", "0")
    osd.wait_until(lambda: osds_up(conf) == 1, 60)
    rgw = daemon("rgw", "radosgw", "-n", "client.rgw.a")
    rgw.wait_until(lambda: answers(rgw_port), 120)


def osds_up(conf: Path) -> int:
    """How many OSDs the monitor sees."""
    return int(json.loads(run(["ceph", "-c", conf, "osd", "stat", "-f", "json"]))["num_up_osds"])


def create_user(conf: Path, user: User) -> None:
    """An account in the gateway's own tables."""
    run(
        [
            *("radosgw-admin", "-c", conf, "user", "create", "--uid", user.user_id),
            *("--display-name", user.display_name, "--email", user.email),
            *("--access-key", user.account.access_key, "--secret-key", user.account.secret_key),
            *(("--tenant", user.tenant) if user.tenant else ()),
            *(("--caps", user.capabilities) if user.capabilities else ()),
        ]
    )


def version() -> str:
    """`16.2.15` and the like."""
    return run(["radosgw", "--version"]).split()[2]


def require_programs() -> None:
    """Installs the packages where that is possible; otherwise raises with the reason."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if not missing:
        return
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise LakeUnavailable(f"{', '.join(missing)} not found, and installing packages needs apt and root")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run([apt, "update", "-q"], env=quiet)
        run([apt, "install", "-q", "-y", "--no-install-recommends", *PACKAGES], env=quiet, timeout_s=600)
    except RuntimeError as error:
        raise LakeUnavailable(f"apt-get could not install {' '.join(PACKAGES)}: {error}") from error
