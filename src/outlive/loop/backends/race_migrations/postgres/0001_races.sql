-- Races: what was asked for, and what was chosen. What came of it is in the logs of the contestants.

CREATE TABLE races (
    id         TEXT COLLATE "C" PRIMARY KEY,
    is_settled BOOLEAN NOT NULL,  -- nobody has anything left to do for it
    document   TEXT NOT NULL      -- JSON
);

CREATE INDEX races_unsettled ON races (id) WHERE NOT is_settled;
