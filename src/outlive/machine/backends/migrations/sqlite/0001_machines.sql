-- Machines, what was done in them, what was saved of them, the nodes they are on and the environments they start from.
-- A record is whole in `doc` (JSON); beside it stands what is asked for.

CREATE TABLE machines (
    id           TEXT PRIMARY KEY,
    owner        TEXT NOT NULL,
    conversation TEXT,
    environment  TEXT NOT NULL,
    node         TEXT,
    state        TEXT NOT NULL,
    desired      TEXT NOT NULL,
    is_warm      INTEGER NOT NULL,
    generation   INTEGER NOT NULL,
    revision     INTEGER NOT NULL,
    origin       TEXT,
    checkpoint   TEXT,
    doc          TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX machines_there ON machines (id) WHERE state <> 'deleted';
CREATE INDEX machines_conversation ON machines (conversation, id) WHERE conversation IS NOT NULL;
CREATE INDEX machines_node ON machines (node, id) WHERE node IS NOT NULL;
CREATE INDEX machines_warm ON machines (environment, id) WHERE is_warm;
CREATE INDEX machines_origin ON machines (origin) WHERE origin IS NOT NULL;
CREATE INDEX machines_checkpoint ON machines (checkpoint) WHERE checkpoint IS NOT NULL;

CREATE TABLE machine_events (
    machine TEXT NOT NULL,
    n       INTEGER NOT NULL,  -- dense, from 1
    doc     TEXT NOT NULL,
    PRIMARY KEY (machine, n)
) WITHOUT ROWID;

CREATE TABLE effects (
    machine    TEXT NOT NULL,
    effect     TEXT NOT NULL,
    n          INTEGER NOT NULL,  -- dense, from 1: the order in which they were begun
    digest     TEXT NOT NULL,
    generation INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('started', 'finished', 'timeout', 'lost')),
    started_at TEXT NOT NULL,
    doc        TEXT,              -- null until it is over
    PRIMARY KEY (machine, effect),
    UNIQUE (machine, n)
) WITHOUT ROWID;

CREATE TABLE nodes (
    id          TEXT PRIMARY KEY,
    lease_until TEXT NOT NULL,
    doc         TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE checkpoints (
    id          TEXT PRIMARY KEY,
    machine     TEXT NOT NULL,
    parent      TEXT,
    state       TEXT NOT NULL CHECK (state IN ('making', 'ready', 'deleted')),
    deadline_at TEXT NOT NULL,
    doc         TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX checkpoints_machine ON checkpoints (machine, id);
CREATE INDEX checkpoints_there ON checkpoints (state, id) WHERE state <> 'deleted';

CREATE TABLE environments (
    digest     TEXT PRIMARY KEY,
    checkpoint TEXT,
    doc        TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX environments_checkpoint ON environments (checkpoint) WHERE checkpoint IS NOT NULL;

CREATE TABLE environment_names (
    name   TEXT PRIMARY KEY,
    digest TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE egress_decisions (
    machine    TEXT NOT NULL,
    n          INTEGER NOT NULL,  -- dense, from 1
    at         TEXT NOT NULL,
    connection INTEGER NOT NULL,
    verdict    TEXT NOT NULL,
    doc        TEXT NOT NULL,
    PRIMARY KEY (machine, n),
    UNIQUE (machine, at, connection, verdict)
) WITHOUT ROWID;
