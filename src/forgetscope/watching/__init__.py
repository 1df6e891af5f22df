"""Steps that run, on a page in a browser: `forgetscope watch --page`.

`sight` is what can be seen of a store, looked at when somebody asks; `serving` answers whoever has the address, and nobody
else; `aside` is where what takes longer is done. Nothing is written, no lock is taken, and no torch is needed.
"""
