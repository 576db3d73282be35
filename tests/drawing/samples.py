"""Pictures to look at: a nested process of 39 nodes, a net of 25 steps, a graph of agents.

`python -m tests.drawing.samples DIRECTORY` writes them in all formats.
"""

# ruff: noqa: E501

import sys
from pathlib import Path
from typing import get_args

from perdure.drawing import Branch, Choice, Edge, Graph, Guarded, Node, Parallel, Repeat, Row, Side, draw
from perdure.drawing.model import Direction, State


def process() -> Row:
    """A purchase: checks side by side, approval by people, an order with failure, timeout and undo."""
    lines = Repeat(
        "lines: for each start.lines",
        Row((
            Guarded(
                Node("call", "reserve", "checks/stock/lines/reserve", "python shop:reserve", "done", "3 turns"),
                (Side("undo", Row((Node("call", "free", "checks/stock/lines/reserve/undo/free", "python shop:free", "not reached"),)), joins=False),),
            ),
            Choice(
                Node("decision", "low", "checks/stock/lines/low", "result.left < 5", "done", "3 turns"),
                (
                    Branch("yes", Row((Node("continue", "restock", "checks/stock/lines/low/then/restock", "restock 2.1.0", "done", "1 turn"),))),
                    Branch("no", taken=True),
                ),
            ),
        )),
        "checks/stock/lines", "done", "3 turns",
    )  # fmt: skip
    checks = Parallel(
        Node("parallel", "checks", "checks", "3 branches", "done"),
        (
            Branch("budget", Row((
                Node("call", "budget", "checks/budget/budget", "http POST /budget", "done", "412 ms", badge="12 live"),
                Node("set", "limit", "checks/budget/limit", "state.limit", "done"),
            ))),
            Branch("stock", Row((lines,))),
            Branch("supplier", Row((
                Node("subprocess", "vet-supplier", "checks/supplier/vet-supplier", "supplier-vetting 1.4.0", "dropped"),
                Node("timer", "cool-down", "checks/supplier/cool-down", "2 days", "dropped"),
            ))),
        ),
        Node("join", "checks", "checks", "2 of 3", "done"),
    )  # fmt: skip
    approval = Choice(
        Node("decision", "ask", "ask", "state.amount >= 500", "done"),
        (
            Branch("yes", Row((
                Repeat("rounds: until tasks.approve.answer.final", Row((
                    Guarded(
                        Node("task", "approve", "ask/then/rounds/approve", "task, role manager", "done", "by ann, 2 turns"),
                        (
                            Side("timeout 2 days", Row((
                                Node("call", "remind", "ask/then/rounds/approve/on_timeout/remind", "service mail", "not reached"),
                            ))),
                            Side("cancelled", Row((Node("fail", "withdrawn", "ask/then/rounds/approve/on_cancel/withdrawn", state="not reached"),))),
                        ),
                    ),
                    Node("set", "approved", "ask/then/rounds/approved", "state.approved", "done"),
                )), "ask/then/rounds", "done", "2 turns"),
                Choice(
                    Node("decision", "refused", "ask/then/refused", "not state.approved", "done"),
                    (
                        Branch("no", taken=True),
                        Branch("yes", Row((
                            Node("call", "tell", "ask/then/refused/then/tell", "service mail", "not reached"),
                            Node("fail", "rejected", "ask/then/refused/then/rejected", state="not reached"),
                        ))),
                    ),
                ),
            ))),
            Branch("no"),
        ),
    )  # fmt: skip
    order = Guarded(
        Node("call", "order", "order", "service erp, place-order", "failed", "4 attempts"),
        (
            Side("failure", Row((Node("task", "repair", "order/on_failure/repair", "task, role buyer", "open", "2 h 22 min"),))),
            Side("timeout", Row((
                Node("call", "ask-erp", "order/on_timeout/ask-erp", "http GET /orders/{id}", "not reached"),
                Choice(
                    Node("decision", "placed", "order/on_timeout/placed", "result.ask-erp.found", "not reached"),
                    (Branch("yes"), Branch("no", Row((Node("task", "place-by-hand", "order/on_timeout/placed/place", "task, role buyer", "not reached"),)))),
                ),
            ))),
            Side("undo", Row((Node("call", "cancel-order", "order/undo/cancel-order", "service erp", "not reached"),)), joins=False),
        ),
    )  # fmt: skip
    delivery = Guarded(
        Node("receive", "delivery", "delivery", "message delivered", "not reached"),
        (Side("30 days", Row((Node("set", "late", "delivery/on_timeout/late", "state.late", "not reached"),))),),
    )
    after = Parallel(
        Node("parallel", "close", "close", state="not reached"),
        (
            Branch("books", Row((Node("call", "invoice", "close/books/invoice", "queue books", "not reached"),
                                 Node("receive", "paid", "close/books/paid", "message paid", "not reached")))),
            Branch("survey", Row((Node("timer", "wait", "close/survey/wait", "14 days", "not reached"),
                                  Node("continue", "survey", "close/survey/survey", "customer-survey", "not reached")))),
        ),
        Node("join", "close", "close", "all", "not reached"),
    )  # fmt: skip
    report = Row((
        Node("set", "summary", "summary", "state.summary", "not reached"),
        Guarded(
            Node("subprocess", "audit", "audit", "audit-trail 3.0.1", "not reached"),
            (
                Side("failure", Row((Node("task", "look-into", "audit/on_failure/look-into", "task, role auditor", "not reached"),))),
                Side("timeout", Row((Node("timer", "later", "audit/on_timeout/later", "1 hour", "not reached"),
                                     Node("call", "page", "audit/on_timeout/page", "http POST /pager", "not reached")))),
            ),
        ),
    ))  # fmt: skip
    return Row((Node("start", "start", state="done"), checks, approval, order, delivery, after, report,
                Node("end", "complete", "complete", state="not reached")))  # fmt: skip


