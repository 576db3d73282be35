"""Every problem has a code, a place and a hint; all of them are told at once."""

import pytest

import perdure
from perdure.playbooks.check import load
from perdure.playbooks.problem import CODES, WARNINGS, BadPlaybook
from tests.playbooks.harness import HEAD, TOOLS

STEP = "workflow: [{step: a, tool: {kind: noop}}]\n"

CASES = [
    ("yaml-syntax", "a: [1\n", "2:1"),
    ("yaml-syntax", HEAD + "workflow: !x [{step: a}]\n", "4:11"),
    ("yaml-syntax", HEAD + "x-a: &a 1\n<<: {b: 1}\n", "5:1"),
    ("yaml-syntax", "--- 1\n--- 2\n", "2:1"),
    ("yaml-syntax", "", "1:1"),
    ("yaml-syntax", HEAD + 'workload: {x: "\\ud83d"}\n' + STEP, "4:15"),
    ("duplicate-key", HEAD + "workload: {a: 1,\n a: 2}\n", "5:2"),
    ("duplicate-key", HEAD + "keychain: [{name: a, map: {}}, {name: a, map: {}}]\n" + STEP, "4:39"),
    ("unquoted-template", HEAD + "workflow:\n- step: a\n  tool: {kind: noop, result: {{ ctx.x }}}\n", "6:30"),
    ("unquoted-template", HEAD + "workflow:\n- step: a\n  args:\n    x: {{ workload }}/b\n", "7:8"),
    ("unknown-key", HEAD + STEP + "workfow: []\n", "5:1"),
    ("unknown-key", HEAD + "workflow: [{step: a, command: ls, tool: {kind: noop}}]\n", "4:22"),
    ("unknown-key", HEAD + "workflow: [{step: a, tool: {kind: http, url: x, metod: GET}}]\n", "4:49"),
    ("missing-key", "kind: Playbook\nmetadata: {name: p}\n" + STEP, "1:1"),
    ("missing-key", "apiVersion: perdure/v1\nmetadata: {}\n" + STEP, "2:11"),
    ("missing-key", HEAD + "workflow: []\n", "4:11"),
    ("missing-key", HEAD + "workflow:\n", "5:1"),
    ("missing-key", HEAD + "workflow: [{step: a, tool: {kind: wait, for: 1, until: x}}]\n", "4:28"),
    ("missing-key", HEAD + "workflow: [{tool: {kind: noop}}]\n", "4:12"),
    ("missing-key", HEAD + "workflow: [{step: a}]\n", "4:12"),
    ("missing-key", HEAD + "workflow: [{step: a, tool: {result: 1}}]\n", "4:28"),
    ("missing-key", HEAD + "workflow: [{step: a, tool: {kind: workbook}}]\n", "4:28"),
    ("missing-key", HEAD + "workflow: [{step: a, loop: {iterator: x}, tool: {kind: noop}}]\n", "4:28"),
    ("missing-key", HEAD + "workflow: [{step: a, tool: {kind: wait}}]\n", "4:28"),
    (
        "missing-key",
        HEAD + "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{then: {do: break}}]}}}}]\n",
        "4:65",
    ),
    ("wrong-type", HEAD + "workflow: {step: a}\n", "4:11"),
    ("wrong-type", HEAD + "workload: [1]\n" + STEP, "4:11"),
    ("wrong-type", HEAD + "workflow: [{step: a, tool: {kind: fail, retryable: maybe}}]\n", "4:52"),
    ("wrong-type", HEAD + "workflow: [{step: a, tool: {kind: noop, spec: {timeout: soon}}}]\n", "4:57"),
    ("wrong-type", HEAD + "executor: {spec: {limits: {max_tokens: 0}}}\n" + STEP, "4:40"),
    ("wrong-type", "[1]\n", "1:1"),
    ("wrong-type", HEAD + "workflow: [null]\n", "4:12"),
    ("wrong-type", HEAD + "keychain: [{name: a, map: [x]}]\n" + STEP, "4:27"),
    ("wrong-type", HEAD + "workflow: [{step: a, tool: {kind: wait, for: 5x}}]\n", "4:46"),
    (
        "wrong-type",
        HEAD + "workflow: [{step: a, loop: {in: 1, spec: {max_in_flight: 1.5}}, tool: {kind: noop}}]\n",
        "4:58",
    ),
    ("bad-word", HEAD.replace("perdure/v1", "perdure/v9") + STEP, "1:13"),
    ("bad-word", HEAD.replace("Playbook", "Playbok") + STEP, "2:7"),
    ("bad-word", HEAD.replace("name: p", "name: ''") + STEP, "3:18"),
    ("bad-word", HEAD + "workflow: [{step: a b, tool: {kind: noop}}]\n", "4:19"),
    ("bad-word", HEAD + "workflow: [{step: a, tool: {kind: workflow, workflow: b, wait: soon}}]\n", "4:64"),
    ("bad-word", HEAD + "workflow: [{step: a, tool: {kind: wait, message: m, on_timeout: go}}]\n", "4:65"),
    ("bad-word", HEAD + "workflow: [{step: a, next: {spec: {mode: both}, arcs: []}}]\n", "4:42"),
    ("bad-word", HEAD + "workflow: [{step: a, join: most}]\n", "4:28"),
    ("bad-word", HEAD + "workflow: [{step: a, loop: {in: 1, iterator: index}, tool: {kind: noop}}]\n", "4:46"),
    ("bad-word", HEAD + "workflow: [{step: a, tool: {kind: noop}, set: {iter.x: 1}}]\n", "4:48"),
    ("bad-word", HEAD + "workbook: {w: {kind: workbook, use: w}}\n" + STEP, "4:15"),
    ("removed-key", HEAD + STEP + "vars: {a: 1}\n", "5:1"),
    ("removed-key", HEAD + "workflow: [{step: a, when: x, tool: {kind: noop}}]\n", "4:22"),
    ("removed-key", HEAD.replace("perdure/v1", "noetl.io/v2") + "vars: {a: 1}\n" + STEP, "4:1"),
    ("removed-key", HEAD.replace("perdure/v1", "noetl.io/v10") + STEP.replace("tool", "case: [], tool"), "4:22"),
    (
        "removed-key",
        HEAD + "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{expr: x, then: {do: skip}}]}}}}]\n",
        "4:66",
    ),
    ("removed-key", HEAD + "workflow: [{step: a, tool: {kind: noop, eval: x}}]\n", "4:41"),
    ("removed-key", HEAD + "workflow: [{step: a, tool: {kind: noop, spec: {policy: []}}}]\n", "4:56"),
    ("too-large", HEAD + "workload:\n" + " {a: " * 80 + "1" + "}" * 80 + "\n" + STEP, "5:318"),
    ("too-large", HEAD + f"workload: {{a: [{'1,' * 10_001}]}}\n", "4:19990"),
    ("too-large", HEAD + "# " + "x" * 1_048_576, "1:1"),
    ("duplicate-step", HEAD + "workflow: [{step: a, tool: {kind: noop}}, {step: a, tool: {kind: noop}}]\n", "4:50"),
    (
        "duplicate-label",
        HEAD + "workflow: [{step: a, tool: [{name: x, kind: noop}, {name: x, kind: noop}]}]\n",
        "4:59",
    ),
    ("unknown-step", HEAD + "workflow: [{step: load, tool: {kind: noop}, next: lod}]\n", "4:51"),
    ("unknown-step", HEAD + "executor: {spec: {entry_step: b}}\n" + STEP, "4:31"),
    (
        "unknown-label",
        HEAD
        + "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: jump, to: b}}}]}}}}]\n",
        "4:94",
    ),
    (
        "unknown-label",
        HEAD + "workflow: [{step: a, tool: {kind: noop, "
        "spec: {policy: {rules: [{else: {then: {do: jump, to: previous}}}]}}}}]\n",
        "4:94",
    ),
    ("unknown-kind", HEAD + "workflow: [{step: a, tool: {kind: htp, url: x}}]\n", "4:35"),
    ("unknown-kind", HEAD + "workflow: [{step: a, tool: {kind: workbook, use: b}}]\n", "4:50"),
    ("unknown-kind", HEAD + "executor: {requires: {tools: [snowflake]}}\n" + STEP, "4:31"),
    ("unknown-name", HEAD + 'workflow: [{step: a, tool: {kind: noop, result: "{{ workloud.x }}"}}]\n', "4:53"),
    ("unknown-name", HEAD + "workflow: [{step: a, tool: {kind: noop}, next: [{step: a, when: outcom.x}]}]\n", "4:65"),
    ("bad-expression", HEAD + 'workflow: [{step: a, tool: {kind: noop, result: "{{ ctx.x.upper() }}"}}]\n', "4:64"),
    ("bad-expression", HEAD + 'workflow: [{step: a, tool: {kind: noop, result: "{{ 1 + }}"}}]\n', "4:57"),
    ("bad-expression", HEAD + 'workflow: [{step: a, tool: {kind: noop, result: "{{ ctx.__class__ }}"}}]\n', "4:56"),
    (
        "bad-expression",
        HEAD + "workflow:\n- step: a\n  tool:\n    kind: noop\n    result: |\n      x\n      {{ y( }}\n",
        "10:7",
    ),
    ("dead-arc", HEAD + "workflow: [{step: a, next: [{step: a}, {step: a}]}]\n", "4:40"),
    (
        "secret-use",
        HEAD + 'keychain: [{name: k, map: {t: s}}]\nworkflow: [{step: a, args: {x: "{{ keychain.k.t }}"}, next: a}]\n',
        "5:46",
    ),
    (
        "secret-use",
        HEAD
        + 'keychain: [{name: k, map: {t: s}}]\nworkflow: [{step: a, tool: {kind: http, url: "{{ keychain.k.u }}"}}]\n',
        "5:60",
    ),
    (
        "secret-use",
        HEAD
        + 'keychain: [{name: k, map: {t: s}}]\nworkflow: [{step: a, tool: {kind: http, url: "{{ keychain.k.t | upper }}"}}]\n',
        "5:60",
    ),
    (
        "secret-use",
        HEAD
        + 'keychain: [{name: k, map: {t: s}}]\nworkflow: [{step: a, tool: {kind: noop, result: "{{ keychain.k.t }}"}}]\n',
        "5:63",
    ),
    (
        "sql-interpolation",
        HEAD + 'workflow: [{step: a, tool: {kind: postgres, dsn: x, query: "select {{ ctx.a }}"}}]\n',
        "4:61",
    ),
    (
        "final-step",
        HEAD + "executor: {spec: {final_step: b}}\nworkflow: [{step: a, next: b}, {step: b, tool: {kind: noop}}]\n",
        "5:28",
    ),
    (
        "final-step",
        HEAD
        + "executor: {spec: {final_step: b}}\nworkflow: [{step: a, tool: {kind: noop}}, {step: b, tool: {kind: noop}, next: a}]\n",
        "5:79",
    ),
]


