"""The purchase of the page: the whole dialect in one definition."""

from dataclasses import dataclass
from datetime import timedelta as td
from decimal import Decimal
from typing import Literal, TypedDict

import perdure
from perdure.processes import (
    Activate,
    Call,
    Complete,
    Decide,
    Fail,
    Parallel,
    Process,
    Receive,
    Reference,
    Repeat,
    Request,
    Set,
    Task,
    error,
    fn,
    http,
    item,
    meta,
    python,
    result,
    service,
    start,
    state,
    tasks,
    transport,
)


class Line(TypedDict):
    sku: str
    count: int


class Manual(TypedDict):
    number: str


@dataclass
class Purchase:
    order_id: str
    company: str
    amount: Decimal
    lines: list[Line]


@dataclass
class Verdict:
    outcome: Literal["approve", "reject"]
    comment: str = ""


@perdure.step
async def reserve(sku: str, count: int) -> str:
    return f"r-{sku}"


@perdure.step
async def free(reservation: str) -> None: ...


@transport("erp")
async def erp(request: Request) -> object:
    return {"number": "B-1"}


approve = Task(
    "approve",
    answer=Verdict,
    title=fn.concat("Approve order ", start.order_id),
    data={"amount": state.amount},
    roles=["manager"],
    exclude=[meta.started_by],
    due=td(days=2),
    expire=td(days=10),
)
repair = Task("repair", answer=Manual, title="Place the order by hand", data={"why": error.message}, roles=["buyer"])
purchase = Process(
    "purchase-approval",
    version="1.2.0",
    input=Purchase,
    tasks=[approve, repair],
    reference=Reference(start.order_id, company=start.company),
    state={"amount": start.amount, "approved": start.amount < 500, "late": False},
    steps=[
        Parallel(
            "checks",
            {
                "budget": [
                    Call("budget", http("POST", "https://erp.example/budget"), {"sum": state.amount}, result="budget")
                ],
                "stock": [
                    Repeat(
                        "lines",
                        over=start.lines,
                        steps=[
                            Call(
                                "reserve",
                                python("tests.processes.shop:reserve"),
                                {"sku": item.sku, "count": item.count},
                                result="held",
                                undo=[Call("free", python("tests.processes.shop:free"), {"reservation": result.held})],
                            )
                        ],
                    )
                ],
            },
        ),
        Decide(
            "ask",
            ~state.approved,
            then=[Activate("approve"), Set("approved", tasks.approve.outcome == "approve")],
        ),
        Decide("refused", ~state.approved, then=[Fail("rejected", "not approved")]),
        Call(
            "order",
            service("erp", "place-order"),
            {"id": start.order_id},
            result="order",
            retries=4,
            backoff=perdure.Backoff(base=2),
            on_failure=[Activate("repair")],
        ),
        Receive("delivery", "delivered", timeout=td(days=30), on_timeout=[Set("late", True)]),
        Complete({"late": state.late, "order": fn.coalesce(result.order.number, tasks.repair.answer.number)}),
    ],
)
