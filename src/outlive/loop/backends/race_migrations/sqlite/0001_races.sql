-- Races: what was asked for, and what was chosen. What came of it is in the logs of the contestants.

CREATE TABLE races (
    id         TEXT PRIMARY KEY,
    is_settled INTEGER NOT NULL,  -- nobody has anything left to do for it
    document   TEXT NOT NULL      -- JSON
) WITHOUT ROWID;

CREATE INDEX races_unsettled ON races (id) WHERE NOT is_settled;
