-- The turns that are open: few among many conversations, and looked for again and again.

CREATE INDEX summaries_open ON summaries (key) WHERE turn IS NOT NULL;
