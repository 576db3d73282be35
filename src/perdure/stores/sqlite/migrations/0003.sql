-- An engine may run several versions of a workflow. Every engine writes this table anew when it opens.

DROP TABLE workflows;

CREATE TABLE workflows (
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    defaults BLOB NOT NULL,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;
