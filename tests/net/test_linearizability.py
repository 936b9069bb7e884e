"""The checker refuses a history that no order explains, and accepts every other one."""

from __future__ import annotations

import math
import random
import unittest
from dataclasses import replace

from .history import ABSENT, IF_ABSENT, History, Operation, if_is


def _operation(kind: str, value: str, began: float, ended: float, **more: object) -> Operation:
    return Operation("name", kind, value, began, ended, 1, **more)  # type: ignore[arg-type]


def _put(value: str, began: float, ended: float, **more: object) -> Operation:
    return _operation("PUT", value, began, ended, **more)


def _lost_answer(value: str, began: float, until: float = math.inf, kind: str = "PUT") -> Operation:
    return _operation(kind, value, began, until, answered=False)


def _get(value: str, began: float, ended: float) -> Operation:
    return _operation("GET", value, began, ended)


class Mixed(unittest.TestCase):
    """Answers that have the ETag of one object and the size of another."""

    def test_only_those_of_the_lake_are_dropped(self) -> None:
        """A HEAD that the lake has answered is dropped if both parts were written, and not together."""
        writes = [_put("aa 1", 0, 1), _put("bb 2", 2, 3)]
        for kind, value, note, is_dropped in (
            ("HEAD", "bb 1", "MISS", True),
            ("HEAD", "aa 2", "REVALIDATED", True),
            ("HEAD", "bb 1", "HIT", False),
            ("GET", "bb 1", "MISS", False),
            ("HEAD", "aa 1", "MISS", False),
            ("HEAD", "cc 1", "MISS", False),
            ("HEAD", "aa 3", "MISS", False),
            ("HEAD", ABSENT, "MISS", False),
        ):
            history = History([*writes, _operation(kind, value, 2, 3, note=note)])
            self.assertEqual(is_dropped, history.drop_mixed() == 1, (kind, value, note))


