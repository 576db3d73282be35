"""What all tests share: an `async def` test is run on a loop of its own, and no example is held to a time."""

import asyncio
import inspect

import pytest
from hypothesis import settings

settings.register_profile("perdure", deadline=None)
settings.load_profile("perdure")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
