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
        await page.fill("#d-value", '"ch-1"')
        await page.click("dialog button[type=submit]")
        await page.wait_for_selector(".stamp.st-waiting")
        return told, places, others, page.url

    told, places, others, url = stage.tell(story)

    (row,) = told
    assert row.startswith("2") and "unknown outcome" in row and "at finish/pay/charge" in row
    assert places == ["finish/pay/charge"]
    assert others == "1 other is stuck at the same place"
    assert "do=" not in url
