"""DAGs of other systems become events with stages."""

from __future__ import annotations

import unittest
from typing import Any

from shoal import dags

# Two tasks read what is there, one reads both of their outputs, and one reads nothing that is in a file.
WORKFLOW: dict[str, Any] = {
    "name": "montage",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {
                    "name": "mProject",
                    "id": "mProject_1",
                    "parents": [],
                    "children": ["mAdd_1"],
                    "inputFiles": ["1.fits", "region.hdr"],
                    "outputFiles": ["p1.fits"],
                },
                {
                    "name": "mProject",
                    "id": "mProject_2",
                    "parents": [],
                    "children": ["mAdd_1"],
                    "inputFiles": ["2.fits", "region.hdr"],
                    "outputFiles": ["p2.fits"],
                },
                {
                    "name": "mAdd",
                    "id": "mAdd_1",
                    "parents": ["mProject_1", "mProject_2"],
                    "children": ["mView_1"],
                    "inputFiles": ["p1.fits", "p2.fits", "out/table"],
                    "outputFiles": ["mosaic.fits"],
                },
                {"name": "mView", "id": "mView_1", "parents": ["mAdd_1"], "children": [], "inputFiles": ["colours"]},
            ],
            "files": [
                {"id": "1.fits", "sizeInBytes": 100},
                {"id": "2.fits", "sizeInBytes": 200},
                {"id": "region.hdr", "sizeInBytes": 3},
                {"id": "p1.fits", "sizeInBytes": 110},
            ],
        }
    },
}


def stages(event: dict[str, Any]) -> dict[str, tuple[list[str], list[str]]]:
    """Returns what each stage of an event reads and writes."""
    listed = event["job"]["facets"]["shoal"]["stages"]
    return {stage["name"]: (stage["reads"], stage["writes"]) for stage in listed}


def places(event: dict[str, Any], what: str) -> dict[str, int | None]:
    """Returns the inputs or outputs of an event with their bytes."""
    return {
        f"{dataset['namespace']}/{dataset['name']}": dataset.get("inputFacets", {})
        .get("inputStatistics", {})
        .get("size")
        for dataset in event[what]
    }


def depths(event: dict[str, Any]) -> dict[str, int]:
    """Returns the number of stages before each stage, as nodes count it."""
    found = stages(event)
    depth = dict.fromkeys(found, 0)
    for _ in found:
        depth = {
            name: max((depth[other] + 1 for other, (_, wrote) in found.items() if {*reads} & {*wrote}), default=0)
            for name, (reads, _) in found.items()
        }
    return depth


