"""A site with something on each page of the web UI, and the pages by path."""

from contextlib import contextmanager

from perdure.kernel.asked import Actor
from tests.server.browser import staged
from tests.server.dialects import ALL, STARTS, Counted

EVIL = "<img src=x onerror=alert(1)><script>window.hurt=1</script>\u202e{{7*7}}"

AXE = """(rules) => axe.run({ resultTypes: ["violations"], ...rules }).then((found) => found.violations.map(
    (each) => [each.id, each.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))]))"""

GO = "(url) => { history.pushState(null, '', url); dispatchEvent(new Event('popstate')); }"
"""What a link of the page does: the page changes and is not loaded again."""

PAGES = {
    "/": ".totals",
    "/instances": ".ledger.inst tbody tr",
    "/instances?q=status:waiting": ".ledger.inst tbody tr",
    "/instances/order/o-1": ".why-list",
    "/instances/order/o-1?tab=data": ".data-grid",
    "/instances/order/o-1?tab=data&form=table": ".value .ledger",
    "/instances/order/o-1?at=charge&zoom=10-60": "aside.card .keyed",
    "/instances/order/o-1?entry=1": ".why-panel[aria-label=Then]",
    "/instances/order/o-1?journal=compact": ".tall tbody tr",
    "/instances/broken/b-1?tab=errors": ".frames .line",
    "/instances/restock/monday": "svg.drawing .g-token",
    "/instances/article/heat-pumps?at=ship": "aside.card >> text=Open the task",
    "/compare?a=order/o-1&b=order/o-2": ".ledger tbody tr",
    "/instances?q=-status:completed&cols=version,tag.note": ".chip.not",
    "/bulk": "main h1",
    "/queues": "main h1",
    "/fleet": "main h1",
    "/world?event=count-4": ".trace .row",
    "/instances/com.acme/shelf/a-1?tab=data": ".data-tree .n",
    "/tasks": ".todo",
    "/tasks/{task}": ".task-form",
    "/workflows": ".ledger",
    "/workflows/order": ".src",
    "/workflows/article": "svg.drawing",
    "/workflows/restock?of=restock/monday&shown=list": ".overlay [aria-pressed=true] >> text=monday",
    "/settings": ".facts",
}
"""Pages by path, each with a sign that it is there. `{task}` is the number of a task for managers."""


async def filled(site):
    """Instances of every kind, and a task for managers: its number."""
    manager = {"grants": [{"role": "admin", "workflows": ["*"], "values": True}], "roles": ["manager"]}
    await site.server.accesses.ask("grant", {"actor": "ann", "person": manager}, Actor("root"))
    handle = await site.engine.start("order", key="o-1", order_id=EVIL, tags={"note": EVIL[:40]}, by="checkout")
    await handle.until("waiting")
    await an_order(site, "o-2")
    await (await site.engine.start("secret_plan", key="s-1")).until("waiting")
    await (await site.engine.start("approval", key="a-1", amount=7)).until("waiting")
    await (await site.engine.start("broken", key="b-1")).until("failed")
    for workflow, key, value in STARTS:
        await (await site.engine.start_plain(workflow, value, key=key)).until("waiting")
    for n in (3, 4):
        await site.engine.send(Counted("a-1", n), id=f"count-{n}")
    task = (await site.engine.tasks.list(Actor("root", admin=True)))[0].id
    return task


@contextmanager
def furnished():
    """A stage with a furnished site: its `pages` are `PAGES` with the number of the task."""
    with staged(workflows=ALL) as found:
        task = found.runner.run(filled(found.site))
        found.pages = {path.replace("{task}", str(task)): sign for path, sign in PAGES.items()}
        yield found


async def an_order(site, key):
    handle = await site.engine.start("order", key=key)
    await handle.until("waiting")
    return handle
