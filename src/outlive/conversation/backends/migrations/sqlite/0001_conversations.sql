-- Conversations, their events and attempts, and the words to find them by.
--
-- `place` is a conversation's key and an event's seq in one number: key << 32 | seq. So all events live in one
-- clustered tree, those of one conversation side by side and in order, with no second index.

CREATE TABLE conversations (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    about TEXT NOT NULL, -- JSON: [agent, title, environment, model, metadata]
    parent_id TEXT,
    parent_at INTEGER,
    first_seq INTEGER NOT NULL, -- of its own events: 1, or one more than parent_at
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    archived_at TEXT
);
CREATE INDEX conversations_archived ON conversations (id) WHERE archived_at IS NOT NULL;
CREATE INDEX conversations_active ON conversations (id) WHERE archived_at IS NULL;

-- What some appends change. The head and the time of the last change are those of the newest event, and kept only
-- there: an append that changes nothing else touches no row but its own.
CREATE TABLE summaries (
    key INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    turn TEXT,
    machine TEXT
);

-- The segments of the past that a fork shares, flattened: its ancestors' own events from first_seq to last_seq.
CREATE TABLE lineage (
    conversation INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    ancestor INTEGER NOT NULL,
    PRIMARY KEY (conversation, first_seq)
) WITHOUT ROWID;
CREATE INDEX lineage_ancestor ON lineage (ancestor);

CREATE TABLE events (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    turn TEXT,
    step TEXT,
    attempt INTEGER,
    type TEXT NOT NULL,
    v INTEGER NOT NULL,
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    data TEXT NOT NULL,
    blob TEXT, -- where the payload is when it was too big; data is then empty
    batch TEXT, -- on the first event of a batch: its key ...
    batch_size INTEGER -- ... and how many events it has
);
-- Keys of batches begin with ids, which grow with time. With them in front new entries lie side by side, whatever
-- conversations they are of, and a transaction with many appends touches few pages of the index.
CREATE UNIQUE INDEX events_batch ON events (batch, place >> 32) WHERE batch IS NOT NULL;

-- One row per attempt of a step; its key is the place of its step.started. Whatever is open when an attempt starts has
-- started at or after its `floor`: so the attempts open at any seq are found in one short range.
CREATE TABLE attempts (
    start INTEGER PRIMARY KEY,
    floor INTEGER NOT NULL,
    step TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    turn TEXT,
    status TEXT NOT NULL,
    end_seq INTEGER
);
CREATE UNIQUE INDEX attempts_step ON attempts (step, start >> 32, attempt);
CREATE INDEX attempts_open ON attempts (start) WHERE end_seq IS NULL;

-- Words come in here folded and apart (see search.py), so the tokenizer has nothing left to decide. A transaction that
-- adds to the index rewrites half a dozen pages of it: so that is done for a hundred texts at once, or when somebody
-- searches. Until then `unindexed` says from which event on a conversation is not in the index.
CREATE VIRTUAL TABLE texts USING fts5 (words, content='', columnsize=0, detail=none, tokenize='ascii');
CREATE TABLE unindexed (
    conversation INTEGER PRIMARY KEY,
    from_seq INTEGER NOT NULL
);
