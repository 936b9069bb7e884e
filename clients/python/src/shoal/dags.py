"""Reads DAGs of other systems, and makes the event with which a run of one starts, with its stages.

    from shoal import dags

    with client.running(dags.from_wfcommons(document, "s3://bucket/montage/", namespace="science")):
        run(document)

Nodes bring what a stage reads and no stage of the run writes, that of the first stages before that of later ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Union

from shoal import lineage
from shoal._answer import When

# Where the files of a DAG are in S3: a prefix that stands before each name, or a mapping or a function of the names.
# A file without a place is not in S3.
Places = Union[str, Mapping[str, str], Callable[[str], Union[str, None]]]

# The facet says which stage is first only by what that one writes and another reads. Stages that are connected and
# share no object share a name in a bucket that cannot exist: nodes bring nothing that a stage of the run writes.
_ORDER = "s3://order.invalid/"

# What begins a pattern of Hadoop.
_PATTERN = re.compile(r"[*?\[{]")
_COMMA = re.compile(r",(?![^{]*\})")

_PIG_CLUSTER = re.compile(r"subgraph cluster_(\d+)(?:_\d+)? \{")
_PIG_JOB = re.compile(r'label="Map.*, Global Sort: (?:true|false)".*')
_PIG_FILE = re.compile(r'\d+ \[label="(?:[^"]*: )?(Load|Store)\((.*)\)", style="filled", fillcolor="gray"\];')
_PIG_PATH = re.compile(r"(.*?):[A-Za-z_$][\w.$]*(?:\(.*\))?")
_PIG_EDGE = re.compile(r"s(\d+)_out -> s(\d+)_in \[lhead=cluster_\d+\]")


@dataclass
class _Step:
    """A task of a workflow, or a job of a query: what it reads and writes in S3, and the steps before it."""

    reads: dict[str, None] = field(default_factory=dict)
    writes: dict[str, None] = field(default_factory=dict)
    after: dict[str, None] = field(default_factory=dict)


def from_wfcommons(
    document: Mapping[str, Any],
    places: Places,
    *,
    namespace: str,
    job: str | None = None,
    deadline: When | None = None,
) -> dict[str, Any]:
    """Returns the START of a workflow in the format of WfCommons: WfFormat 1.4, 1.5, or 1.6.

    document   the workflow, as json.loads returns it
    places     where its files are: a prefix such as s3://bucket/folder/, or a mapping or a function of their ids; a
               file without a place, or not in S3, is left out
    namespace  where the job is scheduled, see `lineage.start`
    job        the name of the job; without it, that of the workflow
    deadline   when the run has to end

    Each task is a stage. It comes after its parents, and after the tasks that write what it reads. Nodes take at most
    256 stages: with more tasks, those of one level of the DAG are a stage together. Nodes take at most 1000 inputs:
    files of large workflows need common places, such as the folder of each.

    Raises ValueError for what is no such workflow, or has tasks that wait for each other.
    """
    place_of = _placing(places)
    try:
        steps, sizes = _workflow(document["workflow"], place_of)
        name = job or str(document["name"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the document is no workflow in WfFormat 1.4 or later: {error!r}") from error
    return _start(steps, sizes, name, namespace, deadline)


def from_pig_explain(text: str, *, job: str, namespace: str, deadline: When | None = None) -> dict[str, Any]:
    """Returns the START of a script of Apache Pig, from the plan that Pig makes of it for MapReduce.

    text       what `explain -dot -script FILE` prints, or the file of the map reduce plan that it writes with `-out`;
               without `-brief`, which leaves files out
    job        the name of the job, the same in each run
    namespace  where it is scheduled, see `lineage.start`
    deadline   when the run has to end

    Each job of MapReduce is a stage. It reads what it loads from S3: of a pattern, all objects of the folder before
    it. Raises ValueError if there is no map reduce plan, as in the plans for Tez and Spark.
    """
    jobs: dict[str, _Step] = {}
    clusters: list[str] = []
    edges: list[tuple[str, str]] = []
    for line in map(str.strip, text.splitlines()):
        cluster = _PIG_CLUSTER.fullmatch(line)
        if cluster:
            clusters.append(cluster[1])
        elif line == "};" and clusters:
            clusters.pop()
        elif len(clusters) == 1 and _PIG_JOB.fullmatch(line):
            jobs[clusters[0]] = _Step()
        elif clusters and clusters[0] in jobs:
            # The label has line breaks in place of colons.
            file = _PIG_FILE.fullmatch(line.replace(",\\n", ":"))
            path = file and _PIG_PATH.fullmatch(file[2])
            if file and path:
                step = jobs[clusters[0]]
                (step.reads if file[1] == "Load" else step.writes).update(dict.fromkeys(_loaded(path[1])))
        else:
            edge = _PIG_EDGE.fullmatch(line)
            edges += [(edge[1], edge[2])] if edge else []
    if not jobs:
        raise ValueError("the text has no map reduce plan in dot: give what `explain -dot -script FILE` of Pig prints")
    for before, after in edges:
        if before in jobs and after in jobs:
            jobs[after].after[before] = None
    levels = _levels(jobs)
    names = {number: f"job-{place}" for place, number in enumerate(sorted(jobs, key=lambda job: levels[job]), start=1)}
    steps = {
        name: _Step(jobs[number].reads, jobs[number].writes, {names[before]: None for before in jobs[number].after})
        for number, name in names.items()
    }
    return _start(steps, {}, job, namespace, deadline)


def _workflow(
    workflow: Mapping[str, Any], place_of: Callable[[str], str | None]
) -> tuple[dict[str, _Step], dict[str, int]]:
    """Returns the tasks of a workflow, and the bytes of the files at each place."""
    # The tasks of 1.4 are in the workflow itself. They need no id, and name their parents by the id or by the name.
    specification = workflow.get("specification", workflow)
    tasks = specification["tasks"]
    known = {file["id"]: file["sizeInBytes"] for file in specification.get("files", ())}
    ids = {task["name"]: task.get("id", task["name"]) for task in tasks}
    ids.update({task["id"]: task["id"] for task in tasks if "id" in task})
    steps = {task.get("id", task["name"]): _Step() for task in tasks}
    files = [(task.get("id", task["name"]), *file) for task in tasks for file in _files(task, known)]
    writers: dict[str, list[str]] = {}
    for own, name, _, is_read in files:
        if not is_read:
            writers.setdefault(name, []).append(own)
    places = {name: place_of(name) for _, name, _, _ in files}
    # What is to be brought. Files that the run writes may be in the same folder.
    needed = {places[name] for _, name, _, is_read in files if is_read and name not in writers}
    sizes: dict[str, dict[str, int]] = {}
    for own, name, size, is_read in files:
        place = places[name]
        if is_read:
            steps[own].after.update({writer: None for writer in writers.get(name, ()) if writer != own})
        if place is None or (name in writers and place in needed):
            continue
        (steps[own].reads if is_read else steps[own].writes)[place] = None
        if size is not None and name not in writers:
            sizes.setdefault(place, {})[name] = size
    for task in tasks:
        own = task.get("id", task["name"])
        for parent in task.get("parents", ()):
            steps[own].after[ids[parent]] = None
        for child in task.get("children", ()):
            steps[ids[child]].after[own] = None
    return steps, {place: sum(of_files.values()) for place, of_files in sizes.items()}


def _files(task: Mapping[str, Any], known: Mapping[str, int]) -> Iterator[tuple[str, int | None, bool]]:
    """Yields each file of a task with its size, and whether it is read."""
    for name in task.get("inputFiles", ()):
        yield name, known.get(name), True
    for name in task.get("outputFiles", ()):
        yield name, known.get(name), False
    for file in task.get("files", ()):
        yield file.get("path", "") + file["name"], file.get("sizeInBytes"), file["link"] == "input"


def _placing(places: Places) -> Callable[[str], str | None]:
    """Returns what finds the place of a file."""
    if isinstance(places, str):
        prefix = places
        if lineage.place(f"{prefix}x") is None:
            raise ValueError(f"{prefix!r:.200} is no prefix in S3: write s3://bucket/folder/")
        return lambda name: lineage.place(prefix + name.lstrip("/"))
    look = places.get if isinstance(places, Mapping) else places

    def place_of(name: str) -> str | None:
        uri = look(name)
        return None if uri is None else lineage.place(uri)

    return place_of


def _loaded(path: str) -> Iterator[str]:
    """Yields the places in S3 of what Pig loads or stores: several paths, and patterns of Hadoop."""
    for one in _COMMA.split(path):
        pattern = _PATTERN.search(one)
        found = lineage.place(one[: pattern.start()].rpartition("/")[0] if pattern else one)
        if found is not None:
            yield found


def _start(
    steps: dict[str, _Step], sizes: Mapping[str, int], job: str, namespace: str, deadline: When | None
) -> dict[str, Any]:
    levels = _levels(steps)
    if len(steps) > lineage.STAGES_MAX:
        steps = _joined(steps, levels)
    read = {place for step in steps.values() for place in step.reads}
    written = {place for step in steps.values() for place in step.writes}
    reads = {name: dict(step.reads) for name, step in steps.items()}
    writes = {name: dict(step.writes) for name, step in steps.items()}
    for number, (name, step) in enumerate(steps.items()):
        mark = f"{_ORDER}{number}"
        for other, later in steps.items():
            if name in later.after and not step.writes.keys() & later.reads.keys():
                writes[name][mark] = reads[other][mark] = None
    return lineage.start(
        job,
        namespace=namespace,
        inputs={place: sizes.get(place) for step in steps.values() for place in step.reads if place not in written},
        outputs=dict.fromkeys(place for step in steps.values() for place in step.writes if place not in read),
        stages=[{"name": name, "reads": reads[name], "writes": writes[name]} for name in steps],
        deadline=deadline,
    )


def _levels(steps: Mapping[str, _Step]) -> dict[str, int]:
    """Returns for each step the length of the longest way to it."""
    levels: dict[str, int] = {}
    while len(levels) < len(steps):
        ready = [name for name, step in steps.items() if name not in levels and step.after.keys() <= levels.keys()]
        if not ready:
            raise ValueError("the steps of the DAG wait for each other")
        level = max(levels.values(), default=-1) + 1
        levels.update(dict.fromkeys(ready, level))
    return levels


def _joined(steps: Mapping[str, _Step], levels: Mapping[str, int]) -> dict[str, _Step]:
    """Returns one step for each level."""
    joined: dict[str, _Step] = {}
    for name, step in steps.items():
        level = levels[name]
        whole = joined.setdefault(f"level-{level}", _Step(after={f"level-{level - 1}": None} if level else {}))
        whole.reads.update(step.reads)
        whole.writes.update(step.writes)
    return dict(sorted(joined.items(), key=lambda item: int(item[0].rpartition("-")[2])))