class Workflows(unittest.TestCase):
    """WfCommons."""

    def test_each_task_is_a_stage(self) -> None:
        """With the places of its files; the event names what is brought, with its size, and what is left in the end."""
        event = dags.from_wfcommons(WORKFLOW, "s3://b/m/", namespace="science")
        self.assertEqual((event["eventType"], event["job"]["name"]), ("START", "montage"))
        found = stages(event)
        self.assertEqual(found["mProject_1"], (["s3://b/m/1.fits", "s3://b/m/region.hdr"], ["s3://b/m/p1.fits"]))
        self.assertEqual(found["mAdd_1"][0], ["s3://b/m/p1.fits", "s3://b/m/p2.fits", "s3://b/m/out/table"])
        self.assertEqual(
            places(event, "inputs"),
            {
                "s3://b/m/1.fits": 100,
                "s3://b/m/region.hdr": 3,
                "s3://b/m/2.fits": 200,
                "s3://b/m/out/table": None,
                "s3://b/m/colours": None,
            },
        )
        self.assertEqual(places(event, "outputs"), {"s3://b/m/mosaic.fits": None})

    def test_a_parent_is_before_its_child_even_without_a_file(self) -> None:
        """They share a name that no object has."""
        event = dags.from_wfcommons(WORKFLOW, "s3://b/m/", namespace="science", job="other")
        self.assertEqual(event["job"]["name"], "other")
        self.assertEqual(depths(event), {"mProject_1": 0, "mProject_2": 0, "mAdd_1": 1, "mView_1": 2})
        reads, _ = stages(event)["mView_1"]
        self.assertEqual(reads, ["s3://b/m/colours", "s3://order.invalid/2"])
        self.assertIn("s3://order.invalid/2", stages(event)["mAdd_1"][1])
        everything = {*places(event, "inputs"), *places(event, "outputs")}
        self.assertFalse(any("order.invalid" in place for place in everything))

    def test_files_are_placed_by_a_mapping_or_a_function(self) -> None:
        """Others are not in S3, and the order is kept without them."""
        event = dags.from_wfcommons(WORKFLOW, {"1.fits": "s3a://in/1", "2.fits": "/data/2"}, namespace="n")
        self.assertEqual(places(event, "inputs"), {"s3://in/1": 100})
        self.assertEqual(depths(event), {"mProject_1": 0, "mProject_2": 0, "mAdd_1": 1, "mView_1": 2})
        event = dags.from_wfcommons(WORKFLOW, lambda name: "s3://in/all/" if "fits" in name else None, namespace="n")
        # The sizes of what is read from outside add up; what the run writes there is not to be brought.
        self.assertEqual(places(event, "inputs"), {"s3://in/all": 300})
        self.assertEqual(depths(event), {"mProject_1": 0, "mProject_2": 0, "mAdd_1": 1, "mView_1": 2})
        self.assertEqual(stages(event)["mAdd_1"][0], ["s3://order.invalid/0", "s3://order.invalid/1"])

    def test_the_format_1_4_has_files_in_its_tasks(self) -> None:
        """Parents are named by their names, or by their ids."""
        project = {
            "name": "mProject_ID1",
            "type": "compute",
            "files": [
                {"link": "input", "name": "1.fits", "path": "/in/", "sizeInBytes": 7},
                {"link": "output", "name": "p1.fits", "sizeInBytes": 8},
            ],
        }
        for identity, parent in (({}, "mProject_ID1"), ({"id": "ID1"}, "ID1"), ({"id": "ID1"}, "mProject_ID1")):
            add = {"name": "mAdd_ID2", "parents": [parent], "files": []}
            document = {"name": "old", "schemaVersion": "1.4", "workflow": {"tasks": [{**project, **identity}, add]}}
            with self.subTest(identity=identity, parent=parent):
                event = dags.from_wfcommons(document, "s3://b/", namespace="n")
                self.assertEqual(places(event, "inputs"), {"s3://b/in/1.fits": 7})
                self.assertEqual(list(depths(event).values()), [0, 1])

    def test_a_workflow_of_many_tasks_has_a_stage_for_each_level(self) -> None:
        """Nodes take 256 stages."""
        tasks: list[dict[str, Any]] = [
            {"name": "t", "id": f"a{number}", "parents": [], "children": [], "inputFiles": [f"in{number}"]}
            for number in range(300)
        ]
        last = {"name": "u", "id": "z", "parents": [task["id"] for task in tasks], "children": [], "inputFiles": ["x"]}
        document = {"name": "wide", "workflow": {"specification": {"tasks": [last, *tasks]}}}
        event = dags.from_wfcommons(document, "s3://b/", namespace="n")
        self.assertEqual(depths(event), {"level-0": 0, "level-1": 1})
        self.assertEqual(len(stages(event)["level-0"][0]), 300)
        self.assertEqual(stages(event)["level-1"][0], ["s3://b/x", "s3://order.invalid/0"])

    def test_what_is_no_workflow_is_an_error(self) -> None:
        """No tasks, a task without a name, an unknown parent, a circle, a place that is none."""

        def of(*tasks: dict[str, Any]) -> dict[str, Any]:
            return {"name": "w", "workflow": {"specification": {"tasks": list(tasks)}}}

        wrong: tuple[Any, ...] = (
            {},
            {"name": "w", "workflow": []},
            of({"id": "a"}),
            of({"name": "a", "parents": ["b"]}),
        )
        for document in wrong:
            with self.subTest(document), self.assertRaisesRegex(ValueError, "no workflow in WfFormat"):
                dags.from_wfcommons(document, "s3://b/", namespace="n")
        circle = of({"name": "a", "parents": ["b"]}, {"name": "b", "parents": ["a"]})
        with self.assertRaisesRegex(ValueError, "wait for each other"):
            dags.from_wfcommons(circle, "s3://b/", namespace="n")
        with self.assertRaisesRegex(ValueError, "is no prefix in S3"):
            dags.from_wfcommons(WORKFLOW, "/data/", namespace="n")