def problems(text):
    with pytest.raises(BadPlaybook) as raised:
        load(text, "p.yaml", TOOLS)
    return raised.value.problems


@pytest.mark.parametrize(
    ("code", "text", "place"), CASES, ids=[f"{case[0]}-{index}" for index, case in enumerate(CASES)]
)
def test_a_problem_has_its_code_and_place(code, text, place):
    found = problems(text)

    assert [(each.code, f"{each.line}:{each.column}") for each in found][:1] == [(code, place)], [str(p) for p in found]
    assert str(found[0]).startswith(f"p.yaml:{place}: ")


def test_every_code_has_a_case():
    assert {case[0] for case in CASES} == set(CODES)


def test_all_problems_are_told_at_once_in_the_order_of_the_text():
    found = problems(
        HEAD
        + "workflow:\n- {step: a, tool: {kind: htp}, next: b}\n- {step: c, when: x, tool: {kind: noop, result: '{{ zz }}'}}\n"
    )

    assert [(each.line, each.code) for each in found] == [
        (5, "unknown-kind"),
        (5, "unknown-step"),
        (6, "removed-key"),
        (6, "unknown-name"),
    ]


def test_a_playbook_without_a_name_is_told_its_other_problems_too():
    found = problems(
        "apiVersion: perdure/v1\nworkload: [a]\nworkflow:\n- {step: a, tool: {kind: noop}, next: a b}\n"
        "- {step: a, tool: {kind: noop, result: '{{ workloud.x }}'}}\n"
    )

    codes = ["missing-key", "wrong-type", "unknown-step", "duplicate-step", "unknown-name"]
    assert [each.code for each in found] == codes


