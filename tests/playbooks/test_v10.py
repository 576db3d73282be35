"""v10 mode: documents of NoETL run where they use kinds that are known here."""

import textwrap

import pytest

import perdure
from perdure.playbooks.author import from_text
from perdure.playbooks.check import load
from perdure.playbooks.document import document
from tests.playbooks.harness import TOOLS, PlaybookHarness
from tests.playbooks.test_engine import start
from tests.playbooks.test_pipelines import kept

DOCUMENT = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: weather, path: examples/weather}
notes: {team: ops}
keychain:
  - {name: openai, kind: bearer, scope: global}
workload:
  cities: [{name: Paris, lat: 48}, {name: Rome, lat: 41}]
  greeting: "Hi {{ workload.cities | length }}"
workflow:
  - step: start
    desc: where it begins
    tool: {kind: python, input: {n: 2}, code: "result = {'n': n}"}
    next: [check, report]
  - step: check
    loop: {in: "{{ workload.cities }}", iterator: city}
    tool:
      - fetch:
          kind: http
          endpoint: "https://api.example/{{ city.name }}"
          payload: {lat: "{{ city.lat }}"}
          timeout: 5
          spec:
            policy:
              rules:
                - {when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2, backoff: fixed, delay: 1}}
                - else: {do: continue, set: {last: "{{ output.data.temp }}"}}
    next:
      arcs:
        - {step: store, when: "{{ event.name == 'call.done' or event.name == 'loop.done' }}"}
  - step: report
    tool: {kind: noop}
    next: store
  - step: store
    tool: {kind: postgres, credential: pg_local, command: "insert into t values ('{{ ctx.last }}')"}
    next:
      spec: {mode: exclusive}
      arcs:
        - {step: done, when: "{{ store.row_count }}"}
  - step: done
    tool: {kind: noop, result: {greeting: "{{ workload.greeting }}", team: "{{ notes.team }}", n: "{{ start.n }}", status: "{{ start.status }}", gone: "{{ nothing.at.all }}"}}
"""


def stubs(location, params):
    if location.startswith("start"):
        return {"n": 2}
    return {"temp": 20} if location.startswith("check") else {"rows": [], "row_count": 1, "columns": []}


def test_a_document_runs_unchanged():
    stage = PlaybookHarness(from_text(DOCUMENT, "w.yaml", TOOLS), stubs)

    assert stage.result == {"greeting": "Hi 2", "team": "ops", "n": 2, "status": "done", "gone": None}
    assert stage.asked["check/~0/fetch"]["params"]["url"] == "https://api.example/Paris"
    assert stage.asked["store/store_task"]["params"]["query"] == "insert into t values ('20')"
    assert stage.asked["store/store_task"]["params"]["auth"] == "pg_local"
    assert stage.machine.state.fired["store"] == 1


def test_its_name_is_its_path_with_dots():
    assert from_text(DOCUMENT, "w.yaml", TOOLS).name == "examples.weather"


def test_what_only_v10_takes_is_a_warning():
    found = load(DOCUMENT, "w.yaml", TOOLS).warnings

    assert ("v10", "the root has no key notes; it is data") in [(each.code, each.text) for each in found]
    assert any("template stands in SQL" in each.text for each in found)


def test_a_name_that_nothing_has_is_null_with_a_warning():
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\nworkflow: [{step: a, tool: {kind: noop, result: '{{ nowhere.x }}'}}]\n"

    [found] = load(text, "p.yaml", TOOLS).warnings

    assert str(found) == "p.yaml:4:50: warning: the name nowhere is not known here: it is null"
    assert PlaybookHarness(from_text(text, "p.yaml", TOOLS)).result is None


@pytest.mark.parametrize(
    ("guard", "result"),
    [
        ("{{ workload.id }}", "b"),
        ("{{ workload.empty }}", "a"),
        ("{{ workload.no }}", "a"),
        ("{{ workload.gone }}", "a"),
    ],
)
def test_a_text_is_a_guard(guard, result):
    text = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: p}}
workload: {{id: r-17, empty: "", no: "False"}}
workflow:
  - {{step: a, tool: {{kind: noop, result: a}}, next: {{arcs: [{{step: b, when: "{guard}"}}]}}}}
  - {{step: b, tool: {{kind: noop, result: b}}}}
"""

    assert PlaybookHarness(from_text(text, "p.yaml", TOOLS)).result == result


