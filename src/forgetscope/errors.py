"""What can go wrong for a user, as types and as exit codes, and the environment variables that are read.

Each message says what, which value, and what to do next. The reference lists all of it from here, and a test finds any variable
that is not in `VARIABLES`."""

OWN_CODE = "It is your own code."  # in messages about what it raised

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

EXIT_CODES = {  # of every command
    0: "It was done, or there was nothing to do.",
    1: "Something went wrong on the way, steps of a plan failed, or damage was found. What was finished is kept.",
    2: "Something that was given is wrong, a command or option among it: nothing was started.",
    3: "Stopped on request; the same command continues.",
}


class ForgetscopeError(Exception):
    """Base of every error that this project raises on purpose; the command line prints it without a traceback."""

    exit_code = 1


class InputError(ForgetscopeError):
    """Something that was given is wrong; nothing was started."""

    exit_code = 2


class SpecError(InputError):
    """An option is unknown, out of range or contradicts another one."""


class DataError(InputError):
    """A data set is missing, unreadable or does not hold what its description promises."""


class DamagedData(DataError):
    """A converted data set's files no longer match their checksums."""


class StoreError(InputError):
    """A store cannot be read or written."""


class DamagedStep(StoreError):
    """A committed step's files no longer match their manifest."""

    def __init__(self, message: str, file: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.file, self.reason = file, reason


class DamagedPlan(StoreError):
    """What a store remembers of a plan cannot be read."""


class StateFreed(StoreError):
    """A step's state was freed to save space; its results are whole."""


class DamagedExport(ForgetscopeError):
    """A file of exported steps does not hold what its index promises."""


class WriteError(ForgetscopeError):
    """The disk refused; what was finished is kept."""


class OwnCodeFailed(ForgetscopeError):
    """A user's own policy or network raised something; that is the cause."""


class Diverged(ForgetscopeError):
    """Training produced a loss that is not a finite number; the step is kept as diverged, and nothing can build on it."""


class Interrupted(ForgetscopeError):
    """Stopped on request; the same command continues."""

    exit_code = 3