def test_what_yaml_alone_can_tell_hides_no_other_problem():
    text = (
        "workload: {a: 1, a: 2}\nworkflow: [{step: a, args: {b: {{ y }}}, tool: {kind: htp, <<: {z: 1}}, next: !x b}]\n"
    )

    found = problems(HEAD + text)

    codes = ["duplicate-key", "unquoted-template", "unknown-name", "unknown-kind", "yaml-syntax"]
    assert [each.code for each in found] == [*codes, "yaml-syntax", "unknown-step"]


@pytest.mark.parametrize("text", ["workflow: [5]\n", "workflow: [{step: a, loop: 5, tool: {kind: noop}}]\n"])
def test_what_has_the_wrong_type_is_told_once(text):
    assert [each.code for each in problems(HEAD + text)] == ["wrong-type"]


def test_two_escapes_of_one_character_are_that_character():
    text = HEAD + 'workload: {x: "\\ud83d\\ude00"}\n' + STEP

    assert load(text, "p.yaml", TOOLS).definition.playbook.workload == {"x": "\N{GRINNING FACE}"}


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("kind: python", "one of the keys call, code, script, found none"),
        ("kind: shell, argv: [ls], command: ls", "one of the keys argv, command, script, found argv and command"),
        ("kind: sqlite, dsn: a.db", "one of the keys query, commands, script, found none"),
        ("kind: sqlite, query: select 1", "one of the keys dsn, auth, found none"),
        ("kind: http, url: x, json: 1, body: b", "at most one of the keys json, form, body, found json and body"),
        ("kind: shell, argv: [ls], parse: jsn", "parse is one of text lines json, found jsn; did you mean json?"),
    ],
)
def test_the_check_knows_which_parameters_of_a_tool_go_together(action, said):
    with pytest.raises(BadPlaybook, match=said):
        perdure.load_playbook(HEAD + f"workflow: [{{step: a, tool: {{{action}}}}}]\n")


