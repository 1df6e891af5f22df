"""The learner: `networks` whose head grows, R-SGD (`rsgd`, with `sampling`), `methods` of other losses, what is rehearsed.

`policies` choose images of a class among `candidates`, as many as `budgets` say; `plugins` finds a user's own ones and
networks; `snapshots` let training go on bit for bit, where the `environment` is the same.
"""
