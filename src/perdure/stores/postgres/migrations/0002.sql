-- A lease has one time for all shards of an engine: that of its row in `engines`. And there is room on the pages of
-- snapshots for new versions of a row. Both stand in schema.sql, with the reasons.

ALTER TABLE perdure.shards DROP COLUMN expires;

ALTER TABLE perdure.snapshots SET (fillfactor = 70);
