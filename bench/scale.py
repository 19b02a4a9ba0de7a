"""How much each benchmark does: the full measure, and a quick one that only shows that everything runs."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Scale:
    is_quick: bool
    rounds: int
    append_rounds: int  # many and short: a disk may sync ten times slower for a second, and then not
    appends_one: int  # appends of one writer in a round
    appends_each: int  # appends of each of the 64 writers in a round
    writers: int
    catch_up_events: int
    followers: int
    fan_out_posts: int  # messages posted one by one in a round
    fan_out_burst: int  # events that a writer appends as fast as it can in a round
    latency_appends: int
    deltas: int
    steps: int
    idle_followers: int
    idle_s: float
    machine_rounds: int  # of starts, wakes and claims: half a second each
    machine_crowd_rounds: int
    machines_parallel: int
    exec_rounds: int
    execs: int  # in a round, one after the other
    checkpoint_rounds: int
    checkpoint_mib: int
    idle_machines: int
    terminal_rounds: int
    keys: int  # in a round, one after the other
    attaches: int  # in a round, one after the other
    output_mb: int  # to one observer
    crowd: int  # observers at once
    crowd_output_mb: int
    idle_terminals: int
    loop_warming: int  # turns before the first that counts: compilers of regular expressions, caches, pollers
    loop_turn_rounds: int
    first_delta_rounds: int
    first_deltas: int  # messages in a round, one after the other
    loop_crowds: tuple[int, ...]  # conversations at once
    loop_crowd_rounds: int
    loop_crowd_turns: int  # of all conversations together, but two of each at least
    batch_items: int
    waiting_turns: int
    waiting_s: float  # in which nothing happens
    subagent_rounds: int

    def with_rounds(self, rounds: int) -> "Scale":
        return replace(
            self,
            rounds=rounds,
            append_rounds=rounds,
            machine_rounds=rounds,
            machine_crowd_rounds=rounds,
            exec_rounds=rounds,
            checkpoint_rounds=rounds,
            terminal_rounds=rounds,
            loop_turn_rounds=rounds,
            first_delta_rounds=rounds,
            loop_crowd_rounds=rounds,
            subagent_rounds=rounds,
        )


FULL = Scale(
    is_quick=False,
    rounds=25,
    append_rounds=300,
    appends_one=25,
    appends_each=4,
    writers=64,
    catch_up_events=10_000,
    followers=200,
    fan_out_posts=100,
    fan_out_burst=2_000,
    latency_appends=500,
    deltas=1_000_000,
    steps=100,
    idle_followers=2_000,
    idle_s=10.0,
    machine_rounds=25,
    machine_crowd_rounds=7,
    machines_parallel=20,
    exec_rounds=40,
    execs=25,
    checkpoint_rounds=5,
    checkpoint_mib=300,
    idle_machines=5,
    terminal_rounds=15,
    keys=200,
    attaches=20,
    output_mb=50,
    crowd=50,
    crowd_output_mb=10,
    idle_terminals=100,
    loop_warming=10,
    loop_turn_rounds=100,
    first_delta_rounds=5,
    first_deltas=20,
    loop_crowds=(1, 4, 16, 64),
    loop_crowd_rounds=3,
    loop_crowd_turns=32,
    batch_items=160,
    waiting_turns=1_000,
    waiting_s=30.0,
    subagent_rounds=10,
)

QUICK = Scale(
    is_quick=True,
    rounds=1,
    append_rounds=1,
    appends_one=50,
    appends_each=4,
    writers=16,
    catch_up_events=300,
    followers=10,
    fan_out_posts=20,
    fan_out_burst=100,
    latency_appends=30,
    deltas=5_000,
    steps=5,
    idle_followers=40,
    idle_s=0.5,
    machine_rounds=1,
    machine_crowd_rounds=1,
    machines_parallel=3,
    exec_rounds=1,
    execs=10,
    checkpoint_rounds=1,
    checkpoint_mib=32,
    idle_machines=2,
    terminal_rounds=1,
    keys=20,
    attaches=3,
    output_mb=2,
    crowd=3,
    crowd_output_mb=1,
    idle_terminals=5,
    loop_warming=0,
    loop_turn_rounds=1,
    first_delta_rounds=1,
    first_deltas=2,
    loop_crowds=(1, 4),
    loop_crowd_rounds=1,
    loop_crowd_turns=2,
    batch_items=8,
    waiting_turns=10,
    waiting_s=0.5,
    subagent_rounds=1,
)
