"""Are the verdicts on claims right? `make claims` asks every claim of stores in which it holds, in which its opposite holds,
and in which there is nothing to find.

`worlds` has these truths, `stores` draws from them in memory, and running the package prints the table of
docs/evidence/verdicts.md."""
