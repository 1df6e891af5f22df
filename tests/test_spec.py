from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from forgetscope.choices import canonical_method
from forgetscope.errors import SpecError
from forgetscope.options import parse_setting
from forgetscope.spec import AugmentationSpec, RunSpec, step_id, step_specs

GROUPS = ((0, 1), (2, 3), (4, 5))


def ids(run: RunSpec, groups: tuple[tuple[int, ...], ...] = GROUPS, data: str = "d") -> list[str]:
    found: list[str] = []
    for spec in step_specs(run, groups, AugmentationSpec()):
        found.append(step_id(found[-1] if found else None, spec, data))
    return found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retentoin": 0.1}, r"no option 'retentoin'. Did you mean 'retention'\?"),
        ({"retention": 0}, r"retention = 0 is not valid: it should be greater than 0"),
        ({"retention": 1.2}, r"retention = 1.2 is not valid: it should be less than or equal to 1"),
        ({"epochs": 2.5}, r"epochs = 2.5 is not valid"),
        ({"epochs": True}, r"epochs = True is not valid"),
        ({"policy": "unifrom"}, r"policy = 'unifrom' is not known. Did you mean 'uniform'\?"),
        ({"method": "distilation"}, r"method = 'distilation' is not known. Did you mean 'distillation'\?"),
        ({"method": "distillation(wieght=1)"}, r"there is no option 'wieght' of distillation. Did you mean 'weight'\?"),
        ({"method": "ace(weight=1)"}, r"method = 'ace\(weight=1\)': there is no option 'weight' of ace. ace has no options"),
        ({"method": "dark-logits(weight=high)"}, r"'weight=high' is not of the form option=number"),
        ({"method": "distillation(temperature=0)"}, r"temperature=0 is not valid: it should be positive"),
        ({"method": "dark-logits(weight=-1)"}, r"weight=-1 is not valid: it should be positive"),
        ({"method": "ace(("}, r"method = 'ace\(\(' is not known"),
        ({"learning_rate": float("nan")}, r"learning_rate = nan is not valid"),
        ({"sequence": [[0]], "steps": 2}, r"sequence and steps exclude each other"),
        ({"alpha": 0.3}, r"0.3 \* 128 = 38.4 .* Nearest alpha: 0.296875 or 0.304688; nearest batch for this alpha: \d+"),
    ],
)
def test_wrong_options_are_refused_with_value_and_remedy(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        RunSpec(**options)


def test_suggested_batches_are_valid() -> None:
    for alpha, batch in ((0.3, 127), (0.25, 127), (0.7, 127), (1 / 3, 127), (0.35, 10)):
        with pytest.raises(SpecError) as caught:
            RunSpec(alpha=alpha, batch=batch)
        suggested = str(caught.value).rsplit(": ", 1)[1].rstrip(".").split(" or ")
        for other in suggested:
            assert RunSpec(alpha=alpha, batch=int(other)).batch == int(other)


def test_an_alpha_that_no_batch_suits_gets_no_suggestion_of_one() -> None:
    with pytest.raises(SpecError, match=r"Nearest alpha: 0.1 or 0.2\.$"):
        RunSpec(alpha=0.123456789, batch=10)


def test_a_spec_survives_toml() -> None:
    run = RunSpec(seed=4, sequence=[[0, 1], [2]], flip=True, brightness=0.2)
    assert RunSpec(**tomllib.loads(run.to_toml())) == run


def test_the_commented_config_names_every_option_and_is_valid() -> None:
    text = RunSpec().to_toml(comments=True)
    assert RunSpec(**tomllib.loads(text)) == RunSpec()
    for name, field in RunSpec.model_fields.items():
        assert f"{name} =" in text
        assert field.description
        assert field.description in text


def test_an_unreadable_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"Cannot read .*none.toml"):
        RunSpec.from_toml(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("epochs = = 3")
    with pytest.raises(SpecError, match=r"Cannot read .*broken.toml"):
        RunSpec.from_toml(broken)


def test_settings_from_the_command_line() -> None:
    assert parse_setting("epochs=5") == ("epochs", 5)
    assert parse_setting("network=resnet20") == ("network", "resnet20")
    assert parse_setting("sequence=[[0], [1]]") == ("sequence", [[0], [1]])
    with pytest.raises(SpecError, match="'epochs' is not of the form key=value"):
        parse_setting("epochs")


def test_a_first_step_is_shared_by_all_policies_and_retention_rates() -> None:
    few, many = ids(RunSpec(retention=0.08)), ids(RunSpec(retention=0.4, alpha=0.25, probe_every=0, batch=64))
    assert few[0] == many[0]
    assert few[1] != many[1]


def test_later_steps_do_not_change_an_id() -> None:
    assert ids(RunSpec(), GROUPS[:2]) == ids(RunSpec())[:2]


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"epochs": 3}, {"network": "resnet20"}, {"learning_rate": 0.2}, {"crop": 2}, {"first_batch": 32}]
)
def test_whatever_changes_numbers_changes_the_first_id(change: dict[str, object]) -> None:
    assert ids(RunSpec())[0] != ids(RunSpec(**change))[0]


