"""One table of verbs and its faces: what one face has, the others have under the same name."""

import re
from pathlib import Path

import pytest

from perdure.cli.verbs import VERBS as COMMANDS
from perdure.server.openapi import document
from perdure.server.problems import TABLE
from perdure.server.refusals import REFUSALS, status_of
from perdure.server.routes import ROUTES
from perdure.verbs.table import VERBS

BY_NAME = {route.name: route for route in ROUTES}
AS_A_FILE = {"export"}  # the history of an instance, for tests: by /verbs/export alone
IN_GROUPS = {"trace": "cells trace"}
SOURCE = Path(__file__).parents[2] / "src" / "perdure"


def test_every_verb_has_one_row_and_its_faces():
    assert len(BY_NAME) == len(ROUTES)
    assert set(VERBS) - AS_A_FILE <= set(BY_NAME)
    assert {IN_GROUPS.get(name, name) for name in VERBS} <= set(COMMANDS)
    for name, verb in VERBS.items():
        if name not in AS_A_FILE:
            assert BY_NAME[name].read is not verb.changes, name
    operations = {each["operationId"] for item in document()["paths"].values() for each in item.values()}
    assert operations == {name.replace(" ", "_") for name in BY_NAME}


@pytest.mark.parametrize("verb", ["cancel", "retry", "settle", "rewind", "fork", "wake", "bulk start"])
def test_a_verb_takes_and_answers_the_same_at_each_face(verb):
    assert (BY_NAME[verb].params, BY_NAME[verb].answer) == (VERBS[verb].params, VERBS[verb].answer)


def test_refusals_are_codes_that_there_are_with_the_status_of_the_rule():
    in_source = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', "".join(f.read_text() for f in SOURCE.rglob("*.py"))))
    for name, codes in REFUSALS.items():
        assert name in BY_NAME
        assert set(codes) <= in_source, name
    statuses = {code: status for _, code, status in TABLE if status not in (413, 503)}
    assert {code: status_of(code) for code in statuses if code != "not-answered"} == {
        code: status for code, status in statuses.items() if code != "not-answered"
    }


def test_the_page_of_the_api_is_made_from_the_table():
    from perdure.server.reference import page

    assert (SOURCE.parents[1] / "docs" / "server" / "api.md").read_text() == page()
