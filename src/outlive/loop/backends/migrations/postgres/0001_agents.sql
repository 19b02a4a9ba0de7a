-- Versions of agents. A row is never changed; the newest version of a name counts.

CREATE TABLE agents (
    name       TEXT COLLATE "C" NOT NULL,
    version    INTEGER NOT NULL CHECK (version >= 1),
    is_builtin BOOLEAN NOT NULL,
    definition TEXT NOT NULL,  -- JSON
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (name, version)
);
