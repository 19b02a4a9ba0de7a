-- Effects that were stopped before they began: no machine begins them, whichever the conversation has by then.

CREATE TABLE used_up (
    effect TEXT PRIMARY KEY,
    at     TEXT NOT NULL
);
