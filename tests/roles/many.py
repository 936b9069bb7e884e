"""Many SDKs with the key of a role, in each form that they can use."""

from __future__ import annotations

from collections.abc import Sequence

from botocore.client import BaseClient
from real.report import Report
from sdks.clients import Client, Form
from sdks.trial import HOT, Trial

from .pods import Pods


def run(report: Report, pods: Pods, clients: Sequence[Client], bucket: str, owner: BaseClient) -> None:
    """Runs all of them."""
    environments = {
        Form.CONTAINER: pods.container("ETL"),
        Form.STS: pods.sts("ETL"),
        Form.SESSION: pods.session("ETL"),
    }
    nodes = pods.cluster.nodes
    for number, node in enumerate(nodes):
        pods.client(number).get_object(Bucket=bucket, Key=HOT)["Body"].read()
        node.settle()
    trial = Trial(bucket, owner, nodes)
    for client in clients:
        for form, environment in environments.items():
            if form in client.forms:
                with report.check(pods.lake.name, client.name, form.value):
                    trial.run(client, environment, f"{client.name}/{form.name.lower()}")