def test_how_a_duration_is_spelled_makes_no_version():
    text = HEAD + "workflow: [{step: a, spec: {timeout: SPELLED}, tool: {kind: wait, for: SPELLED}}]\n"

    spellings = ("90", "90s", "1.5m", "PT1M30S", "'90'")

    assert len({load(text.replace("SPELLED", each), "", TOOLS).definition.version for each in spellings}) == 1


def test_at_most_fifty_problems_are_told():
    steps = "".join(f"- {{step: s{n}, tool: {{kind: nope}}}}\n" for n in range(80))

    assert len(problems(HEAD + "workflow:\n" + steps)) == 50


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("workflow: [{step: a, command: ls, tool: {kind: noop}}]\n", "it belongs under tool"),
        ("workflow: [{step: a, max_in_flight: 2, tool: {kind: noop}}]\n", "it belongs under loop.spec"),
        ("workflow: [{step: a, arcs: [], tool: {kind: noop}}]\n", "did you mean args?; it belongs under next"),
        ("workflow: [{step: a, tool: {kind: noop, rules: []}}]\n", "it belongs under action.policy"),
        ("workflow: [{step: a, nxt: b, tool: {kind: noop}}]\n", "did you mean next?"),
        ("workflow: [{step: load, tool: {kind: noop}, next: lod}]\n", "did you mean load?"),
        ("workflow: [{step: a, tool: {kind: noop, set: {ctx: {x: 1}}}}]\n", "write ctx.x"),
        (
            "workflow: [{step: a, tool: {kind: noop, result: '{{ event }}'}}]\n",
            "only arcs and the sets of steps know it",
        ),
        ("workflow: [{step: a, tool: {kind: htp}}]\n", "did you mean http?"),
        ('workflow: [{step: a, tool: {kind: noop, result: "{{ workloud.x }}"}}]\n', "did you mean workload?"),
        ("workflow:\n- step: a\n  tool: {kind: noop, result: {{ ctx.x }}}\n", 'write "{{ ctx.x }}"'),
    ],
)
def test_a_problem_says_what_was_meant(text, hint):
    assert problems(HEAD + text)[0].hint == hint


