-- Effects that were stopped before they began: no machine begins them, whichever the conversation has by then.
-- Forgotten when nobody can still be about to begin them.

CREATE TABLE used_up (
    effect TEXT PRIMARY KEY,
    at     TEXT NOT NULL
);

CREATE INDEX used_up_at ON used_up (at);
