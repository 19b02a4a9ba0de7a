# What an interactive bash in a terminal reads in place of ~/.bashrc, which it reads first. It adds marks to the output:
#
#   OSC 133;D;EXIT;id=PROMPT  the command is over          OSC 633;E;LINE  this line was entered
#   OSC 133;A;id=PROMPT       a prompt begins              OSC 133;C       it is carried out from here on
#   OSC 133;B;id=PROMPT       the prompt ends: type
#
# D, A and B are part of PS1, so they come whenever a prompt is shown and only then: lines that were pasted together have
# one D. A prompt that is drawn again has the same id. E and C are part of PS0, which is shown for every line that is
# carried out, and for no empty one. What PS1, PS0 and PROMPT_COMMAND hold beside that stays as the user has it; nothing
# is exported, no trap is set, and no line here can fail under `set -eu`.

if [ -r ~/.bashrc ]; then
    . ~/.bashrc
fi

__outlive_head='\[\e]133;D;$?;id=$__outlive_id\a\e]133;A;id=$__outlive_id\a\]'
__outlive_tail='\[\e]133;B;id=$__outlive_id\a\]'
__outlive_start='$(__outlive_line)\e]133;C\a'
__outlive_shell=$$.$RANDOM
__outlive_count=0
__outlive_id=
__outlive_history=0

# Before each prompt, after all that the user has there: number it, and put our marks around PS1 and into PS0 if they are
# not there, or not at the ends, since something was set anew (or something was put before it, as virtualenv does).
__outlive_prompt() {
    local prompt=${PS1-}
    __outlive_count=$((__outlive_count + 1))
    __outlive_id=$__outlive_shell.$__outlive_count
    __outlive_history=$HISTCMD
    if [[ $prompt != "$__outlive_head"*"$__outlive_tail" ]]; then
        prompt=${prompt//"$__outlive_head"/}
        PS1=$__outlive_head${prompt//"$__outlive_tail"/}$__outlive_tail
    fi
    if [[ ${PS0-} != *"$__outlive_start"* ]]; then
        PS0=${PS0-}$__outlive_start
    fi
}

# In a subshell, when a line was entered: say it, if it is in the history. One that is left out there (HISTCONTROL) is not
# said: it may be meant to be seen by nobody.
__outlive_line() {
    local number line
    line=$(HISTTIMEFORMAT= builtin history 1)
    line=${line#"${line%%[! ]*}"}
    number=${line%%[!0-9]*}
    if [[ -z $number || $number -lt $__outlive_history ]]; then
        return 0
    fi
    line=${line#"$number"}
    line=${line:2}
    line=${line:0:8192}
    line=${line//'\'/'\\'}
    line=${line//';'/'\x3b'}
    line=${line//$'\n'/'\x0a'}
    line=${line//[[:cntrl:]]/ }
    builtin printf '\e]633;E;%s\a' "$line"
}

if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
    : # without PS0 nobody could say when a command starts: no marks
elif [[ ${PROMPT_COMMAND+set} && ${PROMPT_COMMAND@a} == *a* && ${#PROMPT_COMMAND[@]} -gt 1 ]]; then
    PROMPT_COMMAND+=(__outlive_prompt)
else
    PROMPT_COMMAND=${PROMPT_COMMAND:+$PROMPT_COMMAND$'\n'}__outlive_prompt
fi
