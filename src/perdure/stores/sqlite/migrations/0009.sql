-- A start by name is checked against the parameters of its workflow, and what may be done with an instance against its
-- policy. The next engine that opens writes both; until then parameters are not known, and names with a slash are cells.

ALTER TABLE workflows RENAME COLUMN defaults TO parameters;
UPDATE workflows SET parameters = x'';
ALTER TABLE workflows ADD COLUMN policy TEXT NOT NULL DEFAULT '';
UPDATE workflows SET policy = '{"noun":"cell","created":"message","place":"fixed","exact":true,"send":false,"retry":false,"rewind":false,"fork":false,"wake":false}' WHERE name LIKE '%/%';
