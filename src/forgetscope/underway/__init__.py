"""Steps that are under way, for whoever looks on: how far they are, and which past classes they are losing.

`progress` is what a running step says of itself, in its working folder; `running` finds all of a store, and leaves no trace;
`risk` is who is most at risk and why, from the probes so far. `foresight` is how much will have been forgotten in the end, by a
`regression` on what became of finished steps alike (`experience`), or by the model that ships (`shipped`). `alarms` are
conditions on all this, and `commands` what is run when one holds. No torch: a watcher is cheap, and may sit on another machine.
"""
