"""What people may do and ask: one table, a row for each verb. Each face (command line, server) is made from it.

table.py     the table: name, parameters, answer, function, whether it changes something
act.py       verbs that change something
read.py      verbs that only read
bulk.py      one verb on many instances
plans.py     dry runs, and the plans that they give
"""