class Histories(unittest.TestCase):
    """Each test is a history of one name."""

    def fits(self, *operations: Operation) -> None:
        """Some order explains them."""
        self.assertEqual([], History(list(operations)).unexplained())

    def is_refused(self, *operations: Operation) -> None:
        """No order explains them."""
        self.assertEqual(1, len(History(list(operations)).unexplained()))

    def test_a_read_finds_the_last_write(self) -> None:
        """The write after which no other ended."""
        self.fits(_put("a", 0, 1), _put("b", 2, 3), _get("b", 4, 5))
        self.is_refused(_put("a", 0, 1), _put("b", 2, 3), _get("a", 4, 5))

    def test_an_acknowledged_write_that_is_lost(self) -> None:
        """The name has nothing, or an older value."""
        self.is_refused(_put("a", 0, 1), _get(ABSENT, 2, 3))
        self.is_refused(_put("a", 0, 1), _put("b", 2, 3), _operation("HEAD", ABSENT, 4, 5))

    def test_a_deletion_that_is_undone(self) -> None:
        """The value comes back."""
        gone = _operation("DELETE", ABSENT, 2, 3)
        self.fits(_put("a", 0, 1), gone, _get(ABSENT, 4, 5))
        self.is_refused(_put("a", 0, 1), gone, _get(ABSENT, 4, 5), _operation("LIST", "a", 6, 7))

    def test_a_read_that_is_older_than_one_before(self) -> None:
        """Even while a write is under way."""
        during = _put("b", 2, 9)
        self.fits(_put("a", 0, 1), during, _get("a", 3, 4), _get("b", 5, 6))
        self.is_refused(_put("a", 0, 1), during, _get("b", 3, 4), _get("a", 5, 6))

    def test_a_value_that_no_client_wrote(self) -> None:
        """Wrong bytes."""
        self.is_refused(_put("a", 0, 1), _get("7 bytes of nothing", 2, 3))

    def test_a_write_without_an_answer_may_happen_late_or_never(self) -> None:
        """But not twice."""
        lost = _lost_answer("a", 0)
        self.fits(lost, _get(ABSENT, 1, 2), _get("a", 3, 4))
        self.fits(lost, _get(ABSENT, 1, 2), _get(ABSENT, 3, 4))
        self.is_refused(lost, _get("a", 1, 2), _get(ABSENT, 3, 4))

    def test_a_write_that_can_only_have_happened_until_a_moment(self) -> None:
        """Because its node is dead."""
        lost = _lost_answer("a", 0, until=2)
        self.fits(lost, _get("a", 3, 4), _get("a", 5, 6))
        self.fits(lost, _get(ABSENT, 3, 4), _get(ABSENT, 5, 6))
        self.is_refused(lost, _get(ABSENT, 3, 4), _get("a", 5, 6))

    def test_a_removal_without_an_answer(self) -> None:
        """Late or never, and only once."""
        lost = _lost_answer(ABSENT, 2, kind="DELETE")
        self.fits(_put("a", 0, 1), lost, _get("a", 3, 4), _get(ABSENT, 5, 6))
        self.is_refused(_put("a", 0, 1), lost, _get(ABSENT, 3, 4), _get("a", 5, 6))

    def test_a_write_if_there_is_nothing(self) -> None:
        """Only one of two, and one of them."""
        first, second = _put("a", 0, 3, condition=IF_ABSENT), _put("b", 1, 4, condition=IF_ABSENT)
        self.fits(first, replace(second, refused=True), _get("a", 5, 6))
        self.is_refused(first, second)
        self.is_refused(replace(first, refused=True), replace(second, refused=True))

    def test_a_write_over_a_value(self) -> None:
        """It must be the value, and then the write must happen."""
        base, over = _put("a", 0, 1), _put("b", 2, 3, condition=if_is("a"))
        self.fits(base, over, _get("b", 4, 5))
        self.is_refused(base, replace(over, refused=True))
        self.is_refused(base, _put("c", 1.2, 1.5), over)
        self.fits(base, _put("c", 1.2, 2.5), replace(over, refused=True), _get("c", 4, 5))

    def test_a_conditional_write_without_an_answer(self) -> None:
        """It cannot happen over another value."""
        lost = replace(_lost_answer("b", 2), condition=if_is("a"))
        self.fits(_put("a", 0, 1), lost, _get("b", 3, 4))
        self.is_refused(_put("c", 0, 1), lost, _get("b", 3, 4))

    def test_a_history_of_a_register_fits_and_fits_no_longer_when_a_read_is_changed(self) -> None:
        """By chance."""
        for seed in range(40):
            operations = _played(random.Random(seed))
            self.fits(*operations)
            read = next(each for each in reversed(operations) if each.kind == "GET")
            changed = [replace(each, value="never written") if each is read else each for each in operations]
            self.is_refused(*changed)


def _played(chance: random.Random) -> list[Operation]:
    """Eight clients at a register that does each operation at one moment, and loses some answers."""
    happens = sorted((chance.uniform(0, 100), number) for number in range(60))
    value, operations = ABSENT, []
    for at, number in happens:
        began, ended = at - chance.uniform(0, 4), at + chance.uniform(0, 4)
        kind = chance.choice(("PUT", "PUT", "DELETE", "GET", "GET", "IF"))
        if kind == "GET":
            operations.append(_get(value, began, ended))
            continue
        condition = chance.choice((IF_ABSENT, if_is(value))) if kind == "IF" else ""
        written = ABSENT if kind == "DELETE" else f"v{number}"
        operation = _operation("DELETE" if kind == "DELETE" else "PUT", written, began, ended, condition=condition)
        if condition == IF_ABSENT and value != ABSENT:
            operation = replace(operation, refused=True)
        else:
            value = written
        if chance.random() < 0.1:
            operation = replace(operation, answered=False, refused=False, ended_s=math.inf)
        operations.append(operation)
    operations.append(_get(value, 200, 201))
    return operations


if __name__ == "__main__":
    unittest.main()
