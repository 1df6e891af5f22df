"""Where and how a plan's steps are run: in this process (`here`), in others of this machine (`local`), or on a cluster (`ray`).

`running` leads from what is wanted to a full store; `work` is what every engine takes, `queue` and `dispatch` what comes next
and what is told, `executor` runs one job and `worker` is the process around it.
"""
