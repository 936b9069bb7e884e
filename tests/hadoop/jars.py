"""The jars that Spark and Hadoop's tests need: those that `jars.txt` names, and those that come with PySpark."""

from __future__ import annotations

from pathlib import Path

import pyspark
from real import maven

LIST = Path(__file__).with_name("jars.txt")
SOURCES = "-test-sources.jar"


def fetched() -> list[Path]:
    """Returns the jars of the list."""
    return maven.fetched(LIST)


def of_spark() -> list[Path]:
    """Returns every jar that comes with PySpark, Hadoop's among them."""
    return sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
