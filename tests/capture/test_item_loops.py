"""Loops over items that need nothing of one another."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from boundby.capture.torch.evidence.item_loops import items_around

PICTURES = [torch.zeros(3) for _ in range(5)]


def seen(item: Any) -> int:
    """What a call at the caller's line would see."""
    return items_around(sys._getframe(1))


def wrapped(item: Any) -> int:
    return items_around(sys._getframe(0))


def comprehension(items: Any) -> list[int]:
    return [seen(one) for one in items]


def through_a_function(items: Any) -> list[int]:
    return [wrapped(one[None]) for one in items]


def statement(items: Any) -> list[int]:
    found = []
    for one in items:
        made = one + 1
        found.append(seen(made))
    return found


def by_number(items: Any) -> list[int]:
    found = []
    for at in range(len(items)):
        made = items[at]
        found.append(seen(made))
    return found


def of_a_request(request: dict[str, Any]) -> list[int]:
    return [seen(one) for one in request["pictures"]]


def recurrent(items: Any) -> list[int]:
    found, state = [], torch.zeros(3)
    for one in items:
        found.append(seen(state))
        state = state + one
    return found


def until_the_end(items: Any) -> list[int]:
    found: list[int] = []
    while len(found) < len(items):
        found.append(seen(items))
    return found


def as_they_come(requests: Any) -> list[int]:
    found = []
    for one in requests:
        text = one["text"]
        found.append(seen(text))
    return found


def test_items_that_need_nothing_of_one_another_are_counted() -> None:
    for loop in (comprehension, through_a_function, statement, by_number):
        assert loop(PICTURES) == [5] * 5, loop
        assert loop(torch.zeros(4, 3)) == [4] * 4, loop
        assert loop(np.zeros((6, 3))) == [6] * 6, loop
    assert of_a_request({"pictures": PICTURES}) == [5] * 5
    # Texts, whose results are gathered.
    assert comprehension(["a", "b", "c", "d"]) == [4] * 4


def test_other_loops_are_not_counted() -> None:
    assert recurrent(PICTURES) == [0] * 5
    # Words of a text, of several texts.
    assert [until_the_end([one]) for one in PICTURES] == [[0]] * 5
    # Requests as they come.
    assert as_they_come([{"text": "a"}] * 4) == [0] * 4
    assert seen(PICTURES) == 0
    # An ensemble.
    assert comprehension([torch.nn.Linear(1, 1) for _ in range(4)]) == [0] * 4
