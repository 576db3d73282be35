-- A start by name is checked against the parameters of its workflow. The next engine that opens writes them; until then
-- they are not known. The rule NOT NULL is made again because newer servers name it after its column.

ALTER TABLE perdure.workflows ALTER COLUMN defaults DROP NOT NULL;
ALTER TABLE perdure.workflows RENAME COLUMN defaults TO parameters;
UPDATE perdure.workflows SET parameters = '';
ALTER TABLE perdure.workflows ALTER COLUMN parameters SET NOT NULL;
