"""What clients did to names and saw of them, and which reads no order of the writes explains."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

# The value of a name without an object.
ABSENT = ""


@dataclass(frozen=True)
class Operation:
    """A PUT or a DELETE, or a GET that was answered. Times are the machine's monotonic seconds."""

    key: str
    kind: str
    """What was written, what was read."""
    value: str
    began_s: float
    """Infinite for a write without an answer: it may happen at any time after its begin, or never."""
    ended_s: float
    node: int
    """The answer's `x-shoal-write`, or what came instead of an answer."""
    note: str = ""

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing."""
        return self.kind == "GET"

    @property
    def is_acknowledged(self) -> bool:
        """Whether it is a write that is there to stay."""
        return not self.is_read and self.ended_s < math.inf


@dataclass
class History:
    """All operations, in any order."""

    operations: list[Operation]

    def to_json(self) -> str:
        """One line."""
        return json.dumps([asdict(operation) for operation in self.operations])

    @staticmethod
    def from_json(line: str) -> History:
        """What `to_json` wrote."""
        return History([Operation(**fields) for fields in json.loads(line)])

    def keys(self) -> list[str]:
        """Every name that was written to."""
        return sorted({operation.key for operation in self.operations if not operation.is_read})

    def unexplained(self) -> list[str]:
        """Reads that say that a write was lost, came back, or was another's bytes."""
        of_key: dict[str, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            of_key[operation.key].append(operation)
        return [problem for operations in of_key.values() for problem in _unexplained(operations)]


def _unexplained(operations: Sequence[Operation]) -> Iterable[str]:
    nothing = Operation(operations[0].key, "DELETE", ABSENT, -math.inf, -math.inf, 0)
    reads = sorted((each for each in operations if each.is_read), key=lambda read: read.ended_s)
    writes = [nothing, *(_seen(each, reads) for each in operations if not each.is_read)]
    explained: list[tuple[Operation, list[Operation]]] = []
    for read in reads:
        written = [write for write in writes if write.value == read.value and write.began_s < read.ended_s]
        sources = [write for write in written if not _is_overwritten(write, read, writes)]
        earlier = ((other, seen) for other, seen in explained if other.ended_s < read.began_s)
        younger = [other for other, seen in earlier if _is_older(sources, seen)]
        if not written:
            yield f"{read} gave bytes that no client wrote"
        elif not sources:
            yield f"{read} gave what was overwritten: {written}"
        elif younger:
            yield f"{read} gave an older value than {younger[-1]}"
        else:
            explained.append((read, sources))


def _seen(write: Operation, reads: Sequence[Operation]) -> Operation:
    """The same write, ended at the latest when its value was read first; every value but that of none is unique."""
    seen = (read.ended_s for read in reads if read.value == write.value != ABSENT)
    return replace(write, ended_s=min(write.ended_s, *seen, math.inf))


def _is_overwritten(source: Operation, read: Operation, writes: Sequence[Operation]) -> bool:
    """Whether another write lies wholly between a write and a read of the name."""
    return any(source.ended_s < write.began_s and write.ended_s < read.began_s for write in writes)


def _is_older(sources: Sequence[Operation], others: Sequence[Operation]) -> bool:
    """Whether all these writes had ended when the others began."""
    return all(source.ended_s < other.began_s for source in sources for other in others)