def test_keys_with_x_are_allowed_everywhere():
    text = HEAD + "x-owner: ops\nworkflow: [{step: a, x-note: 1, tool: {kind: noop, x-a: 2}}]\n"

    assert load(text, "p.yaml", TOOLS).warnings == ()


def warnings(text):
    return [(each.code, f"{each.line}:{each.column}") for each in load(HEAD + text, "p.yaml", TOOLS).warnings]


WARNED = [
    ("unreachable-step", "workflow: [{step: a, tool: {kind: noop}}, {step: b, tool: {kind: noop}}]\n", "4:43"),
    ("free-cycle", "workflow: [{step: a, next: a}]\n", "4:12"),
    (
        "constant-gate",
        "workflow: [{step: a, spec: {policy: {admit: {rules: [{when: workload.x, then: {allow: true}}, {else: {then: {allow: false}}}]}}},"
        " tool: {kind: noop}}]\nworkload: {x: 1}\n",
        "4:45",
    ),
    (
        "unknown-member",
        "workflow: [{step: a, tool: {kind: noop}, next: [{step: b, when: outcome.reslt is defined}]}, {step: b, tool: {kind: noop}}]\n",
        "4:65",
    ),
    (
        "two-owners",
        'workload: {x: 1}\nworkflow: [{step: x, tool: {kind: noop}, next: a}, {step: a, tool: {kind: noop, result: "{{ x }}"}}]\n',
        "5:90",
    ),
    ("never-set", 'workflow: [{step: a, tool: {kind: noop, result: "{{ ctx.x }}"}}]\n', "4:50"),
    (
        "read-early",
        "workflow: [{step: a, next: [{step: b, when: workload.x}, {step: c}]}, {step: b, next: c}, "
        '{step: c, tool: {kind: noop, result: "{{ steps.b }}"}}]\nworkload: {x: 1}\n',
        "4:129",
    ),
    (
        "no-else",
        "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{when: _attempt == 1, then: {do: skip}}]}}}}]\n",
        "4:28",
    ),
    (
        "parallel-write",
        "workflow: [{step: a, loop: {in: 3, spec: {mode: parallel}}, tool: {kind: noop, set: {ctx.a: 1}}}]\n",
        "4:67",
    ),
    (
        "runs-twice",
        "workflow: [{step: a, next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}}, {step: b, next: d}, "
        "{step: c, next: d}, {step: d, tool: {kind: noop}}]\n",
        "4:126",
    ),
]


@pytest.mark.parametrize(("code", "text", "place"), WARNED, ids=[case[0] for case in WARNED])
def test_a_warning_has_its_code_and_place(code, text, place):
    assert (code, place) in warnings(text)


def test_a_warning_code_is_in_the_table():
    of_soundness = {"unbounded", "dead-step", "join-short", "undecided"}
    assert {case[0] for case in WARNED} == set(WARNINGS) - of_soundness - {"v10"}
