-- A cell that was woken leaves its state beside the entry that it was woken for: one page less that no other event shares.

ALTER TABLE perdure.journal ADD COLUMN snapshot bytea;
