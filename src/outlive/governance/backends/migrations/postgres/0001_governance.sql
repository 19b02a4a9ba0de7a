-- Who may ask, and what was asked under an idempotency key.

CREATE TABLE principals (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('person', 'agent', 'device', 'service')),
    is_owner   BOOLEAN NOT NULL DEFAULT FALSE,
    created_at TEXT NOT NULL
);

-- There is one owner.
CREATE UNIQUE INDEX principals_owner ON principals (is_owner) WHERE is_owner;

CREATE TABLE tokens (
    hash       BYTEA PRIMARY KEY,  -- SHA-256
    principal  TEXT NOT NULL REFERENCES principals (id),
    created_at TEXT NOT NULL
);

CREATE INDEX tokens_principal ON tokens (principal);

CREATE TABLE idempotency_keys (
    principal   TEXT NOT NULL,
    method      TEXT NOT NULL,
    path        TEXT NOT NULL,
    key         TEXT NOT NULL,
    request     BYTEA NOT NULL,    -- SHA-256 of the body
    operation   TEXT NOT NULL,
    holder      TEXT NOT NULL,     -- the claim that may record the answer
    lease_until BIGINT NOT NULL,   -- milliseconds since 1970
    created_at  BIGINT NOT NULL,   -- milliseconds since 1970
    status      INTEGER,           -- null until answered
    headers     TEXT,
    body        BYTEA,
    PRIMARY KEY (principal, method, path, key)
);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