def test_data_and_parent_change_an_id() -> None:
    assert ids(RunSpec(), data="other")[0] != ids(RunSpec())[0]
    assert ids(RunSpec(), ((0, 6), *GROUPS[1:]))[1] != ids(RunSpec())[1]


def test_the_order_of_classes_within_a_step_is_not_identity() -> None:
    assert ids(RunSpec(), ((1, 0), *GROUPS[1:])) == ids(RunSpec())


def test_a_run_s_own_augmentation_wins_over_the_data_set_s() -> None:
    (spec,) = step_specs(RunSpec(crop=3), ((0,),), AugmentationSpec(crop=1, flip=True, brightness=0.5))
    assert spec.training.augmentation == AugmentationSpec(crop=3, flip=True, brightness=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 100, "retention": 0.1}, "memory and retention exclude each other"),
        ({"memory_bytes": 100, "retention": 0.1}, "memory_bytes and retention exclude each other: both say how much is kept"),
        ({"memory": 100, "memory_bytes": 100}, "memory and memory_bytes exclude each other: .* Remove one of them"),
        ({"memory_bytes": 0}, "memory_bytes = 0 is not valid"),
        ({"memory_bytes": 9, "method": "joint"}, "memory_bytes = 9: method = 'joint' trains on all .* Leave memory_bytes out"),
        ({"memory_bytes": 9, "calibration": "bias-correction", "validation": 0.1}, "memory_bytes = 9: .* use memory in place"),
        ({"quota": "neumann"}, r"quota = 'neumann' is not known. Did you mean 'neyman'\?"),
        ({"memory": 0}, "memory = 0 is not valid"),
        ({"alpha": [0.5, 0.25], "steps": 2}, "alpha has 2 values for 1 step with rehearsal"),
        ({"alpha": [0.5, 0.3]}, r"0.3 \* 128 = 38.4 rehearsal images"),
        ({"alpha": 1.5}, r"^alpha = 1.5 is not valid: it should be less than 1.$"),
        ({"sampling": "shuffled"}, r"sampling = 'shuffled' is not known. Did you mean 'reshuffled'\?"),
        ({"validation": 0.7}, "validation = 0.7 is not valid"),
        ({"policy": "no such:thing"}, "policy = 'no such:thing' is not known"),
    ],
)
def test_wrong_variants_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        RunSpec(**options)


def test_each_step_has_its_own_alpha() -> None:
    specs = step_specs(RunSpec(alpha=[0.5, 0.25]), GROUPS, AugmentationSpec())
    assert [spec.rehearsal.alpha for spec in specs[1:] if spec.rehearsal] == [0.5, 0.25]
    assert ids(RunSpec(alpha=[0.5, 0.25]))[:2] == ids(RunSpec())[:2]


def test_variants_are_named_in_the_record_and_change_the_id_of_what_they_change() -> None:
    for change in ({"memory": 64}, {"policy": "herding"}):
        assert ids(RunSpec(**change))[0] == ids(RunSpec())[0]
        assert ids(RunSpec(**change))[1] != ids(RunSpec())[1]
    for change in ({"sampling": "reshuffled"}, {"validation": 0.1}):
        assert ids(RunSpec(**change))[0] != ids(RunSpec())[0]
    spec = step_specs(RunSpec(memory=64, sampling="reshuffled", validation=0.1), GROUPS, AugmentationSpec())[1]
    assert spec.rehearsal is not None
    assert (spec.rehearsal.memory, spec.rehearsal.retention) == (64, None)
    assert (spec.training.sampling, spec.training.validation) == ("reshuffled", 0.1)


