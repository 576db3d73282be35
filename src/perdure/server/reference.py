"""The page `docs/server/api.md`, made from the table of routes: `python -m perdure.server.reference`."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from perdure.verbs.act import ALSO
from perdure.views.where import FIELDS

from .openapi import sample
from .problems import OWN, TABLE
from .refusals import OF_TASKS
from .routes import API, ROUTES, Route

HEAD: Final = f"""# The API

This page is made from the table of verbs: `python -m perdure.server.reference`. Paths are below `{API}`. `/openapi.json`, at the root of the server, is the same as an OpenAPI 3.1
document, with an example of each verb.

- Requests are strict JSON; unknown fields are refused with a proposal. Times are UTC in ISO 8601, durations seconds, bytes `{{"$bytes": base64}}`, numbers of
  instances and entries texts. Values over 8 KiB are cut to `{{"$cut": …}}` unless `values=whole` is asked for;
  `fields=a,b` gives these fields alone.
- `{{id}}` is `workflow/key`, which may have slashes; what is asked of it follows the last `/-/`. `@NUMBER` names one generation.
- Lists of instances take `limit` (1 to 500), `cursor` (the `next` or `previous` of a page), `order` (`-started`, `started`; `-changed` of stuck, failed or waiting instances) and filters: `q` as text, or each as a parameter:
  `{"` `".join(FIELDS)}` `tag.NAME`. A parameter that comes twice means one or the other, `not.FIELD` means not, `.gt` and `.lt` compare times and tags: `tag.amount.gt=100`. A tag of a request is a text, a
  number, a bool, or a time as `{{"$time": "2026-11-01T09:00Z"}}`.
- `Idempotency-Key` makes a write happen once. `If-Match` with the `ETag` of an instance refuses it if the instance has moved on. `X-Reason` is recorded.
  A write waits 2 seconds, or those of `Prefer: wait=N`, until an engine has recorded it; else the answer is 202, and `Location` is where to look.
- `…/-/history` takes `form`: `words`, `compact` (a row an operation) or `raw` (each entry decoded, with its bytes).
- `GET {API}/stream?channels=instance:ID,list:FILTER,tasks:mine,frames:ID,bulk:ID,fleet` sends the events `entry` `head` `task` `count` `frame` (and `gap`: read again; `bye`: connect again);
  `Last-Event-ID` resumes without loss. `count`, of the channel `fleet`, says that an instance of `workflow` has `status` now: counts on a page change.
- Errors are `application/problem+json` with `code`, `detail`, the number of the `request`, and where they help `where`, `expected`, `found`, `hint` and a row of `errors` for each
  wrong place. `type` is a page of the server that explains the code.

A verb that comes twice is one by what stands under *once by*. Each verb may be refused with 401, 403, 429 or 503 besides its own refusals.

| verb | request | who | once by | what it does | own refusals |
|---|---|---|---|---|---|
"""


SHOWN: Final = ("start", "send", "settle", "rewind", "migrate", "patch")
"""Verbs that the page shows as commands; `openapi.json` has those of all."""

BODIES: Final = "The body of a request is an object with these fields.\n\n"

COMMANDS: Final = """`PERDURE_SERVER` is the address of the server, `PERDURE_TOKEN` an API key. `/openapi.json` has a command for each verb.

<!-- not run: these ask a server that runs -->
"""


def page() -> str:
    rows = "".join(
        [
            f"| {each.name} | `{each.method} {each.path}` | {each.who} | {'' if each.read else each.repeat} | {each.help} | "
            f"{' '.join(each.refusals)} |\n"
            for each in ROUTES
        ]
    )
    codes = "".join([f"| `{code}` | {status} | {error.__name__} |\n" for error, code, status in TABLE])
    own = "".join([f"| `{code}` | {text} |\n" for code, text in sorted([*OWN.items(), *OF_TASKS.items()])])
    parts = "".join([_part(each) for each in ROUTES if not each.read])
    commands = "".join([f"$ {sample(each)}\n" for each in ROUTES if each.name in SHOWN])
    return (
        f"{HEAD}{rows}\n## Bodies\n\n{BODIES}{parts}\n## Commands\n\n{COMMANDS}```console\n{commands}```\n\n## Codes\n\n| code | status | error |\n|---|---|---|\n{codes}\n"
        f"Codes of the server itself:\n\n| code | meaning |\n|---|---|\n{own}"
    )


def _part(route: Route) -> str:
    also = {own: f" or `{name}`" for name, own in ALSO.get(route.params, {}).items()}
    fields = [
        f"`{field.encode_name}`{also.get(field.name, '')}{'' if field.required else ', optional'}"
        for field in msgspec.structs.fields(route.params)
        if field.encode_name not in route.in_path
    ]
    example = f" Example: `{json.dumps(route.example)}`" if route.example else ""
    return f"- **{route.name}**: {'; '.join(fields) or 'no field'}.{example}\n"


if __name__ == "__main__":
    print(page(), end="")
