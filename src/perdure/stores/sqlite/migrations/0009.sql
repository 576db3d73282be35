-- A start by name is checked against the parameters of its workflow. The next engine that opens writes them; until then
-- they are not known.

ALTER TABLE workflows RENAME COLUMN defaults TO parameters;
UPDATE workflows SET parameters = x'';
