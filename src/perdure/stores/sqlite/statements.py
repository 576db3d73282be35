"""The statements of `queries.sql`, by name."""

from importlib.resources import files

from perdure.stores.statements import Statements

SQL = Statements(files(__package__).joinpath("queries.sql").read_text("utf-8"))
