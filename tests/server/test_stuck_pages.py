"""What the web UI shows of instances that are stuck, and how a person gets them out."""

import subprocess
import sys

import pytest

from tests.server.browser import staged
from tests.server.dying import payment


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """Two payments whose process died while they were charged."""
    url = str(tmp_path_factory.mktemp("stuck") / "shop.db")
    died = subprocess.run([sys.executable, "-m", "tests.server.dying", url], timeout=120, check=False)
    assert died.returncode == 3
    with staged(url=url, workflows=[payment]) as found:
        for n in (1, 2):
            found.runner.run(found.site.engine.handle(f"payment/p-{n}").until("stuck", 60))
        yield found


def test_unknown_outcomes_stand_on_the_dashboard_with_their_place_and_are_settled_from_there(stage):
    async def story(site, page):
        await page.goto(site.url)
        row = page.locator(".need tbody tr")
        await row.first.wait_for()
        told = await row.all_inner_texts()
        await page.click(".need >> text=Settle…")
        await page.wait_for_selector("dialog")
        places = await page.locator("#d-location option").all_inner_texts()
        others = await page.inner_text(".why-panel header .end")
        chosen = await page.input_value("#d-as"), await page.input_value("#d-value")
        await page.click("dialog button[type=submit]")
        await page.locator("dialog .problem", has_text="This is needed.").wait_for()
        await page.select_option("#d-as", "ok")
        await page.fill("#d-value", '"ch-1"')
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector(".stamp.st-waiting")
        url, key = page.url, page.url.partition("/payment/")[2].partition("?")[0]
        await page.goto(f"{site.url}/instances/payment/{key}?tab=errors&entry=2")
        await page.wait_for_selector(".errors .said")
        then = await page.inner_text(".errors")
        return told, places, others, chosen, then, url

    told, places, others, chosen, then, url = stage.tell(story)

    (row,) = told
    assert row.startswith("2") and "unknown outcome" in row and "at finish/pay/charge" in row
    assert places == ["finish/pay/charge"]
    assert others == "1 other is stuck at the same place"
    assert chosen == ("", ""), "a person says what happened"
    assert "OutcomeUnknown" in then and "same place" not in then, "how many stand there now is not told of the past"
    assert "do=" not in url
