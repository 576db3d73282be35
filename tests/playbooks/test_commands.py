"""Playbooks on the command line: which files are playbooks, why a token waits, what an instance has in hand."""

import asyncio
import json
import textwrap

from click.testing import CliRunner

import perdure
from perdure.app.ours import load_process
from perdure.cli import cli
from tests.playbooks.harness import HEAD
from tests.playbooks.test_engine import SLOW, book


def called(*words):
    return CliRunner().invoke(cli, words, prog_name="perdure", env={"PERDURE_DB": None})


async def waiting_at_a_gate(url):
    async with perdure.open(url, workflows=[book(SLOW)]) as engine:
        handle = await engine.start("p", key="k")
        assert await handle.status() == "waiting"


def test_why_names_the_gate_and_the_command_that_opens_it(tmp_path):
    url = str(tmp_path / "p.db")
    asyncio.run(waiting_at_a_gate(url))

    [gate, *_] = json.loads(called("why", "k", "--json", "--db", url).stdout)["reasons"]

    assert gate["kind"] == "gate"
    assert gate["text"].startswith("A token has waited at the gate of b for ")
    assert gate["text"].endswith(", until this is true: ctx.go.")
    assert gate["todo"].startswith("perdure playbooks patch p/k go=true --db ")


def test_show_has_ctx_and_tokens(tmp_path):
    url = str(tmp_path / "p.db")
    asyncio.run(waiting_at_a_gate(url))

    state = json.loads(called("show", "k", "--json", "--db", url).stdout)["state"]

    assert state["ctx"] == {"go": False}
    assert [(each["step"], each["state"]) for each in state["tokens"]] == [("b", "pending")]


def test_show_has_the_last_ctx_of_an_instance_that_has_ended(tmp_path):
    url = str(tmp_path / "p.db")

    async def done():
        async with perdure.open(url, workflows=[book(SLOW)]) as engine:
            handle = await engine.start("p", key="k")
            await handle.ask("ctx", {"set": {"go": True}})
            await handle.result()

    asyncio.run(done())

    assert json.loads(called("show", "k", "--json", "--db", url).stdout)["state"]["ctx"] == {"go": True}


def test_check_tells_playbooks_and_processes_apart(tmp_path):
    bad, process = tmp_path / "p.yaml", tmp_path / "q.yaml"
    bad.write_text(HEAD + "workflow: [{step: a, next: b}]\n")
    process.write_text("format: perdure.process/1\nname: q\nversion: 1.0.0\nsteps: []\n")

    told, other = called("check", str(bad)), called("check", str(process), "--json")

    assert told.exit_code == 1
    assert f"{bad}:" in told.stdout
    assert json.loads(other.stdout)["workflows"] == [load_process(process).name]


def test_start_takes_a_file_and_the_next_engine_runs_it(tmp_path):
    url, file = str(tmp_path / "p.db"), tmp_path / "p.yaml"
    file.write_text(HEAD + "workload: {n: 1}\nworkflow: [{step: a, tool: {kind: noop, result: '{{ workload.n }}'}}]\n")

    told = called("start", str(file), "--set", "n=7", "--key", "k", "--db", url)

    async def result():
        async with perdure.open(url) as engine:
            return await engine.handle("p", "k").result(timeout=60)

    assert (told.exit_code, told.stdout) == (0, "k\n")
    assert asyncio.run(result()) == 7


def test_put_needs_no_engine_of_another_process(tmp_path):
    url, file = str(tmp_path / "p.db"), tmp_path / "p.yaml"
    for result in (1, 2):
        file.write_text(HEAD + f"workflow: [{{step: a, tool: {{kind: noop, result: {result}}}}}]\n")
        assert called("playbooks", "put", str(file), "--db", url).exit_code == 0

    assert len(json.loads(called("playbooks", "ls", "--json", "--db", url).stdout)) == 2


def test_a_patch_without_an_engine_is_refused_if_it_cannot_be_meant(tmp_path):
    url = str(tmp_path / "p.db")
    asyncio.run(waiting_at_a_gate(url))

    near = called("playbooks", "patch", "k", "goo=true", "--db", url)
    text = called("playbooks", "patch", "k", "go=yes", "--db", url)
    late = called("playbooks", "patch", "k", "go=true", "--if-version", "3", "--db", url)
    good = called("playbooks", "patch", "k", "go=true", "--if-version", "0", "--db", url)

    assert [each.exit_code for each in (near, text, late, good)] == [4, 4, 4, 0]
    assert "the playbook has no ctx key goo; did you mean go?" in near.stderr
    assert "ctx.go is true or false, as its first value is, found text" in text.stderr


def test_run_doubts_a_key_that_is_near_to_one_of_the_workload(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + "workload: {names: [a], more: 1}\nworkflow: [{step: a, tool: {kind: noop, result: 1}}]\n")

    told = called("run", str(file), "--set", "nams=1", "--set", "other=1")

    assert told.exit_code == 0
    assert "the workload has no key nams; did you mean names?" in told.stderr
    assert "other" not in told.stderr.partition("started")[0]


