-- Terminals of machines, and the pieces of their recordings in the object store. Records are whole in `doc`, as before.

CREATE TABLE terminals (
    id      TEXT COLLATE "C" PRIMARY KEY,
    machine TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,  -- what the guest calls it
    state   TEXT NOT NULL CHECK (state IN ('open', 'exited', 'closed', 'lost')),
    doc     TEXT NOT NULL,
    UNIQUE (machine, name)
) WITH (fillfactor = 60);  -- room for updates in place

CREATE TABLE terminal_segments (
    terminal     TEXT COLLATE "C" NOT NULL,
    n            BIGINT NOT NULL,  -- dense, from 1
    start_offset BIGINT NOT NULL,
    end_offset   BIGINT NOT NULL,
    doc          TEXT NOT NULL,
    PRIMARY KEY (terminal, n)
);
