-- A start by name fills in the defaults of its workflow. Every engine writes this table anew when it opens.

DROP TABLE workflows;

CREATE TABLE workflows (
    name TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    defaults BLOB NOT NULL
) STRICT, WITHOUT ROWID;
