"""The example of the specification: it checks clean, and runs on stubs."""

from pathlib import Path

import pytest

from perdure.app.ours import installed
from perdure.playbooks.author import from_text
from perdure.playbooks.check import problems_of
from tests.playbooks.harness import TOOLS, PlaybookHarness

EXAMPLE = (Path(__file__).parent / "example.yaml").read_text()


def stubs(location, params):
    if location.startswith("scan"):
        shop = params["url"].rpartition("/")[2]
        if shop == "south" and params["params"]["after"] is None:
            return {"rows": [f"{shop}-1"], "next": "p2"}
        return {"rows": [f"{shop}-2"]}
    return {"ok": True}


def test_the_example_checks_clean():
    assert problems_of(EXAMPLE, "restock.yaml", installed()) == []


def test_the_example_waits_at_its_gate_and_a_patch_lets_it_order():
    stage = PlaybookHarness(from_text(EXAMPLE, "restock.yaml", TOOLS), stubs)
    assert stage.waits == ["gate/order#3"]
    assert stage.done[:2] == ["scan/~0/page", "scan/~1/page"]

    stage.patch(approved=True)

    assert stage.asked["order/order_task"]["params"]["params"]["l"] == ["north-2", "south-1", "south-2", "quay-2"]
    assert stage.asked["order/order_task"]["secrets"] == [[["dsn"], [{"secret": "depot-dsn"}]]]
    assert stage.asked["scan/~1/page#2"]["params"]["params"] == {"below": 5, "after": "p2"}
    assert stage.machine.state.results["close"] == ["announce", "order"]
    assert stage.ctx["ordered"] == 4
    assert stage.result["runs"] == 5


def test_the_gate_of_the_example_closes_after_a_day():
    stage = PlaybookHarness(from_text(EXAMPLE, "restock.yaml", TOOLS), stubs)

    stage.advance(86_401)

    assert stage.result["denied"] == 1
    assert stage.machine.state.results["close"] == ["announce"]


def test_a_failed_scan_of_the_example_is_apologised_for():
    def broken(location, params):
        if location.startswith("scan"):
            return {"error": {"kind": "server_error", "message": "down", "retryable": True}}
        return {"ok": True}

    stage = PlaybookHarness(from_text(EXAMPLE, "restock.yaml", TOOLS), broken)
    assert stage.waits == ["scan/~0/page/backoff#1", "scan/~1/page/backoff#1"]

    stage.advance(60)

    assert stage.asked["apologise/apologise_task/tell_task"]["params"]["json"] == {"text": "Scan failed: down"}
    assert stage.published["summary"]["verdict"] == "success"
    assert [each["handled"] for each in stage.published["summary"]["failures"]] == [True]


@pytest.mark.parametrize("input", [{"floor": 3}, {"shops": []}])
def test_the_input_goes_over_the_workload(input):
    stage = PlaybookHarness(from_text(EXAMPLE, "restock.yaml", TOOLS), stubs, input)

    stage.patch(approved=True)

    assert stage.result["runs"] == 5
