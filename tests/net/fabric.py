"""Racks as network namespaces, joined by links with a rate.

    client ── rack switch ── rack link ── spine ── rack link ── rack switch ── ...
                  │ node link               └── tier
                 node ── lake link ── wide area ── lake

Each node and each rack's clients have a namespace; all switches are bridges of one more, `switches`. The lake, and
whoever directs all this, live where the fabric is made. A node's kernel routes between its rack and its lake link, so
that clients can reach the lake past the node, over the same links. The store and the registry of a tier are as near as
another rack. A network without a rate carries what is asked of admin ports.
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
# Frames of a storage network, and each on its own: a packet of 64 KiB that hardware would cut is lost whole.
_MTU = 9000
# Rates are a fraction of a real network's, windows of TCP are not: two frames of this size begin a connection as ten
# ordinary ones would, and queues take those of many connections.
_FIRST_WINDOW = ("initcwnd", "2")
_QUEUE_BYTES_MAX = 2 << 20
_QUEUE_S_MAX = 1
# What every kernel lets a namespace choose, so that a result does not depend on the machine's default.
_RENO = ("sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=reno")
_AS_ON_THE_WIRE = ("mtu", str(_MTU), "gso_max_segs", "1")


@dataclass(frozen=True)
class Rates:
    """Mbit/s of each link, both ways; None for as fast as this machine can."""

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
    """`racks` racks, numbered from one. One that is not removed ends with the namespaces of `isolated.sh`."""

    def __init__(self, racks: int, rates: Rates) -> None:
        self.racks = range(1, racks + 1)
        self._links: dict[str, tuple[_End, _End]] = {}
        _prepare()
        _namespace(_SWITCHES)
        for switch in ("spine", "wide-area", "admin", *(f"rack-{rack}" for rack in self.racks)):
            _ip(_SWITCHES, "link", "add", switch, "type", "bridge")
            _ip(_SWITCHES, "link", "set", switch, "mtu", str(_MTU), "up")
        self._cable("lake", _End("", _LAKE), "wide-area", f"{LAKE_ADDRESS}/24")
        self._cable("tier", _End("", _TIER), "spine", f"{TIER_ADDRESS}/16")
        for address in REGISTRY_ADDRESSES:
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
        """From now on nothing passes this link, and nobody is told."""
        self._fault(f'iifname "{link}" drop; oifname "{link}" drop')

    def part(self, link: str, addresses: Sequence[str]) -> None:
        """From now on nothing passes this link to or from these addresses, and no sender hears of it."""
        them = "{ " + ", ".join(addresses) + " }"
        self._fault(f'iifname "{link}" ip daddr {them} drop; oifname "{link}" ip saddr {them} drop')

    def lose(self, link: str, percent: int) -> None:
        """From now on chance takes this share of what passes the link, each way."""
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
        """What has come out of the lake links so far, headers included."""
        return sum(_received(f"node-{rack}", "lake0") for rack in self.racks)

    def _fault(self, rules: str) -> None:
        table = _FAULTS.replace("RULES", rules.replace("; ", "\n"))
        subprocess.run([*within(_SWITCHES), "nft", "-f", "-"], input=table, text=True, check=True, capture_output=True)

    def _cable(self, name: str, end: _End, switch: str, address: str) -> None:
        """A link of this name between an end with an address and a port of the switch that has the link's name."""
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


def node_address(rack: int) -> str:
    """Where clients and other nodes find a rack's node."""
    return f"10.77.{rack}.1"


def admin_address(rack: int) -> str:
    """Where its admin port is."""
    return f"10.79.0.{rack}"


def within(namespace: str) -> tuple[str, ...]:
    """What stands in front of a command that shall run there; its process id stays the same."""
    return ("ip", "netns", "exec", namespace)


def _prepare() -> None:
    """Names of namespaces are files: here in a folder that nobody else sees."""
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
    """A queue that is no longer than that of other links, and that takes no longer than connecting may."""
    limit = min(_QUEUE_BYTES_MAX, mbit * 1_000_000 // 8 * _QUEUE_S_MAX)
    return f"rate {mbit}mbit burst 64kb limit {limit}".split()


def _received(namespace: str, device: str) -> int:
    shown = json.loads(run(["ip", "-n", namespace, "-s", "-j", "link", "show", device]))
    received: int = shown[0]["stats64"]["rx"]["bytes"]
    return received


def _ip(namespace: str, *arguments: str) -> None:
    run(["ip", *(("-n", namespace) if namespace else ()), *arguments])
