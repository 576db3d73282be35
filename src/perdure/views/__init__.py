"""What people may know of instances: data in, data out. No console, no formatting; every face tells it in its own way.

find.py       which instance an ID means
look.py       one instance as it is now, and lists of instances, as structs
reasons.py    why an instance does not move, in the words of its dialect or the common ones
compare.py    where two histories part
trace.py      what an event led to
journal.py    the last entries of the journal, and of one instance as they come
rerun.py      a history, delivered again to code
survey.py     the histories of all instances, replayed on code
export.py     a history as a file
"""
