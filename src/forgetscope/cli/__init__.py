"""The command line: parse, call the library, print.

`app` joins the commands and has the first ones; `bench`, `data` and `store` are groups; `comparisons`, `results` and
`ground_truth` are further commands, `watch` shows what runs, `words` explains what is in their tables, `observed` is what some
do with steps of a monitor. `options` are shared, `plans` is for commands that run one, `console` prints, `streams` mends the
standard streams.
"""


def main() -> None:
    """Entry point of the command `forgetscope`."""
    import gc
    import sys

    from forgetscope.cli.streams import mend_streams
    from forgetscope.errors import WriteError

    mend_streams()
    gc.set_threshold(50_000)  # records of steps are many small objects that all stay: looking for cycles among them is in vain
    arguments, option = sys.argv[1:], "--traceback"
    if option in arguments:  # wherever it stands
        arguments = [option, *(argument for argument in arguments if argument != option)]
    try:
        from forgetscope.cli.app import app

        app(arguments, prog_name="forgetscope")
    except WriteError as error:  # of help and version, which are printed outside the commands
        sys.exit(f"Error: {error}")
    except OSError as error:
        if "--install-completion" not in sys.argv:
            raise
        sys.exit(f"Error: Cannot install completion: {error}. `forgetscope --show-completion` prints what to install.")
    except ImportError as error:
        if "shared object" not in str(error):
            raise
        sys.exit(
            f"Error: Cannot load a library: {error}. Is there too little memory (`ulimit -v`), or is it not installed whole?"
        )
