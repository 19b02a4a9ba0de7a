-- Who may ask, and what was asked under an idempotency key.

CREATE TABLE principals (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('person', 'agent', 'device', 'service')),
    is_owner   INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL
) WITHOUT ROWID;

-- There is one owner.
CREATE UNIQUE INDEX principals_owner ON principals (is_owner) WHERE is_owner = 1;

CREATE TABLE tokens (
    hash       BLOB PRIMARY KEY,  -- SHA-256
    principal  TEXT NOT NULL REFERENCES principals (id),
    created_at TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX tokens_principal ON tokens (principal);

CREATE TABLE idempotency_keys (
    principal   TEXT NOT NULL,
    method      TEXT NOT NULL,
    path        TEXT NOT NULL,
    key         TEXT NOT NULL,
    request     BLOB NOT NULL,     -- SHA-256 of the body
    operation   TEXT NOT NULL,
    holder      TEXT NOT NULL,     -- the claim that may record the answer
    lease_until INTEGER NOT NULL,  -- milliseconds since 1970
    created_at  INTEGER NOT NULL,  -- milliseconds since 1970
    status      INTEGER,           -- null until answered
    headers     TEXT,
    body        BLOB,
    PRIMARY KEY (principal, method, path, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
