"""Racks as network namespaces, joined by links with a rate.

    client ── rack switch ── rack link ── spine ── rack link ── rack switch ── ...
                  │ node link               └── tier
                 node ── lake link ── wide area ── lake

Each node and each rack's clients have a namespace; all switches are bridges of one more, `switches`. The lake and the
process that directs the test live in the namespace where the fabric is made. A node's kernel routes between its rack
and its lake link, so that clients can reach the lake past the node, over the same links. The store and the registry of
a tier are as near as another rack. A network without a rate carries the requests to admin ports.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path

from real.processes import run

LAKE_ADDRESS = "10.78.0.254"
TIER_ADDRESS = "10.77.0.254"
REGISTRY_ADDRESSES = ("10.77.0.1", "10.77.0.2", "10.77.0.3")
DIRECTORY_ADDRESS = "10.77.0.4"
_SWITCHES = "switches"
_FAULTS = """\
table bridge faults {
  chain forward {
    type filter hook forward priority 0; policy accept
    RULES
  }
}
"""
# The ends of links where the fabric is made.
_HERE = _LAKE, _TIER, _DIRECTION = "lake0", "tier0", "admin0"
_DISKS = "disks0"
# Frames have the size of a storage network's, and the kernel sends each on its own: it would lose a packet of
# 64 KiB, which hardware would cut, as a whole.
_MTU = 9000
# Rates are a fraction of a real network's, windows of TCP are not: two frames of this size begin a connection as ten
# ordinary ones would, and queues take those of many connections.
_FIRST_WINDOW = ("initcwnd", "2")
_QUEUE_BYTES_MAX = 2 << 20
_QUEUE_S_MAX = 1
# Every kernel lets a namespace choose Reno, so that a result does not depend on the machine's default.
_RENO = ("sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=reno")
_AS_ON_THE_WIRE = ("mtu", str(_MTU), "gso_max_segs", "1")


@dataclass(frozen=True)
class Rates:
    """Mbit/s of each link, both ways; None for the speed of this machine."""

    client: int | None = None
    node: int | None = None
    rack: int | None = None
    lake: int | None = None


@dataclass(frozen=True)
class _End:
    """One end of a link; the namespace is empty where the fabric is made."""

    namespace: str
    device: str


class Fabric:
    """`racks` racks, numbered from one. A fabric that is not removed ends with the namespaces of `isolated.sh`."""

    def __init__(self, racks: int, rates: Rates) -> None:
        self.racks = range(1, racks + 1)
        self._links: dict[str, tuple[_End, _End]] = {}
        prepare()
        _namespace(_SWITCHES)
        for switch in ("spine", "wide-area", "admin", *(f"rack-{rack}" for rack in self.racks)):
            _ip(_SWITCHES, "link", "add", switch, "type", "bridge")
            _ip(_SWITCHES, "link", "set", switch, "mtu", str(_MTU), "up")
        self._cable("lake", _End("", _LAKE), "wide-area", f"{LAKE_ADDRESS}/24")
        self._cable("tier", _End("", _TIER), "spine", f"{TIER_ADDRESS}/16")
        for address in (*REGISTRY_ADDRESSES, DIRECTORY_ADDRESS):
            _ip("", "address", "add", f"{address}/32", "dev", _TIER)
        self._cable("direction", _End("", _DIRECTION), "admin", "10.79.0.254/24")
        for rack in self.racks:
            self._build_rack(rack)
            self.shape(f"client-{rack}", rates.client)
            self.shape(f"node-{rack}", rates.node)
            self.shape(f"uplink-{rack}", rates.rack)
            self.shape(f"lake-{rack}", rates.lake)

    def _build_rack(self, rack: int) -> None:
        node, client = f"node-{rack}", f"client-{rack}"
        _namespace(node)
        _namespace(client)
        uplink = _End(_SWITCHES, f"uplink-{rack}"), _End(_SWITCHES, f"downlink-{rack}")
        _veth(*uplink)
        self._plug(uplink[0], f"rack-{rack}")
        self._plug(uplink[1], "spine")
        self._links[f"uplink-{rack}"] = uplink
        self._cable(node, _End(node, "rack0"), f"rack-{rack}", f"{node_address(rack)}/16")
        self._cable(client, _End(client, "rack0"), f"rack-{rack}", f"10.77.{rack}.2/16")
        self._cable(f"lake-{rack}", _End(node, "lake0"), "wide-area", f"10.78.0.{rack}/24")
        self._cable(f"admin-{rack}", _End(node, "admin0"), "admin", f"{admin_address(rack)}/24")
        run([*within(node), "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
        _ip(client, "route", "add", "10.78.0.0/24", "via", node_address(rack), *_FIRST_WINDOW)
        _ip("", "route", "add", f"10.77.{rack}.2/32", "via", f"10.78.0.{rack}", *_FIRST_WINDOW)

    def shape(self, link: str, mbit: int | None) -> None:
        """Gives a link (`client-1`, `node-1`, `uplink-1`, `lake-1`) another rate, both ways."""
        for end in self._links[link]:
            tc = ["tc", *(("-n", end.namespace) if end.namespace else ()), "qdisc"]
            if mbit is None:
                continue
            run([*tc, "replace", "dev", end.device, "root", "tbf", *_bucket(mbit)])

    def cut_off(self, link: str) -> None:
        """Drops everything on this link from now on; no sender hears of it."""
        self._fault(f'iifname "{link}" drop; oifname "{link}" drop')

    def part(self, link: str, addresses: Sequence[str]) -> None:
        """Drops everything to or from these addresses on this link from now on; no sender hears of it."""
        them = "{ " + ", ".join(addresses) + " }"
        self._fault(f'iifname "{link}" ip daddr {them} drop; oifname "{link}" ip saddr {them} drop')

    def lose(self, link: str, percent: int) -> None:
        """Drops this share of the packets on the link at random from now on, each way."""
        chance = f"numgen random mod 100 < {percent} drop"
        self._fault(f'iifname "{link}" {chance}; oifname "{link}" {chance}')

    def heal(self) -> None:
        """Takes all faults away."""
        run([*within(_SWITCHES), "nft", "flush", "ruleset"])

    def remove(self) -> None:
        """Takes it down, so that another can be built."""
        for device in _HERE:
            _ip("", "link", "delete", device)
        for name in (_SWITCHES, *(f"{kind}-{rack}" for kind in ("node", "client") for rack in self.racks)):
            run(["ip", "netns", "delete", name])

    def lake_bytes(self) -> int:
        """Returns the bytes that nodes have received from the lake links so far, with headers."""
        return sum(_counted(f"node-{rack}", "lake0", "rx") for rack in self.racks)

    def lake_bytes_sent(self) -> int:
        """Returns the bytes that nodes and clients have sent into the lake links so far, with headers."""
        return sum(_counted(f"node-{rack}", "lake0", "tx") for rack in self.racks)

    def node_bytes(self, rack: int) -> int:
        """Returns the bytes that a node has sent into its rack so far, with headers."""
        return _counted(f"node-{rack}", "rack0", "tx")

    def _fault(self, rules: str) -> None:
        table = _FAULTS.replace("RULES", rules.replace("; ", "\n"))
        subprocess.run([*within(_SWITCHES), "nft", "-f", "-"], input=table, text=True, check=True, capture_output=True)

    def _cable(self, name: str, end: _End, switch: str, address: str) -> None:
        """Links an end with an address to a port of the switch. The link and the port have this name."""
        port = _End(_SWITCHES, name)
        _veth(end, port)
        self._plug(port, switch)
        _ip(end.namespace, "address", "add", address, "dev", end.device)
        _ip(end.namespace, "link", "set", end.device, "up")
        interface = ip_interface(address)
        route = (str(interface.network), "dev", end.device, "src", str(interface.ip))
        _ip(end.namespace, "route", "change", *route, *_FIRST_WINDOW)
        self._links[name] = (end, port)

    def _plug(self, port: _End, switch: str) -> None:
        _ip(port.namespace, "link", "set", port.device, "master", switch, "up")


class DiskLinks:
    """Disks of a store, each with a namespace and two links: one to the users of the store, one to the other disks.

    Users of the store run in the namespace where this is made, at `ADDRESS`.
    """

    ADDRESS, PUBLIC, BETWEEN = "10.81.0.254", "10.81.0.0/24", "10.82.0.0/24"

    def __init__(self, disks: int, public_mbit: int, between_mbit: int) -> None:
        self._disks = range(disks)
        prepare()
        _namespace(_SWITCHES)
        for switch in ("public", "between"):
            _ip(_SWITCHES, "link", "add", switch, "type", "bridge")
            _ip(_SWITCHES, "link", "set", switch, "mtu", str(_MTU), "up")
        self._cable(_End("", _DISKS), "public", f"{self.ADDRESS}/24", None)
        for disk in self._disks:
            _namespace(f"disk-{disk}")
            for switch, network, mbit in (("public", "10.81.0", public_mbit), ("between", "10.82.0", between_mbit)):
                self._cable(_End(f"disk-{disk}", f"{switch}0"), switch, f"{network}.{disk + 1}/24", mbit)

    def within(self, disk: int) -> tuple[str, ...]:
        """Returns the prefix of a command that runs it at a disk."""
        return within(f"disk-{disk}")

    def between_bytes(self) -> int:
        """Returns the bytes that all disks have sent each other so far, with headers."""
        return sum(_counted(f"disk-{disk}", "between0", "tx") for disk in self._disks)

    def remove(self) -> None:
        """Takes them down."""
        _ip("", "link", "delete", _DISKS)
        for name in (_SWITCHES, *(f"disk-{disk}" for disk in self._disks)):
            run(["ip", "netns", "delete", name])

    def _cable(self, end: _End, switch: str, address: str, mbit: int | None) -> None:
        port = _End(_SWITCHES, f"{switch}-{end.namespace or 'user'}")
        _veth(end, port)
        _ip(port.namespace, "link", "set", port.device, "master", switch, "up")
        _ip(end.namespace, "address", "add", address, "dev", end.device)
        _ip(end.namespace, "link", "set", end.device, "up")
        for side in (end, port):
            tc = ["tc", *(("-n", side.namespace) if side.namespace else ()), "qdisc"]
            if mbit is not None:
                run([*tc, "replace", "dev", side.device, "root", "tbf", *_bucket(mbit)])


def node_address(rack: int) -> str:
    """Returns the address at which clients and other nodes find a rack's node."""
    return f"10.77.{rack}.1"


