-- Which operation took a machine out of a warm pool: the same operation, run again, finds the machine that it took.

ALTER TABLE machines ADD COLUMN claimed_by TEXT COLLATE "C";

CREATE UNIQUE INDEX machines_claimed ON machines (claimed_by) WHERE claimed_by IS NOT NULL;
