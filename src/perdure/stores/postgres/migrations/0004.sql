-- A start by name is checked against the parameters of its workflow, and what may be done with an instance against its
-- policy. The next engine that opens writes both; until then parameters are not known, and names with a slash are cells.
-- The rule NOT NULL is made again because newer servers name it after its column.

ALTER TABLE perdure.workflows ALTER COLUMN defaults DROP NOT NULL;
ALTER TABLE perdure.workflows RENAME COLUMN defaults TO parameters;
UPDATE perdure.workflows SET parameters = '';
ALTER TABLE perdure.workflows ALTER COLUMN parameters SET NOT NULL;
ALTER TABLE perdure.workflows ADD COLUMN policy text COLLATE "C" NOT NULL DEFAULT '';
UPDATE perdure.workflows SET policy = '{"noun":"cell","created":"message","place":"fixed","exact":true,"send":false,"retry":false,"rewind":false,"fork":false,"wake":false}' WHERE name LIKE '%/%';
