"""The fault of each alert, caused at a node of its own."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable
from http import HTTPStatus
from itertools import count
from pathlib import Path

from cluster import ACCESS_KEY, SECRET_KEY, Cluster, Node, Proxy, free_port, s3, send, wait_for

KIB = 1 << 10
# A secret that two nodes share, and one that they do not.
COOPERATION = 'mode = "hierarchy"\nsecret_key = "what the nodes of this test share"\nseeds = ["127.0.0.1:{}"]'
# An address at which nobody listens.
NOBODY = "http://127.0.0.1:9"


class Faults:
    """Causes faults."""

    def __init__(self, cluster: Cluster) -> None:
        """Take the cluster whose nodes are to have faults."""
        self.cluster = cluster
        # What goes on until all alerts have fired.
        self.repeated: list[Callable[[], object]] = []
        # What is done once a Prometheus has the metrics of a node.
        self.later: list[tuple[Node, Callable[[], object]]] = []
        self.numbers = count()

    def behind_a_proxy(self, name: str, **sections: str) -> tuple[Node, Proxy]:
        """Start a node whose lake can be made to fail."""
        proxy = Proxy(self.cluster.lake)
        return self.cluster.node(name, lake=proxy.url, **sections), proxy

    def tier(self, name: str, settings: str, age: str = "1s") -> dict[str, str]:
        """Return the settings of a node that writes some objects back."""
        return {
            "write": f'age = "{age}"',
            "[write.rule]": f'prefix = "s3://demo/{name}/"\nmode = "back"',
            "[tier]": f'name = "{name}"\n{settings}',
        }

    def tier_in_a_folder(self, name: str, capacity: str = "1GiB") -> dict[str, str]:
        """Return the settings of a node with a tier of its own."""
        return self.tier(name, f'folder = "{self.cluster.folder}/tier-{name}"\ncapacity = "{capacity}"')

    def tier_in_a_bucket(self, name: str, endpoint: str, registry: str) -> dict[str, str]:
        """Return the settings of a node whose tier is a bucket."""
        s3(f"{self.cluster.lake}/tier-{name}", "--request", "PUT")
        account = f'access_key = "{ACCESS_KEY}"\nsecret_key = "{SECRET_KEY}"\nbucket = "tier-{name}"'
        return self.tier(name, f'endpoint = "{endpoint}"\n{account}\ncapacity = "1GiB"\nregistry = "{registry}"')

    def reads(self, node: Node) -> None:
        """Read objects until all alerts have fired, each for the first time as long as there are some."""
        self.repeated.append(lambda: node.get(f"sample-{next(self.numbers) % 40}"))

    def node_down(self) -> Node:
        """Kill a node."""
        node = self.cluster.node("down")
        self.later.append((node, node.process.kill))
        return node

    def node_not_ready(self) -> Node:
        """Start a node without a lake."""
        return self.cluster.node("not-ready", lake=NOBODY)

    def node_drains_on(self) -> Node:
        """Drain a node, and leave it."""
        settings = COOPERATION.format(free_port())
        node = self.cluster.node("drains", cooperation=settings)
        node.command("node", "drain")
        return node

    def lake_does_not_answer(self) -> Node:
        """Cut a node off from its lake."""
        node, proxy = self.behind_a_proxy("cut")
        proxy.cut()
        self.reads(node)
        return node

    def lake_fails(self) -> Node:
        """Have a lake answer every read by an error."""
        node, proxy = self.behind_a_proxy("fails")
        proxy.fault = lambda _, path: HTTPStatus.INTERNAL_SERVER_ERROR if "sample" in path else None
        self.reads(node)
        return node

    def lake_is_slow(self) -> Node:
        """Have a lake answer reads after seven seconds."""
        node, proxy = self.behind_a_proxy("slow")
        proxy.delay_seconds = 7
        for _ in range(6):
            self.reads(node)
        return node

    def lake_denies_the_node(self) -> Node:
        """Have a lake forbid all reads."""
        node, proxy = self.behind_a_proxy("denied")
        proxy.fault = lambda _, path: HTTPStatus.FORBIDDEN if "sample" in path else None
        for _ in range(4):
            self.reads(node)
        return node

    def lake_refuses_the_account(self) -> Node:
        """Give a node another secret than the lake has."""
        node = self.cluster.node("account", secret_key="another secret than the lake has")
        self.reads(node)
        return node

    def node_has_no_descriptors(self) -> Node:
        """Let a node open no further file."""
        node, proxy = self.behind_a_proxy("descriptors")
        proxy.closes = True
        self.repeated.append(lambda: self.allow_no_more_files(node))
        return node

    def allow_no_more_files(self, node: Node) -> None:
        """Let a node use the descriptors that it has, and a few for those who ask it."""
        used = [int(file.name) for file in Path(f"/proc/{node.process.pid}/fd").iterdir()]
        node.limit(resource.RLIMIT_NOFILE, max(used) + 2)
        node.read_at_once([f"sample-{number}" for number in range(8)])

    def clients_are_slowed_down(self) -> Node:
        """Have more readers than a node takes, at a slow lake."""
        node, proxy = self.behind_a_proxy("crowded", limits="requests = 8")
        proxy.delay_seconds = 3
        for _ in range(24):
            self.reads(node)
        return node

    def disk_paused(self) -> Node:
        """Let no file of a node grow."""
        node = self.cluster.node("disk")
        node.limit(resource.RLIMIT_FSIZE, 64 * KIB)
        self.reads(node)
        return node

    def disk_changes_bytes(self) -> Node:
        """Change bytes of cached blocks."""
        node = self.cluster.node("bits")
        keys = [f"sample-{number}" for number in range(8)]
        node.read_at_once(keys)
        # What the kernel still has in memory is no longer read from the disk.
        node.stop()
        blocks = [file for file in (node.folder / "cache").rglob("*-*") if file.stat().st_size > KIB]
        for file in blocks:
            with file.open("r+b") as block:
                block.seek(KIB)
                block.write(b"other bytes")
        node.start()
        self.later.append((node, lambda: node.read_at_once(keys)))
        return node

    def configuration_not_in_force(self) -> Node:
        """Have a node read a configuration that is none."""
        node = self.cluster.node("configuration")
        with node.configuration.open("a") as file:
            file.write("[unknown]\n")
        node.process.send_signal(signal.SIGHUP)
        return node

    def nodes_differ(self) -> Node:
        """Configure two nodes of a cluster in different ways."""
        first = self.cluster.node("one", cooperation=COOPERATION.format(free_port()))
        self.cluster.node("other", cooperation=COOPERATION.format(first.peer_port), store='block_size = "1MiB"')
        return first

    def node_alone(self) -> Node:
        """Start a node whose seed does not answer."""
        return self.cluster.node("alone", cooperation=COOPERATION.format(free_port()))

    def directory_silent(self) -> Node:
        """Start a node without its directory."""
        cooperation = COOPERATION.format(free_port()).replace("hierarchy", "directory")
        directory = f'url = "redis://127.0.0.1:{free_port()}"'
        return self.cluster.node("directory", cooperation=cooperation, directory=directory)

    def etcd(self, name: str) -> tuple[subprocess.Popen, str]:
        """Start an etcd of one member. Returns its process and its URL."""
        url, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        command = [
            "etcd",
            "--name",
            "one",
            "--data-dir",
            str(self.cluster.folder / f"etcd-{name}"),
            "--log-level",
            "error",
        ]
        command += ["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer]
        command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"]
        process = self.cluster.start(command, f"etcd-{name}.log")
        wait_for("etcd", lambda: b"true" in send(f"{url}/health"))
        return process, url

    def tier_unreachable(self) -> Node:
        """End the registry of a tier."""
        process, url = self.etcd("unreachable")
        node = self.cluster.node("unreachable", **self.tier_in_a_bucket("unreachable", self.cluster.lake, url))
        process.kill()
        return node

    def tier_store_unusable(self) -> Node:
        """Cut a node off from the store of its tier."""
        store = Proxy(self.cluster.lake)
        registry = str(self.cluster.folder / "unusable-registry")
        node = self.cluster.node("unusable", **self.tier_in_a_bucket("unusable", store.url, registry))
        store.cut()
        return node

    def refuse_writes(self, proxy: Proxy, below: str, status: HTTPStatus) -> None:
        """Have a lake answer every write below a prefix, and no question about it, by an error."""

        def fault(method: str, path: str) -> int | None:
            return status if method == "PUT" and below in path and "-shoal-" not in path else None

        proxy.fault = fault

    def written_back(self, name: str, status: HTTPStatus, *, capacity: str = "1GiB") -> Node:
        """Write objects back that the lake does not take."""
        node, proxy = self.behind_a_proxy(name, **self.tier_in_a_folder(name, capacity))
        self.refuse_writes(proxy, f"/demo/{name}/", status)
        for number in range(3):
            node.put(f"{name}/object-{number}", self.cluster.sample)
        return node

    def tier_full(self) -> Node:
        """Write more back than there is room for."""
        return self.written_back("full", HTTPStatus.INTERNAL_SERVER_ERROR, capacity="2MiB")

    def flushes_fail(self) -> Node:
        """Have the lake fail each flush."""
        return self.written_back("flushes", HTTPStatus.INTERNAL_SERVER_ERROR)

    def dirty_too_long(self) -> Node:
        """Have the lake fail for longer than an object may be dirty."""
        return self.written_back("old", HTTPStatus.INTERNAL_SERVER_ERROR)

    def dirty_objects_stuck(self) -> Node:
        """Have the lake refuse each flush."""
        return self.written_back("stuck", HTTPStatus.FORBIDDEN)

    def registry_fills_up(self) -> Node:
        """Give a registry a quota that it has nearly used."""
        _, url = self.etcd("registry")
        tier = self.tier_in_a_bucket("registry", self.cluster.lake, url)
        tier["[tier]"] += '\nregistry_quota = "20KiB"'
        node = self.cluster.node("registry", **tier)
        node.put("registry/object", self.cluster.sample)
        return node

    def packs_damaged(self) -> Node:
        """Change the bytes of a pack at the lake."""
        sections = self.tier_in_a_folder("packs")
        sections["[write.rule]"] += f'\npack = true\npack_as = "{ACCESS_KEY}"\npack_idle = "1s"'
        node = self.cluster.node("packs", **sections)
        small = self.cluster.folder / "small"
        small.write_bytes(os.urandom(64 * KIB))
        for number in range(4):
            node.put(f"packs/object-{number}", small)
        node.command("flush")
        packs = [name for name in self.cluster.names("packs/") if name.endswith(".zip")]
        for name in packs:
            s3(f"{self.cluster.lake}/demo/{name}", "--upload-file", str(self.cluster.sample))

        def read_from_the_lake() -> None:
            node.command("evict", "s3://demo/packs/", "--wait")
            node.read_at_once([f"packs/object-{number}" for number in range(4)])

        self.repeated.append(read_from_the_lake)
        return node

    def deadline_at_risk(self) -> Node:
        """Order more than can be done in time."""
        node = self.cluster.node("late")
        node.command("prefetch", "s3://demo/sample", "--rate", "100KiB", "--deadline", "5s")
        return node


# What causes each alert.
CAUSES = {
    "ShoalNodeDown": Faults.node_down,
    "ShoalNodeNotReady": Faults.node_not_ready,
    "ShoalNodeDrainsOn": Faults.node_drains_on,
    "ShoalLakeDoesNotAnswer": Faults.lake_does_not_answer,
    "ShoalLakeFails": Faults.lake_fails,
    "ShoalLakeIsSlow": Faults.lake_is_slow,
    "ShoalLakeDeniesTheNode": Faults.lake_denies_the_node,
    "ShoalLakeRefusesTheAccount": Faults.lake_refuses_the_account,
    "ShoalNodeHasNoDescriptors": Faults.node_has_no_descriptors,
    "ShoalClientsAreSlowedDown": Faults.clients_are_slowed_down,
    "ShoalDiskPaused": Faults.disk_paused,
    "ShoalDiskChangesBytes": Faults.disk_changes_bytes,
    "ShoalConfigurationNotInForce": Faults.configuration_not_in_force,
    "ShoalNodesDiffer": Faults.nodes_differ,
    "ShoalNodeAlone": Faults.node_alone,
    "ShoalDirectorySilent": Faults.directory_silent,
    "ShoalTierUnreachable": Faults.tier_unreachable,
    "ShoalTierStoreUnusable": Faults.tier_store_unusable,
    "ShoalTierFull": Faults.tier_full,
    "ShoalRegistryFillsUp": Faults.registry_fills_up,
    "ShoalFlushesFail": Faults.flushes_fail,
    "ShoalDirtyTooLong": Faults.dirty_too_long,
    "ShoalDirtyObjectsStuck": Faults.dirty_objects_stuck,
    "ShoalPacksDamaged": Faults.packs_damaged,
    "ShoalDeadlineAtRisk": Faults.deadline_at_risk,
}
# Alerts of the whole cluster, which name no node.
OF_ALL_NODES = {"ShoalDeadlineAtRisk"}