def test_render_shows_args_and_credentials_with_the_names_of_secrets(tmp_path):
    file = tmp_path / "p.yaml"
    tool = "{kind: http, url: 'https://a', auth: {bearer: '{{ keychain.k.t }}'}, args: {n: '{{ 1 + 1 }}'}}"
    file.write_text(HEAD + f"keychain: [{{name: k, map: {{t: depot}}}}]\nworkflow: [{{step: a, tool: {tool}}}]\n")

    shown = json.loads(called("playbooks", "render", str(file), "a").stdout)["a_task"]

    assert shown["auth"] == {"bearer": "<secret depot>"}
    assert shown["args"] == {"n": 2}


def test_render_shows_the_first_iteration_of_a_loop(tmp_path):
    file = tmp_path / "p.yaml"
    tool = "{kind: http, url: 'https://a/{{ name }}/{{ iter.index }}/{{ iter.count }}'}"
    loop = "{in: '{{ workload.names }}', iterator: name}"
    file.write_text(HEAD + f"workload: {{names: [ann, bob]}}\nworkflow: [{{step: a, loop: {loop}, tool: {tool}}}]\n")

    def url(*options):
        return json.loads(called("playbooks", "render", str(file), "a", *options).stdout)["a_task"]["url"]

    assert url() == "https://a/ann/0/2"
    assert url("--with", "iter.name=cid") == "https://a/cid/0/2"
    assert url("--set", "names=[]").startswith("! ")


def test_run_names_the_place_of_an_expression_that_fails(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + "workflow:\n  - step: a\n    tool: {kind: noop, result: '{{ workload.gone }}'}\n")

    assert f"{file}:6:" in called("run", str(file)).stderr


def test_why_names_the_file_of_a_playbook_that_no_engine_runs(tmp_path):
    url = str(tmp_path / "p.db")
    asyncio.run(waiting_at_a_gate(url))

    assert "perdure run FILE " in called("why", "k", "--db", url).stdout


def test_a_command_that_does_not_exist_gets_a_hint():
    assert "Did you mean check?" in called("chek").output
    assert "Did you mean simulate?" in called("playbooks", "simulat").output


def test_simulate_takes_a_playbook_that_waits_for_a_patch(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + textwrap.dedent(SLOW))

    told = called("playbooks", "simulate", str(file), "--runs", "1", "--crash")

    assert told.exit_code == 0
    assert "none made a difference" in told.stdout


def test_start_takes_the_path_of_a_playbook(tmp_path):
    url, file = str(tmp_path / "p.db"), tmp_path / "p.yaml"
    file.write_text(HEAD.replace("name: p", "path: shop/p") + "workflow: [{step: a, tool: {kind: noop}}]\n")
    assert called("playbooks", "put", str(file), "--db", url).exit_code == 0

    assert called("start", "shop/p", "--key", "k", "--db", url).exit_code == 0


def test_a_playbook_is_paused_and_resumed_and_why_says_by_whom(tmp_path):
    url = str(tmp_path / "p.db")
    asyncio.run(waiting_at_a_gate(url))

    async def taken_up():
        async with perdure.open(url, workflows=[other]) as engine:
            handle = engine.handle("p", "k")
            while not await handle.read("paused"):  # noqa: ASYNC110  # it is in the database
                await asyncio.sleep(0.01)
            await engine.start(other, key="o")

    @perdure.flow(name="other")
    async def other(ctx: perdure.Context) -> None:
        await ctx.receive("m")

    asked = called("pause", "k", "--by", "ann", "--reason", "the bank is down", "--db", url)
    asyncio.run(taken_up())

    assert asked.stdout == "asked p/k to pause\n"
    why = json.loads(called("why", "k", "--json", "--db", url).stdout)["reasons"]
    paused, gate, _ = why
    assert (paused["kind"], gate["kind"], gate["todo"]) == ("paused", "gate", None), "no patch: a resume comes first"
    assert gate["text"].endswith("In a pause no gate is tested; this one is at the resume.")
    found = json.loads(called("ls", "--json", "--where", "waits_for:paused", "--db", url).stdout)
    assert [each["id"] for each in found["instances"]] == ["p/k"]
    assert paused["text"].startswith("It was paused by ann ")
    assert "(the bank is down): what runs goes on to its end, and nothing else begins." in paused["text"]
    assert paused["todo"].startswith("to let it go on: perdure resume p/k --db ")
    shown = called("show", "k", "--db", url).stdout
    assert 'paused = {"by": "ann", "since": "' in shown
    refused = called("pause", "other/o", "--db", url)
    assert (refused.exit_code, called("resume", "k", "--db", url).exit_code) == (2, 0)
    assert "other is a flow, which takes no pause" in refused.stderr
