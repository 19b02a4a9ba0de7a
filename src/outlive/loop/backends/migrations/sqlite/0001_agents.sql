-- Versions of agents. A row is never changed; the newest version of a name counts.

CREATE TABLE agents (
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL CHECK (version >= 1),
    is_builtin INTEGER NOT NULL,
    definition TEXT NOT NULL,  -- JSON
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (name, version)
) WITHOUT ROWID;
