"""Requests with the published sums of the first of IBM's object store traces, which itself cannot be had here.

| | value | from |
|---|---|---|
| writes | 97% of the requests | dissertation 6.1.2 |
| objects | less than 4 MB, "dominated by small object writes" | dissertation 6.1.2, 6.7 |
| smallest requests | less than 1 KB, somewhere in the 98 traces | dissertation 6.1.2 |
| sizes | logarithms evenly distributed from 512 B to 4 MiB: median 45 KiB, mean 455 KiB | our reading |
| arrivals | at random, at one rate | our reading |
| reads | whole objects, each of those written 5 s ago or earlier as likely as the others | our reading |
| overwrites, removals | none | our reading |

The traces are public (SNIA IOTTA; Eytan et al., "It's Time to Revisit LRU vs. FIFO", HotStorage 2020), but the papers
print neither sizes nor times of a single trace. A scale that favours no size is the reading that adds least.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

WRITES = 0.97
LEAST_BYTES, MOST_BYTES = 512, 4 << 20
# A read never waits for the write of its object, not even where writes are slow.
_READ_AFTER_S = 5.0


@dataclass(frozen=True)
class Request:
    """A PUT or a GET of a whole object, so many seconds after the first request."""

    at_s: float
    number: int
    """The length of the object, in bytes, and the moment of its write."""
    size: int
    written_s: float

    @property
    def is_write(self) -> bool:
        """Returns whether the request writes the object."""
        return self.at_s == self.written_s


def requests(rate: float, seconds: float, seed: int) -> list[Request]:
    """Returns so many requests a second in the order of their times. A seed gives the same ones each time."""
    chance = random.Random(seed)
    times = sorted(chance.uniform(0, seconds) for _ in range(round(rate * seconds)))
    could_read = [number for number, at_s in enumerate(times) if at_s > 2 * _READ_AFTER_S]
    reads = set(chance.sample(could_read, round((1 - WRITES) * len(times))))
    made: list[Request] = []
    written: list[Request] = []
    # Those written long enough ago to be read are the first ones.
    readable = 0
    for number, at_s in enumerate(times):
        if number in reads:
            while readable < len(written) and written[readable].at_s <= at_s - _READ_AFTER_S:
                readable += 1
            one = written[chance.randrange(readable)]
            made.append(Request(at_s, one.number, one.size, one.at_s))
        else:
            made.append(Request(at_s, number, _size(chance), at_s))
            written.append(made[-1])
    return made


def _size(chance: random.Random) -> int:
    return int(math.exp(chance.uniform(math.log(LEAST_BYTES), math.log(MOST_BYTES))))