UNKNOWN = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\nworkflow: [{step: a, tool: {kind: snowflake, command: x}}]\n"


async def test_an_unknown_kind_fails_when_it_runs():
    with pytest.raises(perdure.InstanceFailed, match="unknown_kind"):
        await start(perdure.load_playbook(UNKNOWN))


def test_an_unknown_kind_runs_on_a_stub():
    assert PlaybookHarness(from_text(UNKNOWN, "p.yaml", TOOLS), {"a/a_task": {"n": 1}}).result == {"n": 1}


def test_an_arc_without_on_is_followed_after_a_failure_which_stays_unhandled():
    text = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - {step: a, tool: {kind: http, url: x}, next: [{step: b}]}
  - {step: b, tool: {kind: noop}}
"""
    stage = PlaybookHarness(from_text(text, "p.yaml", TOOLS), {"a/a_task": {"error": {"kind": "server_error"}}})

    assert stage.machine.state.steps["b"]["status"] == "done"
    assert stage.error == "server_error"


def test_a_large_result_has_its_shape_too():
    text = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - {step: a, tool: {kind: postgres, command: "select 1"}, next: b}
  - {step: b, tool: {kind: noop, result: ["{{ a.rows[1].id }}", "{{ a.data.total }}", "{{ a.status }}", "{{ a._ref }}", "{{ a._preview }}"]}}
"""

    assert PlaybookHarness(from_text(text, "p.yaml", TOOLS), kept).result == [1, 200, "done", "d1", "{"]


def test_the_state_of_postgres_is_pg_too():
    text = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - {step: a, tool: {kind: postgres, command: "select 1", spec: {policy: {rules: [{when: "{{ output.pg.sqlstate == '23505' }}", then: {do: skip}}, {else: {do: fail}}]}}}}
"""
    twice = {"error": {"kind": "sql_error"}, "sql": {"sqlstate": "23505"}}

    assert PlaybookHarness(from_text(text, "p.yaml", TOOLS), {"a/a_task": twice}).result is None


def test_a_secret_of_the_keychain_is_named_by_entry_and_field():
    text = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
keychain: [{name: openai, kind: bearer}]
workflow:
  - {step: a, tool: {kind: http, url: x, headers: {Authorization: "Bearer {{ keychain.openai.api_key }}"}}}
"""
    stage = PlaybookHarness(from_text(text, "p.yaml", TOOLS), {"a/a_task": 1})

    assert stage.asked["a/a_task"]["secrets"] == [
        [["headers", "Authorization"], ["Bearer ", {"secret": "openai.api_key"}]]
    ]


def test_fmt_turns_it_into_v1_with_the_same_meaning():
    made = document(from_text(DOCUMENT, "w.yaml", TOOLS).definition.playbook)

    assert made["apiVersion"] == "perdure/v1"
    assert made["workflow"][1]["tool"][0]["name"] == "fetch"


# ---- documents in the shapes of the original, on real processes ------------------------------------------------------

HEAD = """
    apiVersion: noetl.io/v2
    kind: Playbook
"""

ENTRY = (
    HEAD
    + """
    metadata: {name: entry, path: shop/entry}
    executor: {spec: {entry_step: look, final_step: tell}}
    workload: {floor: 25, degrees: 30}
    workbook:
      - name: judge
        tool:
          kind: python
          input: {degrees: null, floor: null}
          code: |
            warm = float(degrees) >= floor
            result = {"warm": warm}
        assert: {expects: [degrees], returns: [warm]}
    workflow:
      - step: never
        tool: {kind: python, code: "result = 1"}
      - step: look
        desc: the entry is not the first of the list
        tool: {kind: workbook, name: judge, input: {degrees: "{{ degrees }}", floor: "{{ workload.floor }}"}}
        next:
          spec: {mode: exclusive}
          arcs:
            - {step: warm, when: "{{ look.warm == true }}"}
            - {step: cold, when: "{{ look.warm != true }}"}
      - step: warm
        tool: {kind: noop}
        next: {spec: {mode: inclusive}, arcs: [{step: left, args: {side: l}}, {step: right, args: {side: r}}]}
      - {step: cold, tool: {kind: noop}}
      - {step: left, tool: {kind: python, input: {side: "{{ args.side }}"}, code: "def main(side, **more):\\n    return {'who': side}"}, next: [both]}
      - {step: right, tool: {kind: python, input: {side: "{{ args.side }}"}, code: "def main(side, **more):\\n    return {'who': side}"}, next: [both]}
      - {step: both, tool: {kind: noop, result: "{{ left.who }}{{ right.who }}"}}
      - {step: tell, tool: {kind: noop, result: {verdict: "{{ args.summary.verdict }}", both: "{{ both.result }}", runs: "{{ args.summary.counts.runs }}"}}}
"""
)

