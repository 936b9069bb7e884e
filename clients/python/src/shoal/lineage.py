"""Events of OpenLineage for programs that have no other package for them: what a run of a job reads and writes.

    from shoal import lineage

    begun = lineage.start("nightly/train", namespace="ml", inputs=["s3://bucket/corpus/"])
    client.hint(begun)
    ...
    client.hint(lineage.end(begun))

`Client.reading` does the same around a block. An event is a dict: members that a node does not know may be added.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, Literal, Union

from shoal._answer import When, moment, text_of

# What an end is: as it was to be, with an error, or stopped.
EndKind = Literal["COMPLETE", "FAIL", "ABORT"]
# URIs, each of an object or of all objects below a prefix; as a mapping with the bytes that are read of each.
Inputs = Union[Iterable[str], Mapping[str, Union[int, None]]]

# What nodes take in one event.
NAMES_MAX = 1_000
STAGES_MAX = 256

_PRODUCER = "urn:shoal:client:python"
_SPECIFICATION = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"
_STATISTICS = (
    "https://openlineage.io/spec/facets/1-0-0/InputStatisticsInputDatasetFacet.json"
    "#/$defs/InputStatisticsInputDatasetFacet"
)

_WAYS = ("reads", "writes")
_MEMBERS = ("name", *_WAYS, "life", "priority", "bytes")

# How long what a run writes is of use: no longer than the run, the runs around it and the jobs announced behind it.
Life = Literal["run"]
_LIVES = ("run",)
PRIORITY_MAX = 100

# A key is needed: nodes bring no whole bucket.
_PLACE = re.compile(r"s3[an]?://([^/*]+)/+([^/*][^*]*?)/*")


def start(
    job: str,
    *,
    namespace: str,
    inputs: Inputs = (),
    outputs: Iterable[str] = (),
    stages: Iterable[Mapping[str, Any]] = (),
    deadline: When | None = None,
    life: Life | None = None,
    priority: int | None = None,
) -> dict[str, Any]:
    """Returns the event that a run of a job starts now, with a new run id.

    job        the name, the same in each run: nodes remember what the last run read
    namespace  where the job is scheduled; a `[[hints.rule]]` of the nodes says which namespaces they take
    inputs     what the run reads: s3://bucket/key of objects, or of all objects below a prefix; a mapping gives the
               bytes that are read of each, or None: more than nodes have room for is not brought. Nodes take at most
               1000 names: name prefixes where there are more
    outputs    what it writes
    stages     what its stages read and write, each {"name": ..., "reads": [...], "writes": [...]}, at most 256. A
               stage comes after those that write what it reads. With stages, only what they read is brought; without
               `inputs` or `outputs`, these are what stages read and none writes, and what they write and none reads.
               A stage may have a `life` and a `priority` of its own, and `bytes`: the size of what it reads and no
               other stage writes
    deadline   when the run has to end: a time with a zone, or a while from now
    life       "run" if its outputs are of no use after it: below a rule that writes back they stay in the tier until
               the run has ended, if there is room
    priority   0 to 100, and 0 without it: of the hints of a namespace those with the highest are brought first

    Raises ValueError for what a node would silently leave out, such as a place that is not in S3.
    """
    for what, text in (("job", job), ("namespace", namespace)):
        if not text.strip():
            raise ValueError(f"the {what} has no name")
    facet: dict[str, Any] = {}
    if deadline is not None:
        facet["deadline"] = moment(deadline)
    if priority is not None:
        facet["priority"] = _priority("the run", priority)
    described = [_stage(number, stage) for number, stage in enumerate(stages)]
    if described:
        facet["stages"] = described
    named: dict[str, Any] = {"namespace": namespace, "name": job}
    if facet:
        schema = f"{_SPECIFICATION}JobFacet"
        named["facets"] = {"shoal": {"_producer": _PRODUCER, "_schemaURL": schema, **facet}}
    sizes = inputs if isinstance(inputs, Mapping) else {}
    read = dict.fromkeys(uri for stage in described for uri in stage["reads"])
    written = dict.fromkeys(uri for stage in described for uri in stage["writes"])
    reads = [_dataset(uri) for uri in _uris("inputs", inputs) or (uri for uri in read if uri not in written)]
    writes = [_dataset(uri) for uri in _uris("outputs", outputs) or (uri for uri in written if uri not in read)]
    if life is not None:
        mark = _dataset_facet(life=_life(life))
        for dataset in writes:
            dataset["facets"] = mark
    for dataset, size in zip(reads, sizes.values()):
        if size is not None:
            statistics = {"_producer": _PRODUCER, "_schemaURL": _STATISTICS, "size": size}
            dataset["inputFacets"] = {"inputStatistics": statistics}
            dataset["facets"] = _dataset_facet(bytes=_size("the run", size))
    return {**_event("START", {"runId": run_id()}, named), "inputs": reads, "outputs": writes}


def end(begun: Mapping[str, Any], kind: EndKind = "COMPLETE", *, outputs: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the event that a run is over now.

    begun    the event that started it
    kind     COMPLETE: nodes remember what the run read and wrote, for its next run; FAIL or ABORT: they do not
    outputs  what it wrote besides what it named at the start
    """
    job = {name: begun["job"][name] for name in ("namespace", "name")}
    wrote = [*begun.get("outputs", ()), *(_dataset(uri) for uri in _uris("outputs", outputs))]
    return {**_event(kind, dict(begun["run"]), job), "inputs": [*begun.get("inputs", ())], "outputs": wrote}


