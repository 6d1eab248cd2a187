"""How much one statement takes."""

from __future__ import annotations

from leasework.loops.service import BatchSize
from leasework.pg.connection.fast.copying import batched


def test_a_batch_is_halved_down_to_one_and_grows_again_to_what_is_allowed():
    batch = BatchSize(100)
    seen = []
    for _ in range(8):
        batch.unanswered(batch.now)
        seen.append(batch.now)
    assert seen == [50, 25, 12, 6, 3, 1, 1, 1]
    for _ in range(8):
        batch.answered(batch.now, 0.1)
    assert batch.now == 100


def test_only_quick_and_big_batches_let_it_grow():
    batch = BatchSize(100)
    batch.unanswered(100)
    batch.answered(50, 5.0)
    assert batch.now == 50, "it was slow"
    batch.answered(10, 0.1)
    assert batch.now == 50, "it was small"
    batch.answered(40, 0.1)
    assert batch.now == 100


def test_what_was_smaller_than_allowed_and_timed_out_is_halved_from_its_own_size():
    batch = BatchSize(1000)
    batch.unanswered(10)
    assert batch.now == 5


def test_lines_of_a_copy_are_bounded_in_number_and_in_size():
    assert list(batched(["a"] * 5, 2, 100)) == [["a", "a"], ["a", "a"], ["a"]]
    assert list(batched(["aaa", "bb", "c"], 9, 4)) == [["aaa", "bb"], ["c"]]
    assert list(batched(["a" * 9, "b"], 9, 4)) == [["a" * 9], ["b"]]
    assert list(batched([], 9, 4)) == []
