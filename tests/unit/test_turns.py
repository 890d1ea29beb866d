"""A lock that is given in turn."""

from __future__ import annotations

import threading
import time

import pytest

from walrelay.destinations.turns import Turns


def wait_in_line(turns: Turns, length: int) -> None:
    deadline = time.monotonic() + 10
    while len(turns._line) < length:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_threads_get_it_in_the_order_they_asked() -> None:
    turns, order = Turns(), []

    def ask(number: int) -> None:
        with turns:
            order.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    with turns:
        assert not turns.is_wanted
        for length, thread in enumerate(threads, 1):
            thread.start()
            wait_in_line(turns, length)
        assert turns.is_wanted
    for thread in threads:
        thread.join()
    assert order == list(range(20))


def test_who_lets_go_and_asks_again_comes_after_those_who_wait() -> None:
    turns, rounds, done = Turns(), 0, threading.Event()

    def once() -> None:
        with turns:
            done.set()

    with turns:
        other = threading.Thread(target=once)
        other.start()
        wait_in_line(turns, 1)
    while not done.is_set():
        with turns:
            rounds += 1
    other.join()
    assert rounds <= 1


def test_one_at_a_time() -> None:
    turns, inside, most = Turns(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with turns:
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, inside, turns.is_wanted) == (1, 0, False)


def test_one_who_leaves_the_line_does_not_keep_it() -> None:
    turns = Turns()
    with turns:
        gone = threading.Lock()
        turns._line.append(gone)
        turns._leave(gone)  # before its turn
        assert not turns.is_wanted
    turns._taken = True
    turns._leave(threading.Lock())  # its turn had just come
    with turns:
        pass


def test_an_error_lets_go() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="x"), turns:
        raise ValueError("x")
    with turns:
        pass