def run_id() -> str:
    """Returns a new id of a run: a UUID of version 7, which begins with the time."""
    milliseconds = time.time_ns() // 1_000_000
    chance = int.from_bytes(os.urandom(10), "big")
    # 48 bits of time, the version, 12 bits of chance, the variant, 62 bits of chance.
    high = (milliseconds & (1 << 48) - 1) << 16 | 7 << 12 | chance >> 68
    low = 0b10 << 62 | chance & (1 << 62) - 1
    return str(uuid.UUID(int=high << 64 | low))


def excess(event: Mapping[str, Any]) -> str | None:
    """Returns what an event has too much of for a node to take it, or None."""
    facets = event["job"].get("facets", {})
    stages = facets.get("shoal", {}).get("stages", ())
    bounds = (
        ("inputs", event.get("inputs", ()), NAMES_MAX),
        ("outputs", event.get("outputs", ()), NAMES_MAX),
        ("stages", stages, STAGES_MAX),
    )
    found = (f"{len(all_)} {what}, and nodes take {most}" for what, all_, most in bounds if len(all_) > most)
    return next(found, None)


def place(uri: str) -> str | None:
    """Returns a place as nodes write it, s3://bucket/key, or None if nodes bring nothing that is there.

    s3a:// and s3n:// are S3, too. A whole bucket, a pattern, and what is not in S3 are none.
    """
    found = _PLACE.fullmatch(uri)
    return found and f"s3://{found[1]}/{found[2]}"


def _event(kind: str, run: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "eventType": kind,
        "eventTime": text_of(datetime.now(timezone.utc)),
        "producer": _PRODUCER,
        "schemaURL": f"{_SPECIFICATION}RunEvent",
        "run": run,
        "job": job,
    }


def _stage(number: int, stage: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(stage.keys() - set(_MEMBERS))
    if unknown:
        raise ValueError(f"stage {number} has {unknown[0]!r}: a stage has {', '.join(_MEMBERS)}")
    name = str(stage.get("name", number))
    described: dict[str, Any] = {"name": name}
    described.update({what: _uris(f"{what} of stage {name!r}", stage.get(what, ())) for what in _WAYS})
    if stage.get("life") is not None:
        described["life"] = _life(stage["life"])
    if stage.get("priority") is not None:
        described["priority"] = _priority(f"stage {name!r}", stage["priority"])
    if stage.get("bytes") is not None:
        described["bytes"] = _size(f"stage {name!r}", stage["bytes"])
    return described


def _life(life: str) -> str:
    if life not in _LIVES:
        raise ValueError(f"life {life!r:.200} is none of {', '.join(_LIVES)}")
    return life


def _priority(what: str, priority: int) -> int:
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise ValueError(f"the priority of {what} is {priority!r:.200}, no number from 0 to {PRIORITY_MAX}")
    return priority


def _size(what: str, size: int) -> int:
    if type(size) is not int or not 0 <= size < 1 << 64:
        raise ValueError(f"{what} reads {size!r:.200}, no number of bytes")
    return size


def _dataset_facet(**members: Any) -> dict[str, Any]:
    return {"shoal": {"_producer": _PRODUCER, "_schemaURL": f"{_SPECIFICATION}DatasetFacet", **members}}


def _uris(what: str, uris: Iterable[str]) -> list[str]:
    if isinstance(uris, str):
        raise TypeError(f"{what}: {uris!r:.200} is one text; give a list of URIs")
    places = []
    for uri in uris:
        found = place(uri)
        if found is None:
            raise ValueError(f"{what}: {uri!r:.200} is not s3://bucket/key, without * and with a key")
        places.append(found)
    return places


def _dataset(uri: str) -> dict[str, Any]:
    bucket, key = uri[len("s3://") :].split("/", 1)
    return {"namespace": f"s3://{bucket}", "name": key}
