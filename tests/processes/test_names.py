"""What authors of processes may import: no name more and none less."""

import perdure
import perdure.processes

STEPS = (
    "Set SetReference Activate Call Decide Choose Repeat Parallel Timer Receive SubProcess ContinueWith Complete Fail"
)
ROOTS = "start state result payload task tasks message item index loop error reference meta"
OTHERS = "Process Task Reference python service http queue fn function transport Request TransportError"


def test_the_names_of_the_dialect_are_exactly_those_of_the_reference():
    names = {*STEPS.split(), *ROOTS.split(), *OTHERS.split()}

    assert set(perdure.processes.__all__) == names
    assert all(hasattr(perdure.processes, name) for name in names)


def test_what_other_dialects_use_too_stands_in_perdure():
    names = ["load_process", "Retention", "Actor", "Backoff", "Secret", "Quorum", "Escalation", "Field"]

    assert not [name for name in names if name not in perdure.__all__ or not hasattr(perdure, name)]
    assert not set(names) & set(perdure.processes.__all__)
