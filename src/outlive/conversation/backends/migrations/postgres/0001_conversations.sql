-- Conversations, their events and attempts, and the words to find them by.

CREATE TABLE conversations (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    about text NOT NULL, -- JSON: [agent, title, environment, model, metadata]
    parent_id text,
    parent_at bigint,
    first_seq bigint NOT NULL, -- of its own events: 1, or one more than parent_at
    created_by text NOT NULL,
    created_at text NOT NULL,
    archived_at text
);
CREATE INDEX conversations_archived ON conversations (id) WHERE archived_at IS NOT NULL;
CREATE INDEX conversations_active ON conversations (id) WHERE archived_at IS NULL;

-- What every append changes, apart from what it does not. Room in each page lets an update stay in it.
CREATE TABLE summaries (
    key bigint PRIMARY KEY,
    head bigint NOT NULL,
    state text NOT NULL,
    turn text,
    machine text,
    updated_at text NOT NULL
) WITH (fillfactor = 40);

-- The segments of the past that a fork shares, flattened: its ancestors' own events from first_seq to last_seq.
CREATE TABLE lineage (
    conversation bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    ancestor bigint NOT NULL,
    PRIMARY KEY (conversation, first_seq)
);
CREATE INDEX lineage_ancestor ON lineage (ancestor);

CREATE TABLE events (
    conversation bigint NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL,
    turn text,
    step text,
    attempt integer,
    type text NOT NULL,
    v integer NOT NULL,
    at text NOT NULL,
    actor text NOT NULL,
    data text NOT NULL, -- not jsonb: that cannot hold \u0000, and would not give back the text it was given
    blob text, -- where the payload is when it was too big; data is then empty
    batch text COLLATE "C", -- on the first event of a batch: its key ...
    batch_size integer, -- ... and how many events it has
    PRIMARY KEY (conversation, seq)
);
-- Keys of batches begin with ids, which grow with time: with them in front new entries lie side by side.
CREATE UNIQUE INDEX events_batch ON events (batch, conversation) WHERE batch IS NOT NULL;

-- One row per attempt of a step. Whatever is open when an attempt starts has started at or after its `floor`: so the
-- attempts open at any seq are found in one short range.
CREATE TABLE attempts (
    conversation bigint NOT NULL,
    start_seq bigint NOT NULL,
    floor bigint NOT NULL,
    step text COLLATE "C" NOT NULL,
    attempt integer NOT NULL,
    turn text,
    status text NOT NULL,
    end_seq bigint,
    PRIMARY KEY (conversation, start_seq)
);
CREATE UNIQUE INDEX attempts_step ON attempts (step, conversation, attempt);
CREATE INDEX attempts_open ON attempts (conversation, start_seq) WHERE end_seq IS NULL;

-- Words come in here folded and apart (see search.py); no parser and no dictionary decides about them again.
CREATE TABLE texts (
    conversation bigint NOT NULL,
    seq bigint NOT NULL,
    words tsvector NOT NULL
);
CREATE INDEX texts_words ON texts USING gin (words);
