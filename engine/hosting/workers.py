"""Threads of the engine: a mailbox that one thread empties between steps, and workers that do jobs in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
Job = Callable[[], None]


class Mailbox:
    """Jobs from any thread for one thread. Waiting uses no CPU."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, job: Job) -> bool:
        """Add a job; False when the mailbox is closed (the job will not run)."""
        with self._changed:
            if self._closed:
                return False
            self._jobs.append(job)
            self._changed.notify()
            return True

    def take(self) -> list[Job]:
        """All jobs that wait, in order."""
        if not self._jobs:
            return []
        with self._changed:
            jobs = list(self._jobs)
            self._jobs.clear()
            return jobs

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until there is a job or the mailbox closes; False when ``timeout`` seconds passed without."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._jobs) or self._closed, timeout)

    def close(self) -> None:
        """No more jobs; whoever waits wakes up."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed


class Worker:
    """A daemon thread that does jobs one after the other; it starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._mailbox = Mailbox()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def put(self, job: Job) -> bool:
        """Add a job, which must not raise; False when the worker is closed."""
        with self._starting:
            if self._thread is None and not self._mailbox.closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return self._mailbox.put(job)

    def close(self, timeout: float) -> bool:
        """Take no more jobs, finish those that wait, end the thread; False if it needs longer than ``timeout``."""
        self._mailbox.close()
        with self._starting:  # a thread that is being started cannot be joined yet
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self) -> None:
        while True:
            self._mailbox.wait()
            jobs = self._mailbox.take()
            for job in jobs:
                job()
            if not jobs and self._mailbox.closed:
                return


def fulfil(future: Future[T], action: Callable[[], T]) -> None:
    """Run ``action`` for a future: its result, or its error, whatever it is."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = action()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def chained(first: Future[S], then: Callable[[S], Future[T]]) -> Future[T]:
    """A future for what ``then`` starts with the result of ``first``; an error of either is its error."""
    chain: Future[T] = Future()
    chain.set_running_or_notify_cancel()

    def pass_on(second: Future[T]) -> None:
        error = second.exception()
        if error is not None:
            chain.set_exception(error)
        else:
            chain.set_result(second.result())

    def go_on(done: Future[S]) -> None:
        error = done.exception()
        if error is not None:
            chain.set_exception(error)
        else:
            then(done.result()).add_done_callback(pass_on)

    first.add_done_callback(go_on)
    return chain