def test_a_user_s_code_is_part_of_the_identity() -> None:
    run = RunSpec(policy="mine:choose", network="mine:build")
    digests = (("1", "1"), ("2", "1"), ("1", "2"))
    versions = [step_specs(run, GROUPS, AugmentationSpec(), {"mine:choose": a, "mine:build": b}) for a, b in digests]
    first = [step_id(None, specs[0], "d") for specs in versions]
    second = [step_id("parent", specs[1], "d") for specs in versions]
    assert first[0] == first[1] != first[2]  # a network counts from the first step
    assert second[0] == second[2] != second[1]  # a policy from the second


def test_a_memory_survives_toml() -> None:
    run = RunSpec(memory=200, alpha=[0.5, 0.25])
    assert RunSpec(**tomllib.loads(run.to_toml())) == run


@pytest.mark.parametrize("options", [{"memory_bytes": 5000}, {"quota": "neyman"}, {"memory_bytes": 5000, "quota": "neyman"}])
def test_quotas_and_bytes_survive_toml_and_are_of_later_steps_alone(options: dict[str, object]) -> None:
    run = RunSpec(**options)
    assert RunSpec(**tomllib.loads(run.to_toml())) == run
    assert ids(run)[0] == ids(RunSpec())[0]
    assert not {*ids(run)[1:]} & {*ids(RunSpec())[1:]}
    spec = step_specs(run, GROUPS, AugmentationSpec())[1].rehearsal
    assert spec is not None
    assert (spec.memory_bytes, spec.quota) == (options.get("memory_bytes"), options.get("quota"))
    assert (spec.retention is None) == ("memory_bytes" in options)


def test_a_balanced_quota_is_absent_from_a_step() -> None:
    assert ids(RunSpec(quota="balanced")) == ids(RunSpec())
    (_, second, _) = step_specs(RunSpec(), GROUPS, AugmentationSpec())
    assert not {"quota", "memory_bytes"} & second.model_dump(exclude_none=True)["rehearsal"].keys()


def test_a_forecast_implies_keepsakes_and_needs_probes() -> None:
    assert RunSpec(forecast=True).keepsake == "variance"
    assert RunSpec(forecast=True, keepsake="none").keepsake == "variance"
    assert RunSpec(forecast=True, keepsake="covariance").keepsake == "covariance"
    with pytest.raises(SpecError, match="forecast is measured beside the probes, and probe_every = 0 takes none"):
        RunSpec(forecast=True, probe_every=0)
    with pytest.raises(SpecError, match="forecast = 1 is not valid"):
        RunSpec(forecast=1)
    run = RunSpec(forecast=True)
    assert RunSpec(**tomllib.loads(run.to_toml())) == run


def test_a_forecast_is_part_of_later_steps_alone() -> None:
    assert ids(RunSpec(forecast=False)) == ids(RunSpec())
    assert ids(RunSpec(forecast=True))[0] == ids(RunSpec())[0]
    assert len({ids(RunSpec(**options))[1] for options in ({}, {"keepsake": "variance"}, {"forecast": True})}) == 3
    assert ids(RunSpec(forecast=True)) == ids(RunSpec(forecast=True, keepsake="variance"))


def test_a_method_changes_later_steps_alone_and_has_one_form() -> None:
    usual = ids(RunSpec())
    assert ids(RunSpec(method="replay")) == usual
    assert usual == [  # of before there were methods
        "8bcdf57643c3c988bd9bfcee575ec08d",
        "e31942115e3370714f425c52cfb696a5",
        "94b585bd0ea3984cb3850626cb368ab5",
    ]
    distilled = ids(RunSpec(method="distillation"))
    assert distilled[0] == usual[0]
    assert not {*distilled[1:]} & {*usual[1:]}
    assert ids(RunSpec(method=" distillation( temperature = 2.0,weight=1 ) ")) == distilled
    assert canonical_method("mine.methods:Own(b=2, a=1e-3)") == "mine.methods:Own(a=0.001, b=2.0)"
    assert RunSpec(method="mine.methods:Own(b=2)").code == ("resnet8", "uniform", "mine.methods:Own")
