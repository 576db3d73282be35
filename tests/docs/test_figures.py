"""Figures that are shown are those that were measured: everything is made from bench/results.json."""

import pytest

from bench import plot, render, report, results
from bench.measure import Pass
from bench.results import Part, Run


def test_results_md_shows_what_results_json_holds():
    assert render.RESULTS.read_text("utf-8") == render.document(results.load()), "run python -m bench.render"


def test_the_plot_shows_what_results_json_holds():
    assert render.PLOT.read_text("utf-8") == plot.svg(results.load()), "run python -m bench.render"


def test_the_readme_shows_what_results_json_holds():
    readme = render.README.read_text("utf-8")

    assert render.with_figures(readme, results.load()) == readme, "run python -m bench.render"


def test_every_bar_is_met_or_explained():
    verdicts = [verdict for part in results.load().values() for verdict in report.verdicts(part)]

    unexplained = [f"{each.workload.name}: {each.label}" for each in verdicts if not each.met and not each.bar.why]

    assert unexplained == [], "say why in the Bar: what stands in the way, and where that was found"


def a_part(steps, steps_of_dbos, *, missing=""):
    ours = [Pass({"steps": each, "runs": each / 5}, {"commits": 1_000.0}) for each in steps]
    theirs = [Pass({"steps": each, "runs": each / 5}, {"commits": 1_000.0}) for each in steps_of_dbos]
    runs = [
        Run("W2", "perdure", ours),
        Run("W2", "dbos", theirs, style="async"),
        Run("W2", "langgraph", missing=missing),
    ]
    settings = {"date": "2026-01-01 00:00 UTC", "machine": "2 cores, some"}
    return Part(settings, {"cores": 2, "load before": 0.1, "load after": 1.0}, {"sqlite": [{"commits": 1_000.0}]}, runs)


def test_perdure_is_compared_with_a_peer_pass_by_pass():
    part = a_part([100.0, 900.0, 300.0], [10.0, 30.0, 1.0])

    bar = next(each for each in report.verdicts(part) if "DBOS" in each.label)

    assert bar.value == 30.0  # the median of 10, 30 and 300
    assert bar.how == "missed by 62 %"


def test_a_peer_that_could_not_run_is_told_with_its_reason():
    text = render.document({"sqlite": a_part([100.0], [10.0], missing="could not be installed: no network")})

    assert "LangGraph is missing: could not be installed: no network." in text
    assert "| missing |" in render.figures({"sqlite": a_part([100.0], [10.0], missing="no network")})


def test_what_was_measured_on_a_busy_machine_says_so():
    part = a_part([100.0], [10.0])
    part.floors["sqlite"].append({"commits": 2_000.0})

    assert "The floor itself varied from 1,000 to 2,000 commits/s" in render.document({"sqlite": part})


def test_a_part_comes_back_from_the_file_as_it_was_written(tmp_path):
    parts = {"sqlite": a_part([100.0], [10.0], missing="no network"), "growth": a_part([1.0, 2.0], [])}

    results.save(parts, tmp_path / "results.json")

    assert results.load(tmp_path / "results.json") == parts


def test_a_readme_without_a_place_for_figures_is_refused():
    with pytest.raises(ValueError, match="figures: made by"):
        render.with_figures("# perdure\n", {})
