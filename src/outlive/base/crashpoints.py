"""Named places where a test may kill the process, as a power cut would: no cleanup, no last word.

A point does nothing unless the environment arms it: `OUTLIVE_CRASH_AT=log.before_commit` kills at the first visit,
`log.before_commit:3` at the third. For processes that are started again with the same environment there is
`OUTLIVE_CRASH_FOLDER`: a file there that is named like a point kills once; whoever dies of it has removed it. A number
in the file is the process that is killed, in place of the one that came by. Each point has a crash test
(`tests/style/test_crashpoints.py` counts them).
"""

import os
import signal
from contextlib import suppress
from enum import StrEnum


class CrashPoint(StrEnum):
    BLOB_BEFORE_PUT = "blob.before_put"
    BLOB_AFTER_PUT = "blob.after_put"  # the blob is stored, the event that names it is not
    LOG_BEFORE_COMMIT = "log.before_commit"
    LOG_AFTER_COMMIT = "log.after_commit"  # durable, but nobody was told
    FEED_BEFORE_PUBLISH = "feed.before_publish"  # appended and acknowledged inside, followers not told
    FEED_AFTER_PUBLISH = "feed.after_publish"
    STEP_AFTER_START = "step.after_start"
    STEP_AFTER_DELTA = "step.after_delta"
    STEP_BEFORE_SEAL = "step.before_seal"
    API_AFTER_CLAIM = "api.after_claim"  # the idempotency key is taken, nothing is done yet
    API_BEFORE_RECORD = "api.before_record"  # done, but the answer is not recorded under the key
    API_BEFORE_ANSWER = "api.before_answer"  # recorded, not sent
    MIGRATE_BEFORE_COMMIT = "migrate.before_commit"
    ENDPOINT_BEFORE_RENAME = "endpoint.before_rename"
    EXEC_AFTER_BEGIN = "exec.after_begin"  # the journal says that it begins; the guest was not told
    EXEC_AFTER_START = "exec.after_start"  # it runs; nobody follows it
    EXEC_BEFORE_RECORD = "exec.before_record"  # it is over; the journal does not say so
    EXEC_AFTER_RECORD = "exec.after_record"  # recorded, not answered
    UP_AFTER_BEGIN = "up.after_begin"  # a new generation is begun, nothing is made yet
    UP_AFTER_PREPARE = "up.after_prepare"  # disk and directories are there, nothing runs
    UP_AFTER_START = "up.after_start"  # the sandbox runs, the record says that it is being made
    UP_AFTER_RECORD = "up.after_record"  # up and recorded, nobody was told
    CHECKPOINT_AFTER_IMAGE = "checkpoint.after_image"  # paused, its memory is on disk
    CHECKPOINT_AFTER_STORE = "checkpoint.after_store"  # stored, not verified
    CHECKPOINT_AFTER_READY = "checkpoint.after_ready"  # verified and ready, the machine's record does not name it
    HIBERNATE_BEFORE_RECORD = "hibernate.before_record"
    HIBERNATE_AFTER_RECORD = "hibernate.after_record"  # hibernated, its sandbox is still here
    TERMINAL_AFTER_OPEN = "terminal.after_open"  # the guest has it, the records do not
    TERMINAL_AFTER_JOURNAL = "terminal.after_journal"  # what was typed is in the journal, the guest was not told
    TERMINAL_AFTER_LEASE = "terminal.after_lease"  # the record says who holds it, nobody was told
    RECORDING_AFTER_PUT = "recording.after_put"  # a segment is in the object store, the index does not know it
    TURN_AFTER_SUBMIT = "turn.after_submit"  # a turn's run has begun, and has not looked into the log
    TURN_AFTER_PLAN = "turn.after_plan"  # the turn has begun in the log, the workflow does not know
    MODEL_BEFORE_CALL = "model.before_call"  # the attempt has started, the provider was not asked
    MODEL_AFTER_FIRST_DELTA = "model.after_first_delta"
    MODEL_BEFORE_SEAL = "model.before_seal"  # the answer is bought, and not in the log
    MODEL_AFTER_SEAL = "model.after_seal"  # sealed; the workflow does not know
    MODEL_AFTER_FALLBACK = "model.after_fallback"  # the log says that another one is asked; nobody has asked it
    COMPACTION_AFTER_REQUEST = "compaction.after_request"  # asked for in the log; the workflow does not know
    COMPACTION_BEFORE_SEAL = "compaction.before_seal"  # the summary is bought, and not in the log
    COMPACTION_AFTER_SEAL = "compaction.after_seal"  # sealed; the workflow does not know
    TOOL_AFTER_REQUEST = "tool.after_request"  # requested in the log, not begun
    TOOL_BEFORE_SEAL = "tool.before_seal"  # done, and not in the log
    TOOL_AFTER_SEAL = "tool.after_seal"
    APPROVAL_AFTER_REQUEST = "approval.after_request"  # a person is asked; nobody knows, and nothing is parked
    TURN_AFTER_PARK = "turn.after_park"  # parked in the log; the machine is up, nobody was told of the question
    TURN_AFTER_REST = "turn.after_rest"  # the machine sleeps; the workflow does not know
    APPROVAL_AFTER_DECISION = "approval.after_decision"  # decided in the log, the loop was not told
    TURN_AFTER_STEERING = "turn.after_steering"  # paused or resumed in the log, the loop was not told
    WEBHOOK_AFTER_POST = "webhook.after_post"  # the receiver has it, Temporal does not know
    SUBAGENT_AFTER_CHILD = "subagent.after_child"  # made, its turn is open; its parent's log does not say so
    SUBAGENT_AFTER_START = "subagent.after_start"  # both logs say so, the loop was not told
    SUBAGENT_BEFORE_TELL = "subagent.before_tell"  # its turn is over, its parent's log does not say so
    TURN_BEFORE_END = "turn.before_end"
    TURN_AFTER_END = "turn.after_end"  # over in the log, the workflow does not know
    FORK_AFTER_CONVERSATION = "fork.after_conversation"  # the fork is in the catalog, it has no machine
    FORK_AFTER_MACHINE = "fork.after_machine"  # its machine is up, its log does not say so
    RACE_AFTER_RECORD = "race.after_record"  # what is wanted is written, nothing is made
    RACE_AFTER_FORK = "race.after_fork"  # a contestant has its machine, and was not given the prompt
    RACE_AFTER_CHOICE = "race.after_choice"  # one is chosen, the others are all there
    RACE_AFTER_STOP = "race.after_stop"  # a loser is archived and stopped, its machine is there
    REMOVE_AFTER_DESTROY = "remove.after_destroy"  # the sandbox is gone, the record is not


_VARIABLE = "OUTLIVE_CRASH_AT"
_FOLDER_VARIABLE = "OUTLIVE_CRASH_FOLDER"
_armed, _, _count = os.environ.get(_VARIABLE, "").partition(":")
_visits_left = int(_count or 1)
_folder = os.environ.get(_FOLDER_VARIABLE)


def reach(point: CrashPoint) -> None:
    """Die here if this point is armed."""
    global _visits_left
    if point == _armed:
        _visits_left -= 1
        if _visits_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
    if _folder is not None:
        _fall_into_trap(f"{_folder}/{point}")


def _fall_into_trap(path: str) -> None:
    taken = f"{path}.{os.getpid()}"
    try:
        os.rename(path, taken)  # of several who come by at once, one takes it
    except FileNotFoundError:
        return
    with open(taken, encoding="ascii") as file:
        named = file.read().strip()
    os.unlink(taken)
    with suppress(ProcessLookupError):
        os.kill(int(named or os.getpid()), signal.SIGKILL)
