"""The history of requests: the changes that clients made to names, and the values that they read."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from .linearizability import Undecided, explain

# The value of a name without an object.
ABSENT = ""
READS = ("GET", "HEAD", "LIST")
# Everything but `absent` is `is ` and a value.
IF_ABSENT = "absent"


def if_is(value: str) -> str:
    """Returns the condition that a name has this value."""
    return f"is {value}"


@dataclass(frozen=True)
class Operation:
    """One request about one name. Times are the machine's monotonic seconds."""

    key: str
    """PUT, COPY, DELETE, or how the name was read. A COPY is one for the new name."""
    kind: str
    """The value written or read: ETag and size, or `ABSENT`; words describe a value that no object of the test has."""
    value: str
    began_s: float
    """The latest moment at which the operation can take effect; infinite if it can at any time after its begin."""
    ended_s: float
    node: int
    """The answer's `x-shoal-write`, or the error in place of an answer."""
    note: str = ""
    """The value that the name must have for the write to happen; empty for any value."""
    condition: str = ""
    """Whether the answer says that the condition does not hold."""
    refused: bool = False
    """Whether an answer says that the operation happened or was refused; a read always has an answer."""
    answered: bool = True

    @property
    def is_read(self) -> bool:
        """Returns whether the answer contains the value of the name."""
        return self.kind in READS

    @property
    def is_without_effect(self) -> bool:
        """Returns whether the operation is a read, or a refused write."""
        return self.is_read or self.refused

    @property
    def is_acknowledged(self) -> bool:
        """Returns whether the operation is an acknowledged write, which must last."""
        return not self.is_read and self.answered and not self.refused

    def allows(self, value: str) -> bool:
        """Returns whether the operation can have had its answer while the name had this value."""
        if self.is_read:
            return value == self.value
        return not self.answered or self._holds(value) != self.refused

    def outcomes(self, value: str) -> Sequence[str]:
        """Returns the values that the name may have afterwards."""
        if self.is_read or self.refused or not self._holds(value):
            return (value,)
        return (self.value,) if self.answered else (self.value, value)

    def _holds(self, value: str) -> bool:
        if self.condition == IF_ABSENT:
            return value == ABSENT
        return not self.condition or self.condition == if_is(value)


@dataclass
class History:
    """All operations, in any order."""

    operations: list[Operation]
    """Requests that a node did not carry out, or did not answer, though it should have."""
    failures: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Returns one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> History:
        """Reads the output of `to_json`."""
        fields = json.loads(line)
        return History([Operation(**each) for each in fields["operations"]], fields["failures"])

    def keys(self) -> list[str]:
        """Returns every name that a client wrote to."""
        return sorted({operation.key for operation in self.operations if not operation.is_read})

    def writes(self) -> list[Operation]:
        """Returns all operations but reads."""
        return [operation for operation in self.operations if not operation.is_read]

    def drop_mixed(self) -> int:
        """Drops HEADs that the lake has answered with the ETag of one object and the size of another.

        versitygw 1.8 reads the size of a file, and then its ETag by the file's name: two of a hundred HEADs that come
        while an object is overwritten have both of different objects. Returns the number of dropped operations. An
        answer from a cache stays, whatever it has.
        """
        written: dict[str, set[str]] = defaultdict(set)
        for write in self.writes():
            written[write.key].add(write.value)

        def is_mixed(read: Operation) -> bool:
            values = written[read.key]
            is_of_lake = read.kind == "HEAD" and read.note in ("MISS", "REVALIDATED")
            if not is_of_lake or read.value in values or " " not in read.value:
                return False
            parts = {part for value in values for part in value.split()}
            return parts.issuperset(read.value.split())

        kept = [operation for operation in self.operations if not is_mixed(operation)]
        dropped = len(self.operations) - len(kept)
        self.operations = kept
        return dropped

    def unexplained(self) -> list[str]:
        """Describes each name whose operations no order explains: a write was lost, came back, or is wrong."""
        of_key: dict[str, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            of_key[operation.key].append(operation)
        problems = []
        for key, operations in of_key.items():
            try:
                stuck = explain(operations, ABSENT)
            except Undecided as why:
                problems.append(f"{key}: {why}")
                continue
            if stuck is not None:
                problems.append(_told(key, operations, stuck))
        return problems


def _told(key: str, operations: Sequence[Operation], stuck: Operation) -> str:
    """Describes the operations around the one that has no place."""
    first = min(operation.began_s for operation in operations)
    ordered = sorted(operations, key=lambda operation: operation.began_s)
    at = ordered.index(stuck)
    lines = [f"{key}: no order of its operations explains them; the earliest one without a place is marked"]
    for operation in ordered[max(0, at - 12) : at + 5]:
        ended = "..." if operation.ended_s == math.inf else f"{operation.ended_s - first:.3f}"
        asked = f" if {operation.condition}" if operation.condition else ""
        became = " refused" if operation.refused else "" if operation.answered else " (no answer)"
        lines.append(
            f"{'=>' if operation is stuck else '  '} {operation.began_s - first:.3f} to {ended} at {operation.node}: "
            f"{operation.kind} {operation.value or 'nothing'}{asked}{became} {operation.note[:80]}"
        )
    return "\n".join(lines)
