-- The model that somebody wanted for a conversation since it was made (`model.changed`); NULL: that of `about`.

ALTER TABLE conversations ADD COLUMN model text;
