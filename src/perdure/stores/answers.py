"""Answers of stores: callbacks from those that know at once, and futures for those who want to wait."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from perdure.errors import PerdureError

T = TypeVar("T")


def at_once(done: Callable[[T | Exception], None], question: Callable[..., T], *args: Any) -> None:
    """Answer with what is found, or with the error."""
    try:
        found: T | Exception = question(*args)
    except PerdureError as error:
        found = error
    done(found)  # not within `try`: what the caller does with it is no error of the store


async def asked(question: Callable[..., None], *args: Any) -> Any:
    """Put a question to a store, and wait for the answer; an error is raised."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def heard(answer: Any) -> None:
        if future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    question(*args, heard)
    return await future


def now(question: Callable[..., None], *args: Any) -> Any:
    """Put a question to a store that answers at once; an error is raised."""
    answers: list[Any] = []
    question(*args, answers.append)
    assert answers, "this store answers later"
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]
