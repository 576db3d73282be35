"""Expressions: one evaluator with a budget, and two readers.

`python.py` reads the trees and texts of processes, `jinja.py` the texts and guards of playbooks. Both make the nodes
of `nodes.py`; `compile.py` makes closures of them. `perdure.expressions.jinja` is imported by name, because it
needs jinja2.
"""

from .budget import PLAYBOOK, PROCESS, Budget, Meter
from .compile import Expression
from .problem import Problem
from .python import Tree, check, compile_tree, parse, text
from .values import ABSENT, NeedsRead, Ref, Secret, SecretText

__all__ = [
    "ABSENT",
    "PLAYBOOK",
    "PROCESS",
    "Budget",
    "Expression",
    "Meter",
    "NeedsRead",
    "Problem",
    "Ref",
    "Secret",
    "SecretText",
    "Tree",
    "check",
    "compile_tree",
    "parse",
    "text",
]
