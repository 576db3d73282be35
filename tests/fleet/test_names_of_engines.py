"""What people call the process of an engine, on the page of the fleet."""

import pytest

from perdure.app.engine import program


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/venv/lib/perdure/__main__.py", "dev", "shop.py"], "perdure dev"),
        (["/venv/bin/perdure", "serve", "shop"], "perdure serve"),
        (["/srv/shop/__main__.py", "--port", "1"], "shop"),
        (["/srv/shop.py"], "shop.py"),
        ([""], "python"),
    ],
)
def test_an_engine_is_called_after_its_script_package_or_command(argv, name):
    assert program(argv) == name
