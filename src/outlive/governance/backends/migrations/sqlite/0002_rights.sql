-- What each principal may do, names that are unique among the living, and those that were deleted.

ALTER TABLE principals ADD COLUMN rights TEXT NOT NULL DEFAULT '';  -- words with a space between them
ALTER TABLE principals ADD COLUMN name_key TEXT;                    -- what is unique of the name
ALTER TABLE principals ADD COLUMN deleted_at TEXT;

UPDATE principals SET
    name_key = lower(name),
    rights = CASE
        WHEN is_owner = 1 THEN 'observe type take admin'
        WHEN kind = 'person' THEN 'observe type take'
        ELSE 'observe type'
    END;

CREATE UNIQUE INDEX principals_name ON principals (name_key) WHERE deleted_at IS NULL;