def admin_address(rack: int) -> str:
    """Returns the address of the admin port of a rack's node."""
    return f"10.79.0.{rack}"


def within(namespace: str) -> tuple[str, ...]:
    """Returns the prefix of a command that runs it in this namespace; its process id stays the same."""
    return ("ip", "netns", "exec", namespace)


def prepare() -> None:
    """Mounts a folder for the names of namespaces, which are files, so that no other process sees them."""
    folder = Path("/run/netns")
    if not folder.is_mount():
        run(["mount", "-t", "tmpfs", "none", "/run"])
        folder.mkdir()
        run(["mount", "-t", "tmpfs", "none", folder])
        _ip("", "link", "set", "lo", "up")
        run(_RENO)


def _namespace(name: str) -> None:
    run(["ip", "netns", "add", name])
    _ip(name, "link", "set", "lo", "up")
    run([*within(name), *_RENO])


def _veth(one: _End, other: _End) -> None:
    ends = ["type", "veth", "peer", "name", other.device, *_AS_ON_THE_WIRE]
    _ip(one.namespace, "link", "add", one.device, *_AS_ON_THE_WIRE, *ends, "netns", other.namespace)


def _bucket(mbit: int) -> list[str]:
    """Returns the options of a queue: at most as long as on other links, and drained within `_QUEUE_S_MAX`."""
    limit = min(_QUEUE_BYTES_MAX, mbit * 1_000_000 // 8 * _QUEUE_S_MAX)
    return f"rate {mbit}mbit burst 64kb limit {limit}".split()


def _counted(namespace: str, device: str, way: str) -> int:
    shown = json.loads(run(["ip", "-n", namespace, "-s", "-j", "link", "show", device]))
    counted: int = shown[0]["stats64"][way]["bytes"]
    return counted


def _ip(namespace: str, *arguments: str) -> None:
    run(["ip", *(("-n", namespace) if namespace else ()), *arguments])