def net() -> Graph:
    """A depot's night run: cycles, joins, gates and tokens."""
    done: State = "done"
    none: State = "not reached"
    nodes = (
        Node("step", "scan", "scan", "http GET /depot", done, "3 runs"),
        Node("step", "split", "split", "inclusive", done, "3 runs"),
        Node("step", "weigh", "weigh", "shell scales", done, "3 runs"),
        Node("step", "measure", "measure", "python depot:measure", "running", "1 run", tokens=1),
        Node("step", "photo", "photo", "http POST /camera", "failed", "2 attempts"),
        Node("step", "retry-photo", "retry-photo", "wait 30 s", "open", tokens=1),
        Node("step", "gather", "gather", "collect results", "open", "2 arrived", badge="join all", tokens=2),
        Node("step", "rate", "rate", "workbook rate", none),
        Node("step", "express", "express", "sql insert", none),
        Node("step", "standard", "standard", "sql insert", none),
        Node("step", "oversize", "oversize", "task, role foreman", none),
        Node("step", "label", "label", "shell print-label", none),
        Node("step", "load", "load", "ctx.truck is defined", "open", "12 pending", tokens=12, gate="closed"),
        Node("step", "truck-arrives", "truck-arrives", "http event", done, gate="open"),
        Node("step", "seal", "seal", "python depot:seal", none),
        Node("step", "customs", "customs", "http POST /customs", none),
        Node("step", "inspect", "inspect", "task, role officer", none),
        Node("step", "release", "release", "sql update", none, badge="join any"),
        Node("step", "dispatch", "dispatch", "http POST /dispatch", none),
        Node("step", "notify", "notify", "workbook tell", none),
        Node("step", "bill", "bill", "sql insert", none),
        Node("step", "archive", "archive", "python depot:archive", none, badge="join all"),
        Node("step", "apologise", "apologise", "workbook tell", none),
        Node("step", "next-crate", "next-crate", "ctx.crates left", none),
        Node("step", "report", "report", "final step", none),
    )
    edges = (
        Edge("scan", "split", went=True), Edge("split", "weigh", went=True), Edge("split", "measure", went=True),
        Edge("split", "photo", "ctx.camera", went=True), Edge("photo", "retry-photo", "failed", True, True),
        Edge("retry-photo", "photo", "again"), Edge("weigh", "gather", went=True), Edge("measure", "gather", went=True),
        Edge("photo", "gather"), Edge("gather", "rate"), Edge("rate", "express", "express"), Edge("rate", "standard", "else"),
        Edge("rate", "oversize", "weight > 30"), Edge("express", "label"), Edge("standard", "label"),
        Edge("oversize", "label", "accepted"), Edge("oversize", "apologise", "refused"), Edge("label", "load"),
        Edge("truck-arrives", "load", went=True), Edge("load", "seal"), Edge("load", "load", "more space"), Edge("seal", "customs", "abroad"),
        Edge("seal", "release", "home"), Edge("customs", "inspect", "spot check"), Edge("customs", "release", "cleared"),
        Edge("inspect", "release"), Edge("inspect", "seal", "opened"), Edge("release", "dispatch"), Edge("dispatch", "notify"),
        Edge("dispatch", "bill"), Edge("dispatch", "next-crate"), Edge("next-crate", "scan", "ctx.crates"),
        Edge("next-crate", "report", "else"), Edge("notify", "archive"), Edge("bill", "archive"), Edge("archive", "report"),
        Edge("apologise", "archive"), Edge("bill", "apologise", "failed", True),
    )  # fmt: skip
    return Graph(nodes, edges, ("scan", "truck-arrives"))


def agents() -> Graph:
    """A small graph of agents with outcomes."""
    nodes = (
        Node("agent", "research", "research", "model large, web", "done", "0.42 of 1.00"),
        Node("agent", "outline", "outline", "model small", "done"),
        Node("agent", "draft", "draft", "model large", "running", "12 s", tokens=1),
        Node("agent", "facts", "facts", "model small, search", "failed", "denied: trust"),
        Node("task", "approve", "approve", "task, role editor", "not reached"),
        Node("agent", "publish", "publish", "tool cms", "not reached"),
    )
    edges = (
        Edge("research", "outline", went=True), Edge("research", "facts", went=True), Edge("outline", "draft", went=True),
        Edge("draft", "approve"), Edge("facts", "approve"), Edge("approve", "publish", "yes"), Edge("approve", "draft", "rework"),
    )  # fmt: skip
    return Graph(nodes, edges)


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, drawing in (("process", process()), ("net", net()), ("agents", agents())):
        for direction in get_args(Direction):
            (directory / f"{name}-{direction}.svg").write_text(draw(drawing, "svg", direction, title=name))
        (directory / f"{name}.mmd").write_text(draw(drawing, "mermaid"))
        (directory / f"{name}.json").write_text(draw(drawing, "json"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
