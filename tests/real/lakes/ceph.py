"""Ceph RGW from Debian packages: one monitor, one manager, OSDs on sparse files, one gateway."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..processes import Process, answers, free_port, run
from .base import ACCESS_KEY, SECRET_KEY, TIER_DISKS, Account, Classes, Lake, LakeUnavailable, TierStore, User

PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "monmaptool", "ceph-authtool")
PACKAGES = ("ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "ceph-common")

# What a gateway needs to give temporary keys.
STS = "rgw_sts_key = sixteen letters!\nrgw_s3_auth_use_sts = true"

# 32 bytes in base64, as the gateway wants them.
KMS_KEY = base64.b64encode(b"a key that protects nothing here").decode()

CONFIGURATION = """\
[global]
fsid = {fsid}
mon_host = [v2:{network.address}:{mon_v2},v1:{network.address}:{mon_v1}]
mon_initial_members = a
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
public_network = {network.public}
cluster_network = {network.between}
run_dir = {folder}/run
admin_socket = {folder}/run/$name.asok
log_file = {folder}/log/$name.log
mon_cluster_log_file = {folder}/log/cluster.log
crash_dir = {folder}/crash
osd_crush_chooseleaf_type = 0
osd_pool_default_size = {copies}
# One copy is enough to go on, so the loss of all disks but one of an object stops nothing.
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
mon_max_pg_per_osd = 1000
mon_warn_on_pool_no_redundancy = false
mon_allow_pool_size_one = true
mon_data_avail_warn = 2
mon_data_avail_crit = 1
# How often the manager counts the bytes of pools.
mgr_stats_period = 1
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
# Without tcp_nodelay the body of a small answer waits some 40 ms until its head is acknowledged.
rgw_frontends = beast endpoint={network.address}:{rgw} tcp_nodelay=1
rgw_thread_pool_size = 64
# Without it the gateway waits 300 s for a monitor that speaks its mode.
ms_mon_client_mode = crc
rgw_enable_usage_log = false
rgw_dns_name = localhost
# Encryption on loopback, with keys that protect nothing.
rgw_crypt_require_ssl = false
rgw_crypt_s3_kms_backend = testing
rgw_crypt_s3_kms_encryption_keys = testkey-1={kms_key}
{gateway}
"""


# The storage class of large objects in a tier, and its pool; small ones are STANDARD, in the pool of the placement.
LARGE_CLASS = "EC42"
LARGE_POOL = "default.rgw.shoal.ec"
SMALL_POOL = "default.rgw.buckets.data"
_PLACEMENT = ("--placement-id", "default-placement", "--storage-class", LARGE_CLASS)


@dataclass(frozen=True)
class Network:
    """The addresses of the daemons: all on loopback, unless each OSD has links of its own."""

    address: str = "127.0.0.1"
    """The network of clients, and that of the OSDs among each other."""
    public: str = "127.0.0.0/8"
    between: str = "127.0.0.0/8"
    """The prefix of the command of each OSD, by its number."""
    within: Callable[[int], Sequence[str]] = lambda _: ()


@dataclass
class Cluster:
    """The daemons of one cluster in `folder`, and their common configuration."""

    folder: Path
    copies: int = 1
    """A further line of the configuration of the gateway."""
    gateway: str = ""
    network: Network = Network()
    rgw_port: int = field(default_factory=free_port)
    """The monitor, the manager and the gateway, by the order in which they have to be stopped."""
    daemons: list[Process] = field(default_factory=list)
    osds: dict[int, Process] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        """Returns the path of the file that all programs read."""
        return self.folder / "ceph.conf"

    def ask(self, *command: str) -> str:
        """Runs `ceph` with these arguments and returns its answer."""
        return run(["ceph", "-c", self.conf, "--connect-timeout", "30", *command])

    def begin(self, osds: int) -> None:
        """Starts the daemons one after another, the gateway last."""
        for part in ("mon", "mgr", "run", "log", "rgw"):
            (self.folder / part).mkdir(parents=True)
        fsid, monitors = str(uuid.uuid4()), (free_port(), free_port())
        self.conf.write_text(
            CONFIGURATION.format(
                fsid=fsid,
                folder=self.folder,
                mon_v2=monitors[0],
                mon_v1=monitors[1],
                rgw=self.rgw_port,
                kms_key=KMS_KEY,
                copies=self.copies,
                gateway=self.gateway,
                network=self.network,
            )
        )
        address = self.network.address
        host = f"[v2:{address}:{monitors[0]},v1:{address}:{monitors[1]}]"
        monmap, keyring = self.folder / "monmap", self.folder / "mon.keyring"
        run(["monmaptool", "--create", "--addv", "a", host, "--fsid", fsid, monmap])
        run(["ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"])
        run(["ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring, "-c", self.conf])
        # The gateway first, the monitor last: a gateway whose monitor has vanished does not end.
        monitor = self._daemon("mon", "ceph-mon", "-i", "a")
        self.daemons.insert(0, monitor)
        monitor.wait_until(self._monitor_answers, 120)
        self.daemons.insert(0, self._daemon("mgr", "ceph-mgr", "-i", "x"))
        for number in range(osds):
            self._make_osd(number)
        for number in range(osds):
            self.start_osd(number)
        self.osds[0].wait_until(lambda: self.osds_up() == osds, 120)
        self.start_gateway()

    def start_gateway(self) -> None:
        """Starts the gateway, and waits until it takes connections."""
        gateway = self._daemon("rgw", "radosgw", "-n", "client.rgw.a")
        self.daemons.insert(0, gateway)
        gateway.wait_until(lambda: answers(self.rgw_port, self.network.address), 120)

    def restart_gateway(self) -> None:
        """Restarts the gateway, which reads placements and storage classes only when it starts."""
        self.daemons.pop(0).stop()
        self.start_gateway()

    def start_osd(self, number: int) -> None:
        """Starts one OSD on its file."""
        command = (*self.network.within(number), "ceph-osd", "-i", str(number))
        self.osds[number] = self._daemon(f"osd.{number}", *command)

    def kill_osd(self, number: int) -> None:
        """Kills one OSD; its file stays."""
        osd = self.osds[number]
        os.kill(osd.pid, signal.SIGKILL)
        osd.stop()

    def osds_up(self) -> int:
        """Returns the number of OSDs that the monitor sees."""
        return int(json.loads(self.ask("osd", "stat", "-f", "json"))["num_up_osds"])

    def inactive_groups(self) -> int:
        """Returns the number of placement groups that serve no request now."""
        states = json.loads(self.ask("pg", "stat", "-f", "json"))["pg_summary"]["num_pg_by_state"]
        return sum(state["num"] for state in states if "active" not in state["name"].split("+"))

    def stop(self) -> None:
        """Stops all daemons."""
        gateway, rest = self.daemons[:-2], self.daemons[-2:]
        for process in (*gateway, *self.osds.values(), *rest):
            process.stop()

    def _monitor_answers(self) -> bool:
        try:
            self.ask("mon", "enable-msgr2")
        except RuntimeError:
            return False
        return True

    def _make_osd(self, number: int) -> None:
        # It may be there already, as a disk of its own.
        (self.folder / f"osd.{number}").mkdir(exist_ok=True)
        identity = str(uuid.uuid4())
        self.ask("osd", "new", identity, str(number))
        run(["ceph-osd", "-i", str(number), "--mkfs", "--osd-uuid", identity, "-c", self.conf])

    def _daemon(self, name: str, *command: str) -> Process:
        return Process([*command, "-f", "-c", str(self.conf)], log=self.folder / "log" / f"{name}.out")


def start(folder: Path, users: Sequence[User] = (), gateway: str = "", capabilities: str = "") -> Lake:
    """Builds a cluster of one OSD in about half a minute, with `users` beside the account of the proof.

    `gateway` are further lines of its configuration, `capabilities` are those of the account.
    """
    require_programs()
    return _running(Cluster(folder, gateway=gateway), 1, users, capabilities)


def _running(cluster: Cluster, osds: int, users: Sequence[User], capabilities: str = "") -> Lake:
    url, account = f"http://{cluster.network.address}:{cluster.rgw_port}", Account(ACCESS_KEY, SECRET_KEY)
    lake = Lake("ceph", version(), url, account, knows_checksums=False, processes=[cluster])
    try:
        cluster.begin(osds)
        for user in (User(lake.account, "lake", "lake", "lake@example.com", capabilities=capabilities), *users):
            create_user(cluster.conf, user)
    except BaseException:
        lake.stop()
        raise
    return lake


class CephTier(TierStore):
    """Six OSDs: small objects in three copies, large ones erasure coded in four data and two parity shards."""

    classes = Classes(large=LARGE_CLASS)
    small_ratio = 3.0
    counts_each_s = 4.0

    def __init__(self, folder: Path, network: Network | None = None) -> None:
        require_programs()
        # Without this, a write waits forever if Ceph cannot place its shards.
        gateway = "rados_osd_op_timeout = 5"
        self._cluster = Cluster(folder, copies=3, gateway=gateway, network=network or Network())
        self.lake = _running(self._cluster, TIER_DISKS, ())
        try:
            self._add_class()
        except BaseException:
            self.lake.stop()
            raise

    def lose(self, disk: int) -> None:
        """See `TierStore`."""
        self._cluster.kill_osd(disk)

    def give_back(self, disk: int) -> None:
        """See `TierStore`."""
        self._cluster.start_osd(disk)

    def is_whole(self) -> bool:
        """See `TierStore`."""
        return self._cluster.osds_up() == TIER_DISKS and self._cluster.inactive_groups() == 0

    def disk_bytes(self) -> tuple[int, int]:
        """See `TierStore`; Ceph counts them by pool."""
        pools = json.loads(self._cluster.ask("df", "detail", "-f", "json"))["pools"]
        used = {pool["name"]: int(pool["stats"]["bytes_used"]) for pool in pools}
        return used[LARGE_POOL], used.get(SMALL_POOL, 0)

    def _add_class(self) -> None:
        ask = self._cluster.ask
        profile = ("k=4", "m=2", "crush-failure-domain=osd")
        ask("osd", "erasure-code-profile", "set", "shoal-ec", *profile)
        ask("osd", "pool", "create", LARGE_POOL, "16", "16", "erasure", "shoal-ec")
        # With Ceph's default of five it stops as soon as two are gone.
        ask("osd", "pool", "set", LARGE_POOL, "min_size", "4")
        ask("osd", "pool", "application", "enable", LARGE_POOL, "rgw")
        admin = ("radosgw-admin", "-c", self._cluster.conf)
        run([*admin, "zonegroup", "placement", "add", "--rgw-zonegroup", "default", *_PLACEMENT])
        run([*admin, "zone", "placement", "add", "--rgw-zone", "default", *_PLACEMENT, "--data-pool", LARGE_POOL])
        self._cluster.restart_gateway()


def create_user(conf: Path, user: User) -> None:
    """Makes an account in the gateway's own tables."""
    run(
        [
            *("radosgw-admin", "-c", conf, "user", "create", "--uid", user.user_id),
            *("--display-name", user.display_name, "--email", user.email),
            *("--access-key", user.account.access_key, "--secret-key", user.account.secret_key),
            *(("--tenant", user.tenant) if user.tenant else ()),
            *(("--caps", user.capabilities) if user.capabilities else ()),
            *(("--admin",) if user.is_admin else ()),
        ]
    )


def version() -> str:
    """Returns Ceph's version, such as `16.2.15`."""
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
        # Another script may hold the lock.
        wait = ["-o", "DPkg::Lock::Timeout=300"]
        run([apt, "install", "-q", "-y", "--no-install-recommends", *wait, *PACKAGES], env=quiet, timeout_s=900)
    except RuntimeError as error:
        raise LakeUnavailable(f"apt-get could not install {' '.join(PACKAGES)}: {error}") from error
