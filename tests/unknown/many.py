"""Many SDKs as the guest, with its lasting key and with a temporary one."""

from __future__ import annotations

from collections.abc import Sequence

from real import aws
from sdks.clients import Client, Form
from sdks.trial import CONTENT, HOT, Trial

from .lakes import SHARED
from .scene import Scene, read, settled


def run(scene: Scene, clients: Sequence[Client]) -> None:
    """Runs all of them, each at the next node."""
    owner = scene.place.client()
    owner.put_object(Bucket=SHARED, Key=HOT, Body=CONTENT)
    settled(owner, SHARED, HOT)
    for number, node in enumerate(scene.nodes):
        read(scene.client(number), SHARED, HOT)
        node.settle()
    temporary = aws.variables(scene.place.temporary_key())
    trial = Trial(SHARED, owner, scene.nodes)
    for number, client in enumerate(clients):
        environment = scene.environment(scene.nodes[number % len(scene.nodes)].url)
        for form, keys in ((Form.KEY, {}), (Form.SESSION, temporary)):
            with scene.check(client.name, form.value):
                trial.run(client, {**environment, **keys}, f"{client.name}/{form.name.lower()}")
