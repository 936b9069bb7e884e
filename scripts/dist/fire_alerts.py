#!/usr/bin/env python3
"""Causes the fault that each alert is for, and waits until a Prometheus fires it for that node.

The times in the rules are cut to seconds: an alert that waits for minutes does so to ignore what passes.

Usage: fire_alerts.py SHOAL RULES ALERTS FOLDER [ALERT...]
"""

import json
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parent / "faults"))
from alerts import CAUSES, OF_ALL_NODES, Faults
from cluster import Cluster, Node, free_port, wait_for

PATIENCE_SECONDS = 150


def hastened(rules: str) -> str:
    """Return rules that look at seconds, and wait for one."""
    return re.sub(r"for: \w+", "for: 1s", re.sub(r"\[(\d+m|1h)\]", "[12s]", rules))


class Prometheus:
    """Scrapes all nodes, and evaluates the rules."""

    def __init__(self, cluster: Cluster, rules: list[str]) -> None:
        """Start it without a node."""
        folder = cluster.folder / "prometheus"
        folder.mkdir()
        for number, file in enumerate(rules):
            (folder / f"{number}.yml").write_text(hastened(Path(file).read_text()))
        (folder / "nodes.json").write_text("[]")
        address = f"127.0.0.1:{free_port()}"
        (folder / "prometheus.yml").write_text(
            f"global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n"
            f'rule_files: ["{folder}/[0-9].yml"]\n'
            f"scrape_configs:\n  - job_name: shoal\n    file_sd_configs:\n      - files: ['{folder}/nodes.json']\n"
        )
        self.nodes = folder / "nodes.json"
        self.url = f"http://{address}/api/v1"
        command = ["prometheus", "--config.file", str(folder / "prometheus.yml"), "--web.listen-address", address]
        cluster.start([*command, "--storage.tsdb.path", str(folder / "data")], "prometheus.log")
        wait_for("prometheus", lambda: self.ask("alerts") is not None)

    def scrape(self, nodes: list[Node]) -> None:
        """Scrape these nodes from now on."""
        text = json.dumps([{"targets": [node.instance for node in nodes]}])
        new = self.nodes.with_suffix(".new")
        new.write_text(text)
        new.rename(self.nodes)

    def ask(self, path: str, **query: str) -> dict | None:
        """Return the data of an answer; None if there is none."""
        try:
            with urlopen(f"{self.url}/{path}?{urlencode(query)}", timeout=10) as response:
                return json.load(response)["data"]
        except OSError:
            return None

    def has_scraped(self, node: Node) -> bool:
        """Return whether a node has been scraped."""
        data = self.ask("query", query=f'shoal_build_info{{instance="{node.instance}"}}')
        return bool(data and data["result"])

    def firing(self) -> set[tuple[str, str]]:
        """Return the alerts that fire, each with its instance."""
        alerts = (self.ask("alerts") or {"alerts": []})["alerts"]
        firing = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
        return {(labels["alertname"], labels.get("instance", "")) for labels in firing}


def main() -> int:
    """Print the alerts that did not fire, and return whether there are any."""
    shoal, rules, alerts, folder, *only = sys.argv[1:]
    declared = set(re.findall(r"alert: (\w+)", Path(alerts).read_text()))
    if declared != set(CAUSES):
        print(f"error: no fault is known for, or no alert: {sorted(declared ^ set(CAUSES))}")
        return 1
    cluster = Cluster(shoal, Path(folder))
    ends = threading.Event()
    try:
        faults = Faults(cluster)
        prometheus = Prometheus(cluster, [rules, alerts])
        well = cluster.node("well")
        faults.reads(well)
        with ThreadPoolExecutor(4) as pool:
            causes = {name: cause for name, cause in CAUSES.items() if name in only or not only}
            nodes = dict(zip(causes, pool.map(lambda cause: cause(faults), causes.values()), strict=True))
        prometheus.scrape(cluster.nodes)

        def again(action: object) -> None:
            while not ends.is_set():
                action()
                ends.wait(0.5)

        repeated = [threading.Thread(target=again, args=(action,), daemon=True) for action in faults.repeated]
        for thread in repeated:
            thread.start()
        for node, action in faults.later:
            wait_for("a scrape", lambda node=node: prometheus.has_scraped(node))
            action()
        wanted = {(name, "" if name in OF_ALL_NODES else node.instance) for name, node in nodes.items()}
        fired: set[tuple[str, str]] = set()
        end = time.monotonic() + PATIENCE_SECONDS
        while wanted - fired and time.monotonic() < end:
            fired |= prometheus.firing()
            time.sleep(0.5)
        ends.set()
        for name, instance in sorted(wanted - fired):
            print(f"did not fire: {name} at {instance}")
        wrong = sorted(name for name, instance in fired if instance == well.instance)
        for name in wrong:
            print(f"fired for a node without a fault: {name}")
        print(f"{len(wanted & fired)} of {len(wanted)} alerts fired at the node with the fault")
        return 1 if wrong or wanted - fired else 0
    finally:
        ends.set()
        cluster.stop()


if __name__ == "__main__":
    sys.exit(main())