GATE = (
    HEAD
    + """
    metadata: {name: gate, path: shop/gate}
    workload: {items: [3, 1, 2]}
    workflow:
      - step: begin
        tool: {kind: noop}
        next: [sum, held]
      - step: sum
        loop: {in: "{{ items }}", iterator: item, spec: {mode: sequential}}
        tool:
          - name: double
            kind: python
            libs: {Decimal: {from: decimal, import: Decimal}}
            input: {item: "{{ item }}"}
            code: "result = {'n': int(Decimal(item) * 2)}"
          - name: keep
            kind: noop
            spec:
              policy:
                rules:
                  - else: {do: continue, set: {total: "{{ (ctx.total | default(0)) + double.n }}"}}
        set: {ready: "{{ ctx.total >= 12 }}"}
      - step: held
        spec:
          policy:
            admit:
              rules:
                - {when: "{{ ctx.ready }}", then: {allow: true}}
                - else: {then: {allow: false}}
        tool: {kind: noop, result: "{{ ctx.total }} {{ ctx.ready | lower }}"}
"""
)

POLICY = (
    HEAD
    + """
    metadata: {name: policy, path: shop/policy}
    workload: {file: FILE}
    workflow:
      - step: flaky
        tool:
          - name: try
            kind: python
            script: {uri: "{{ file }}", source: {type: file}}
            input: {n: 1}
            spec:
              policy:
                rules:
                  - {when: "{{ output.status == 'error' and output.py.exception == 'OSError' }}", then: {do: retry, attempts: 3, backoff: fixed, delay: 0}}
                  - {when: "{{ output.status == 'error' }}", then: {do: fail}}
                  - else: {then: {do: continue}}
            set: {told: "{{ output }}"}
          - name: look
            kind: python
            input: {told: "{{ told }}", label: "{{ try }}"}
            code: "result = {'more': told['data']['tries'] < 2, 'same': told['data'] == label['data']}"
        next:
          arcs:
            - {step: flaky, when: "{{ flaky.results.look.more == true }}"}
            - {step: broken, when: "{{ event.name == 'call.done' }}"}
      - step: broken
        tool: {kind: python, code: "raise ValueError('no')"}
        next:
          arcs:
            - {step: end, when: "{{ event.name == 'call.error' }}"}
      - step: end
        tool: {kind: noop, result: ["{{ flaky.results.try.tries }}", "{{ flaky.same }}", "{{ broken.error.kind }}", "{{ nothing }}"]}
"""
)

FLAKY = """
import pathlib
log = pathlib.Path(__file__ + ".log")
tries = len(log.read_text()) if log.exists() else 0
log.write_text("x" * (tries + 1))
if tries < 1:
    raise OSError("not yet")
result = {"tries": tries, "n": n}
"""


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (ENTRY, {"verdict": "success", "both": "lr", "runs": 5}),
        (GATE, "12 true"),
        (POLICY, [2, True, "ValueError", None]),
    ],
    ids=["entry, routing, final step", "admission, loops, sets of noops", "policy, cycles, failures"],
)
async def test_documents_of_the_original_run_unchanged(text, result, tmp_path):
    (tmp_path / "flaky.py").write_text(FLAKY)
    playbook = perdure.load_playbook(textwrap.dedent(text).replace("FILE", str(tmp_path / "flaky.py")))

    found = await start(playbook)

    if text is GATE:
        found = found["held"]
    assert found == result
