-- Machines, what was done in them, what was saved of them, the nodes they are on and the environments they start from.
-- A record is whole in `doc` (JSON); beside it stands what is asked for.

CREATE TABLE machines (
    id           TEXT COLLATE "C" PRIMARY KEY,
    owner        TEXT NOT NULL,
    conversation TEXT,
    environment  TEXT NOT NULL,
    node         TEXT,
    state        TEXT NOT NULL,
    desired      TEXT NOT NULL,
    is_warm      BOOLEAN NOT NULL,
    generation   BIGINT NOT NULL,
    revision     BIGINT NOT NULL,
    origin       TEXT,
    checkpoint   TEXT,
    begun        BIGINT NOT NULL DEFAULT 0,  -- effects: the `n` of the newest: those who begin at once queue for it here
    doc          TEXT NOT NULL
) WITH (fillfactor = 60);  -- room for updates in place

CREATE INDEX machines_there ON machines (id) WHERE state <> 'deleted';
CREATE INDEX machines_conversation ON machines (conversation, id) WHERE conversation IS NOT NULL;
CREATE INDEX machines_node ON machines (node, id) WHERE node IS NOT NULL;
CREATE INDEX machines_warm ON machines (environment, id) WHERE is_warm;
CREATE INDEX machines_origin ON machines (origin) WHERE origin IS NOT NULL;
CREATE INDEX machines_checkpoint ON machines (checkpoint) WHERE checkpoint IS NOT NULL;

CREATE TABLE machine_events (
    machine TEXT NOT NULL,
    n       BIGINT NOT NULL,  -- dense, from 1
    doc     TEXT NOT NULL,
    PRIMARY KEY (machine, n)
);

CREATE TABLE effects (
    machine    TEXT NOT NULL,
    effect     TEXT NOT NULL,
    n          BIGINT NOT NULL,  -- dense, from 1: the order in which they were begun
    digest     TEXT COLLATE "C" NOT NULL,
    generation BIGINT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('started', 'finished', 'timeout', 'lost')),
    started_at TEXT NOT NULL,
    doc        TEXT,              -- null until it is over
    PRIMARY KEY (machine, effect),
    UNIQUE (machine, n)
);

CREATE TABLE nodes (
    id          TEXT COLLATE "C" PRIMARY KEY,
    lease_until TIMESTAMPTZ NOT NULL,
    doc         TEXT NOT NULL
);

CREATE TABLE checkpoints (
    id          TEXT COLLATE "C" PRIMARY KEY,
    machine     TEXT NOT NULL,
    parent      TEXT,
    state       TEXT NOT NULL CHECK (state IN ('making', 'ready', 'deleted')),
    deadline_at TEXT COLLATE "C" NOT NULL,
    doc         TEXT NOT NULL
);

CREATE INDEX checkpoints_machine ON checkpoints (machine, id);
CREATE INDEX checkpoints_there ON checkpoints (state, id) WHERE state <> 'deleted';

CREATE TABLE environments (
    digest     TEXT COLLATE "C" PRIMARY KEY,
    checkpoint TEXT,
    doc        TEXT NOT NULL
);

CREATE INDEX environments_checkpoint ON environments (checkpoint) WHERE checkpoint IS NOT NULL;

CREATE TABLE environment_names (
    name   TEXT COLLATE "C" PRIMARY KEY,
    digest TEXT COLLATE "C" NOT NULL
);

CREATE TABLE egress_decisions (
    machine    TEXT NOT NULL,
    n          BIGINT NOT NULL,  -- dense, from 1
    at         TEXT COLLATE "C" NOT NULL,
    connection BIGINT NOT NULL,
    verdict    TEXT NOT NULL,
    doc        TEXT NOT NULL,
    PRIMARY KEY (machine, n),
    UNIQUE (machine, at, connection, verdict)
);
