-- Terminals of machines, and the pieces of their recordings in the object store. Records are whole in `doc`, as before.

CREATE TABLE terminals (
    id      TEXT PRIMARY KEY,
    machine TEXT NOT NULL,
    name    TEXT NOT NULL,  -- what the guest calls it
    state   TEXT NOT NULL CHECK (state IN ('open', 'exited', 'closed', 'lost')),
    doc     TEXT NOT NULL,
    UNIQUE (machine, name)
) WITHOUT ROWID;

CREATE TABLE terminal_segments (
    terminal     TEXT NOT NULL,
    n            INTEGER NOT NULL,  -- dense, from 1
    start_offset INTEGER NOT NULL,
    end_offset   INTEGER NOT NULL,
    doc          TEXT NOT NULL,
    PRIMARY KEY (terminal, n)
) WITHOUT ROWID;
