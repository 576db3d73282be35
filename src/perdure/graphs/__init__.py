"""Graphs: governed agent DAGs. The public names of the dialect."""

from perdure.errors import BadGraph, Denied, NotInRun

from .author import Graph
from .model import Limits, Partial, Permit, Result, Used
from .report import report
from .runs import Node
from .tools import Tool, tool

__all__ = [
    "BadGraph",
    "Denied",
    "Graph",
    "Limits",
    "Node",
    "NotInRun",
    "Partial",
    "Permit",
    "Result",
    "Tool",
    "Used",
    "report",
    "tool",
]
