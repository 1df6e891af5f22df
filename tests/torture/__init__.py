"""Fault campaigns: the real command line is killed, torn, starved and crowded, and must end in the same bytes as if nothing
had happened.

    launcher.py   a warm process that forks one `forgetscope` command after another
    faults.py     what a command is made to suffer: crashes, errors, a full or a slow disk
    harness.py    starting commands, the undisturbed reference, comparing with it
    kills.py, crashes.py, damage.py, space.py, crowds.py, signals.py, edits.py, clusters.py      a campaign each, or two
    hostile.py    strangers' files: corpus.py makes them, mutations.py and garbling.py spoil them, repairs.py mends their
                  checksums, sandbox.py watches the command that reads them

`make torture` runs all of them at full size; `test_campaigns.py` runs them small.
"""
