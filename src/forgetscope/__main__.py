"""`python -m forgetscope`."""

from forgetscope.cli import main

main()
