"""Which steps record one training, and which of them counts."""

from __future__ import annotations

from typing import Any

from forgetscope.spec import AugmentationSpec, RunSpec, step_id, step_specs
from forgetscope.store import Recording, counting, trainings

MEASURED_OTHERWISE: list[dict[str, Any]] = [
    *({"keepsake": "variance"}, {"forecast": True}, {"probe_images": 8}, {"probes": 2}, {"probe_every": 2}, {"probe_every": 0}),
    *({"all_layers_every": 1}, {"every_iteration": True}, {"released_nic": True}, {"method_interference": True}),
]
TRAINED_OTHERWISE: list[dict[str, Any]] = [{"seed": 1}, {"epochs": 5}, {"policy": "herding"}, {"draws": 1}, {"retention": 0.2}]


def recordings(committed: str = "2026-01-01", **options: Any) -> list[Recording]:
    run = RunSpec(**{"sequence": ((0, 1), (2, 3), (4, 5)), "epochs": 4, **options})
    found, parent = [], None
    for spec in step_specs(run, run.sequence or (), AugmentationSpec()):
        data = {"name": "toy", "shape": (8, 8), "digest": "digest"}
        id = step_id(parent, spec, "digest")
        info = {"parent": parent, "spec": spec.model_dump(mode="json"), "data": data, "network": run.network}
        found.append(Recording.of(id, {**info, "committed": committed}))
        parent = id
    return found


def test_what_is_measured_or_kept_beside_training_is_no_other_training() -> None:
    usual = recordings()
    for options in MEASURED_OTHERWISE:
        other = recordings(**options)
        named = trainings([*usual, *other])
        assert [named[one.id] for one in other] == [named[one.id] for one in usual], options
        assert len({named[one.id] for one in usual}) == 3


def test_what_is_trained_otherwise_is_another_one() -> None:
    usual = recordings()
    for options in TRAINED_OTHERWISE:
        other = recordings(**options)
        named = trainings([*usual, *other])
        assert named[usual[-1].id] != named[other[-1].id], options


def test_an_own_method_may_learn_from_keepsakes() -> None:
    plain, keeping = (recordings(method="mine:Method", keepsake=kept)[-1] for kept in ("none", "variance"))
    assert plain.setting != keeping.setting
    assert len(set(trainings([plain, keeping]).values())) == 2


def test_the_order_in_which_steps_come_makes_no_difference() -> None:
    every = [*recordings(), *recordings(forecast=True)]
    alike = [len(set(trainings(order).values())) for order in (every, every[::-1])]
    assert alike == [3, 3]
    assert counting(every) == counting(every[::-1])


def test_the_most_exact_recording_counts_then_the_last_then_the_first_by_id() -> None:
    usual, cheap, few = recordings(), recordings("2027-01-01", probe_images=8), recordings("2027-01-01", probes=2)
    unmeasured, predicted = recordings("2027-01-01", probe_every=0), recordings("2025-01-01", forecast=True)
    counts = counting([*usual, *cheap, *few, *unmeasured, *predicted], apart=False)
    assert {counts[one.id] for one in (usual[-1], cheap[-1], few[-1], unmeasured[-1])} == {predicted[-1].id}
    assert counting([*usual, *cheap, *few], apart=False)[few[-1].id] == usual[-1].id
    kept, kept_later = recordings(keepsake="variance"), recordings("2027-01-01", keepsake="covariance")
    assert counting([*kept, *kept_later])[kept[-1].id] == kept_later[-1].id
    kept_later = recordings(keepsake="covariance")
    assert counting([*kept, *kept_later])[kept[-1].id] == min(kept[-1].id, kept_later[-1].id)


def test_what_was_probed_otherwise_stays_apart_where_settings_do() -> None:
    usual, cheap, predicted = recordings(), recordings(probe_images=8), recordings(forecast=True)
    counts = counting([*usual, *cheap, *predicted])
    assert counts[cheap[-1].id] == cheap[-1].id
    assert counts[usual[-1].id] == predicted[-1].id
