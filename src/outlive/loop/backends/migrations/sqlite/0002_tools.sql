-- Tools that users' workers have. A queue's rows are replaced as a whole when its worker offers them.

CREATE TABLE tool_offers (
    name       TEXT NOT NULL PRIMARY KEY,
    queue      TEXT NOT NULL,
    version    INTEGER NOT NULL CHECK (version >= 1),
    definition TEXT NOT NULL,  -- JSON
    offered_at TEXT NOT NULL,
    seen_at    TEXT NOT NULL
) WITHOUT ROWID;
