"""The SQL that both databases understand, with `?` for values; `numbered` writes it for PostgreSQL."""

from outlive.machine.backends.documents import EFFECT_COLUMNS, MACHINE_COLUMNS

_MARKS = ", ".join("?" * len(MACHINE_COLUMNS))

INSERT_MACHINE = (
    f"INSERT INTO machines ({', '.join(MACHINE_COLUMNS)}) VALUES ({_MARKS})"  # noqa: S608
    " ON CONFLICT (id) DO NOTHING RETURNING id"
)
SELECT_MACHINE = "SELECT doc FROM machines WHERE id = ?"
SELECT_MACHINES = "SELECT doc FROM machines WHERE {} ORDER BY id DESC LIMIT ?"
# One that is wanted away, that a person has stopped, or whose node has no lease any more is nobody's to take.
SELECT_WARM = """
SELECT doc FROM machines WHERE is_warm AND environment = ? AND state = 'running' AND desired = 'running'
AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = machines.node AND nodes.lease_until < {now})
ORDER BY machines.id LIMIT 1
"""
SELECT_CLAIMED = "SELECT doc FROM machines WHERE claimed_by = ?"
UPDATE_MACHINE = f"UPDATE machines SET ({', '.join(MACHINE_COLUMNS[1:])}) = ({_MARKS[3:]}) WHERE id = ?"  # noqa: S608
INSERT_EVENT = """
INSERT INTO machine_events (machine, n, doc)
SELECT m.id, (SELECT COALESCE(MAX(n), 0) + 1 FROM machine_events WHERE machine = m.id), ? FROM machines m WHERE m.id = ?
"""
SELECT_EVENTS = "SELECT n, doc FROM machine_events WHERE machine = ? AND n > ? ORDER BY n LIMIT ?"

SELECT_EFFECT = f"SELECT {EFFECT_COLUMNS} FROM effects WHERE machine = ? AND effect = ?"  # noqa: S608
SELECT_EFFECTS = f"SELECT {EFFECT_COLUMNS} FROM effects WHERE machine = ? AND n > ? ORDER BY n LIMIT ?"  # noqa: S608
SELECT_STARTED = f"SELECT {EFFECT_COLUMNS} FROM effects WHERE machine = ? AND n > ? AND state = 'started' ORDER BY n"  # noqa: S608
SELECT_MARK = "SELECT COALESCE(MAX(n), 0) FROM effects WHERE machine = ?"
SELECT_USED_UP = "SELECT 1 FROM used_up WHERE effect = ?"
FORGET_USED_UP = "DELETE FROM used_up WHERE at < ?"
USE_UP = "INSERT INTO used_up (effect, at) VALUES (?, ?) ON CONFLICT (effect) DO NOTHING"
INSERT_FORESTALLED = f"INSERT INTO effects ({EFFECT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
END_EFFECT = "UPDATE effects SET state = ?, doc = ? WHERE machine = ? AND effect = ? AND state = 'started'"

INSERT_CHECKPOINT = """
INSERT INTO checkpoints (id, machine, parent, state, deadline_at, doc) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING RETURNING id
"""
SELECT_CHECKPOINT = "SELECT doc FROM checkpoints WHERE id = ?"
UPDATE_CHECKPOINT = "UPDATE checkpoints SET state = ?, doc = ? WHERE id = ?"
SELECT_CHECKPOINT_STATE = "SELECT state FROM checkpoints WHERE id = ?"
SELECT_CHECKPOINTS = "SELECT doc FROM checkpoints WHERE machine = ? AND state <> 'deleted' ORDER BY id DESC"
SELECT_LIVING = "SELECT id, state FROM checkpoints WHERE state <> 'deleted'"
SELECT_ABANDONED = """
SELECT checkpoints.id FROM checkpoints JOIN machines ON machines.id = checkpoints.machine
WHERE checkpoints.state <> 'deleted' AND machines.state = 'deleted' ORDER BY checkpoints.id DESC
"""
SELECT_OVERDUE = "SELECT doc FROM checkpoints WHERE state = 'making' AND deadline_at < ? ORDER BY id"
# What a machine is born from is needed as long as the machine is: it may have nothing newer of its own.
SELECT_NEEDED = """
SELECT 1 WHERE EXISTS (SELECT 1 FROM machines WHERE checkpoint = ? AND state <> 'deleted')
OR EXISTS (SELECT 1 FROM machines WHERE origin = ? AND state <> 'deleted')
OR EXISTS (SELECT 1 FROM checkpoints WHERE parent = ? AND state = 'making')
OR EXISTS (SELECT 1 FROM environments WHERE checkpoint = ?)
"""

INSERT_ENVIRONMENT = """
INSERT INTO environments (digest, checkpoint, doc) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING RETURNING digest
"""
NAME_ENVIRONMENT = """
INSERT INTO environment_names (name, digest) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET digest = excluded.digest
"""
SELECT_ENVIRONMENT = "SELECT doc FROM environments WHERE digest = ?"
SELECT_NAMED_ENVIRONMENT = """
SELECT e.doc FROM environment_names n JOIN environments e ON e.digest = n.digest WHERE n.name = ?
"""
SELECT_ENVIRONMENTS = """
SELECT n.name, e.doc FROM environment_names n JOIN environments e ON e.digest = n.digest ORDER BY n.name
"""
UPDATE_ENVIRONMENT = "UPDATE environments SET checkpoint = ?, doc = ? WHERE digest = ?"