# As org.apache.pig's DotMRPrinter and DotPOPrinter write it: a join of a table with what a first job stores.
_PIG = r"""#--------------------------------------------------
# Map Reduce Plan
#--------------------------------------------------
digraph plan {
compound=true;
node [shape=rect];
s102_in [label="", style=invis, height=0, width=0];
s102_out [label="", style=invis, height=0, width=0];
subgraph cluster_102 {
label="Map - Reduce Parallelism: 4, Global Sort: false"; style="filled"; fillcolor="#EEEEEE"labelloc=b;
s3_in [label="", style=invis, height=0, width=0];
s3_out [label="", style=invis, height=0, width=0];
subgraph cluster_3 {
label="Map"; style="filled"; fillcolor="white"labelloc=b;
201 [label="t: Load(s3a://lake/tables/{orders,returns}/2026-*,s3a://lake/more,\nPigStorage(','))", GRAY];
202 [label="Load(hdfs://h:8020/tmp/temp-1/tmp2,\norg.apache.pig.impl.io.InterStorage)", GRAY];
s203_in [label="", style=invis, height=0, width=0];
s203_out [label="", style=invis, height=0, width=0];
subgraph cluster_203 {
label="j: Local Rearrange[tuple]{int}(false)"labelloc=b;
204 [label="Project[int][0]"];
s203_in -> 204 [style=invis];
};
204 -> s203_out [style=invis];
201 -> s203_in [lhead=cluster_203]
s3_in -> 201 [style=invis];
};
s203_out -> s3_out [style=invis];
s4_in [label="", style=invis, height=0, width=0];
s4_out [label="", style=invis, height=0, width=0];
subgraph cluster_4 {
label="Reduce"; style="filled"; fillcolor="white"labelloc=b;
205 [label="j: Store(s3://lake/out,\norg.apache.pig.builtin.PigStorage)", GRAY];
s4_in -> 205 [style=invis];
};
205 -> s4_out [style=invis];
s3_out -> s4_in [lhead=cluster_4]
s102_in -> s3_in [style=invis];
};
s4_out -> s102_out [style=invis];
s101_in [label="", style=invis, height=0, width=0];
s101_out [label="", style=invis, height=0, width=0];
subgraph cluster_101 {
label="Map, Global Sort: false"; style="filled"; fillcolor="#EEEEEE"labelloc=b;
s1_in [label="", style=invis, height=0, width=0];
s1_out [label="", style=invis, height=0, width=0];
subgraph cluster_1 {
label="Map"; style="filled"; fillcolor="white"labelloc=b;
301 [label="a,\n Load(s3,\n//lake/logs/,\nPigStorage(',\n'))", GRAY];
302 [label="Store(hdfs,\n//h,\n8020/tmp/temp-1/tmp2,\norg.apache.pig.impl.io.InterStorage)", GRAY];
301 -> 302
s1_in -> 301 [style=invis];
};
302 -> s1_out [style=invis];
s101_in -> s1_in [style=invis];
};
s1_out -> s101_out [style=invis];
s101_out -> s102_in [lhead=cluster_102]
}

""".replace("GRAY", 'style="filled", fillcolor="gray"')


class Scripts(unittest.TestCase):
    """Apache Pig."""

    def test_each_job_of_mapreduce_is_a_stage(self) -> None:
        """It loads objects and folders of S3. Jobs that share a temporary file follow each other."""
        event = dags.from_pig_explain(_PIG, job="report", namespace="etl")
        mark = "s3://order.invalid/0"
        self.assertEqual(
            stages(event),
            {
                "job-1": (["s3://lake/logs"], [mark]),
                "job-2": (["s3://lake/tables", "s3://lake/more", mark], ["s3://lake/out"]),
            },
        )
        self.assertEqual(depths(event), {"job-1": 0, "job-2": 1})
        self.assertEqual([*places(event, "inputs")], ["s3://lake/logs", "s3://lake/tables", "s3://lake/more"])
        self.assertEqual([*places(event, "outputs")], ["s3://lake/out"])

    def test_other_plans_in_front_of_it_change_nothing(self) -> None:
        """The command prints the logical and the physical plan first."""
        physical = (
            "digraph plan {\nnode [shape=rect];\nsubgraph cluster_7 {\n"
            'label="c: Filter[bag]"labelloc=b;\n8 [label="Load(s3://x/y,\\nA)", GRAY];\n'
            "};\n"
            '9 [label="Load(s3://x/z,\\nA)", GRAY];\n}\n'
        ).replace("GRAY", 'style="filled", fillcolor="gray"')
        event = dags.from_pig_explain(physical + _PIG, job="report", namespace="etl")
        self.assertEqual(len(stages(event)), 2)
        self.assertNotIn("s3://x/y", places(event, "inputs"))
        with self.assertRaisesRegex(ValueError, "no map reduce plan in dot"):
            dags.from_pig_explain(physical, job="report", namespace="etl")
