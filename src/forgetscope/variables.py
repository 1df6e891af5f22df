"""Environment variables that are read, and what each does: the reference lists them from here, and a test finds any other."""

CACHE = "FORGETSCOPE_CACHE"
TRACEBACK = "FORGETSCOPE_TRACEBACK"
SPINCOUNT, WAIT_POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
PYTHONPATH = "PYTHONPATH"

VARIABLES = {
    CACHE: "Folder of converted data sets, downloads and what analyses remember. Not set: the user's cache, by the rules of "
    "the system (on Linux `$XDG_CACHE_HOME/forgetscope` or `~/.cache/forgetscope`).",
    TRACEBACK: "Set to anything, errors are shown with all that led to them, as with `--traceback`; workers see it too.",
    SPINCOUNT: "How long OpenMP's threads spin while they wait for each other. Not set, nor `OMP_WAIT_POLICY`: 500, so that "
    "threads give way to a busy neighbour. Above 500, and unless the policy is `passive`, one core less is used by default.",
    WAIT_POLICY: "`passive`: OpenMP's threads sleep while they wait. Set to anything, `GOMP_SPINCOUNT` is left alone.",
    PYTHONPATH: "Where your own networks, policies and methods are found, beside the working folder; Ray's workers get it too.",
    "COLUMNS": "Width of tables and prose, of a pipe or file as well. Not set: that of the terminal.",
    "CXX": "The C++ compiler that `--compile` asks for before it begins. Not set: `c++`.",
    "RAY_USAGE_STATS_ENABLED": "Whether Ray reports what is run to its makers. Not set: it does not.",
}
PASSED_ON = (CACHE, TRACEBACK, SPINCOUNT, WAIT_POLICY, PYTHONPATH)  # to workers elsewhere, where set here
