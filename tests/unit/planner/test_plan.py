"""The plan: what is left out and why, what is chosen, and that nothing unpriced gets in."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.planner.catalogue import list_offers, read_rates
from provision.planner.cost import Extras
from provision.planner.job import Job, check_job
from provision.planner.plan import Terms, make_plan, summarise
from provision.planner.shape import find_shape
from provision.planner.speed import Speeds
from provision.records import replace

MATRIX = Matrix()
SPEEDS = Speeds(MATRIX)
LLAMA = find_shape(MATRIX, "llama-3.1-8b")
FINETUNE = Job(task="finetune", shape=LLAMA, tokens=1e9, sequence=4096)
SERVE = Job(task="inference", shape=LLAMA, hours=730.0, requests_per_second=10.0)
ALL = ("on-demand", "spot", "reserved-1y", "reserved-3y")


def plan(job=FINETUNE, purchases=("on-demand",), extras=None, rates=None, **where):
    check_job(job)
    terms = Terms(purchases=purchases, rates=read_rates(MATRIX, rates or {}), extras=extras or Extras())
    return make_plan(job, list_offers(MATRIX, **where), terms, MATRIX, speeds=SPEEDS)


def test_rows_come_cheapest_first_and_none_is_free():
    rows = plan(purchases=ALL).rows
    costs = [row.cost.usd for row in rows]
    assert costs == sorted(costs)
    assert costs[0] > 0


def test_what_stands_first_is_beaten_by_nothing():
    rows = plan(purchases=ALL).rows
    for row in rows:
        beaten = any(
            other.cost.usd <= row.cost.usd
            and other.hours[2] <= row.hours[2]
            and other.risk <= row.risk
            and (other.cost.usd, other.hours[2], other.risk) != (row.cost.usd, row.hours[2], row.risk)
            for other in rows
        )
        assert not (row.is_first and beaten)
    for place, row in enumerate(rows):
        # Of rows that are alike in all three, the first stands for all.
        better = any(other.hours[2] <= row.hours[2] and other.risk <= row.risk for other in rows[:place])
        assert row.is_first is not better


def test_every_machine_is_a_row_or_has_a_reason():
    offers = list_offers(MATRIX)
    found = plan()
    named = {row.offer.name for row in found.rows} | {item.offer.name for item in found.rejected}
    assert named == {offer.name for offer in offers}
    assert all(item.why for item in found.rejected)


def test_fall_backs_differ_in_gpu_provider_or_region():
    found = plan(purchases=ALL)
    keys = [
        (row.offer.instance.provider, row.offer.instance.region, row.offer.instance.gpu)
        for row in (found.winner, *found.fallbacks)
    ]
    assert len(found.fallbacks) == 3
    assert len(set(keys)) == len(keys)


def test_what_does_not_fit_is_left_out_with_the_numbers():
    big = replace(FINETUNE, shape=find_shape(MATRIX, "llama-3.1-70b"))
    found = plan(big, gpus=["l4"])
    assert found.winner is None
    assert all("GiB a GPU" in item.why for item in found.rejected if item.kind == "memory")
    assert summarise(found.rejected)["memory"] > 0


def test_every_row_fits_its_memory():
    assert all(row.fit.memory.total_gib <= row.fit.usable_gib for row in plan(purchases=ALL).rows)


@pytest.mark.parametrize(("gpu", "precision"), [("t4", "bf16"), ("v100", "bf16"), ("a100", "fp8"), ("t4", "tf32")])
def test_a_precision_the_gpu_lacks_is_refused(gpu, precision):
    found = plan(replace(FINETUNE, precision=precision), gpus=[gpu])
    assert found.winner is None
    assert f"does not compute in {precision}" in found.rejected[0].why


def test_a_gpu_without_a_stack_is_refused_with_the_reason():
    terms = Terms(purchases=("on-demand",), rates=read_rates(MATRIX, {}), extras=Extras())
    found = make_plan(
        FINETUNE,
        list_offers(MATRIX, gpus=["h100"]),
        terms,
        MATRIX,
        speeds=SPEEDS,
        no_stack=lambda gpu: f"nothing has code for {gpu.name}",
    )
    assert found.winner is None
    assert {item.kind for item in found.rejected} == {"stack"}
    assert "has code for H100" in found.rejected[0].why


def test_an_unpriced_machine_is_left_out_and_never_the_cheapest():
    found = plan(replace(FINETUNE, precision="fp16"), providers=["tencent"])
    assert found.winner is None
    assert {item.kind for item in found.rejected} <= {"price", "memory"}
    assert "price" in {item.kind for item in found.rejected}


def test_storage_nobody_prices_takes_the_machine_out():
    found = plan(extras=Extras(storage_gb=100.0), providers=["lambda", "gcp"])
    assert {row.offer.instance.provider for row in found.rows} == {"gcp"}
    kept = next(item for item in found.winner.cost.items if item.name == "storage")
    assert kept.how.endswith("of 2026 from finout-storage-prices")
    given = plan(extras=Extras(storage_gb=100.0, storage_usd_gb_month=0.2), providers=["lambda"])
    assert given.winner.cost.items[1].how.endswith("as given")


def test_spot_is_stretched_and_cheaper_than_its_machine_on_demand():
    found = plan(purchases=("on-demand", "spot"), providers=["gcp"], gpus=["h100"])
    pairs: dict[str, dict[str, object]] = {}
    for row in found.rows:
        pairs.setdefault(row.offer.name, {})[row.purchase] = row
    for pair in pairs.values():
        assert pair["spot"].hours[1] > pair["on-demand"].hours[1]
        assert pair["spot"].risk > pair["on-demand"].risk == 0


def test_a_job_on_several_nodes_is_interrupted_as_often_as_any_of_them():
    job = replace(FINETUNE, mtbf_hours=24.0)
    rows = plan(job, purchases=("spot",), providers=["aws"], gpus=["h100"]).rows
    times = {row.nodes: row.spot.mtbf_hours for row in rows if row.offer.instance.type == "p5.48xlarge"}
    assert times == {nodes: 24.0 / nodes for nodes in times}
    assert len(times) > 1


def test_spot_that_never_ends_is_refused():
    job = replace(FINETUNE, tokens=1e12, has_checkpoints=False, mtbf_hours=6.0)
    found = plan(job, purchases=("spot",), providers=["gcp"])
    assert found.winner is None
    assert "never ends" in next(item.why for item in found.rejected if item.kind == "spot")


def test_a_mix_of_spot_and_on_demand_costs_something_between():
    where = {"providers": ["gcp"], "regions": ["us-central1"], "gpus": ["h100"]}

    def cheapest(share, purchase):
        rows = plan(replace(FINETUNE, nodes=2, spot_share=share), purchases=(purchase,), **where).rows
        row = next(row for row in rows if row.offer.instance.type == "a3-highgpu-8g")
        return row.cost.usd / row.hours[1]

    steady, mixed, spot = cheapest(None, "on-demand"), cheapest(0.5, "spot"), cheapest(None, "spot")
    assert spot < mixed < steady
    rows = plan(replace(FINETUNE, nodes=2, spot_share=0.5), purchases=("spot", "reserved-1y"), **where).rows
    row = next(row for row in rows if row.offer.instance.type == "a3-highgpu-8g" and row.purchase == "spot")
    assert [item.name for item in row.cost.items] == ["spot", "reserved-1y"]
    assert row.cost.usd / row.hours[1] < mixed


def test_a_longer_reservation_is_cheaper():
    found = plan(purchases=("on-demand", "reserved-1y", "reserved-3y"), providers=["gcp"], gpus=["a100"])
    first = found.winner
    same = {row.purchase: row.cost.usd for row in found.rows if row.offer.name == first.offer.name}
    assert same["reserved-3y"] < same["reserved-1y"] < same["on-demand"]
    assert any("reservation is paid" in text for text in first.assumed)


def test_what_misses_the_deadline_or_the_budget_is_kept_apart():
    everything = plan()
    fastest = min(everything.rows, key=lambda row: row.hours[2])
    late = plan(replace(FINETUNE, deadline_hours=fastest.hours[2]))
    assert {row.hours[2] for row in late.rows} == {fastest.hours[2]}
    assert len(late.missed) == len(everything.rows) - len(late.rows)
    poor = plan(replace(FINETUNE, budget_usd=everything.rows[0].cost.usd))
    assert poor.rows[0].cost.usd == everything.rows[0].cost.usd
    assert plan(replace(FINETUNE, budget_usd=0.01)).winner is None


@pytest.mark.parametrize(("interconnect", "links"), [("nvlink", {"nvlink", "nvswitch"}), ("nvswitch", {"nvswitch"})])
def test_links_between_gpus_are_a_condition(interconnect, links):
    found = plan(replace(FINETUNE, interconnect=interconnect))
    assert {row.offer.instance.interconnect for row in found.rows} == links
    assert any("NVLink" in item.why or "NVSwitch" in item.why for item in found.rejected)


@pytest.mark.parametrize(
    ("interconnect", "fabrics"), [("ib", {"infiniband"}), ("efa", {"efa"}), ("rdma", {"infiniband", "efa"})]
)
def test_links_between_machines_are_a_condition_and_efa_is_no_infiniband(interconnect, fabrics):
    found = plan(replace(FINETUNE, interconnect=interconnect))
    assert {row.offer.instance.fabric for row in found.rows} == fabrics
    assert any("to other machines" in item.why for item in found.rejected)


def test_the_least_memory_is_a_condition():
    assert all(row.offer.instance.gpu_memory_gb >= 90 for row in plan(replace(FINETUNE, min_vram_gb=90.0)).rows)


@pytest.mark.parametrize("gpus", [1, 4, 12, 16])
def test_a_number_of_gpus_is_kept_exactly_by_however_many_machines(gpus):
    found = plan(replace(FINETUNE, gpus=gpus, method="lora"))
    assert {row.gpus for row in found.rows} == {gpus}
    assert all(row.nodes == 1 or row.offer.instance.fabric is not None for row in found.rows)
    assert all(row.offer.instance.gpu_share is None for row in found.rows)
    reasons = {item.why for item in found.rejected}
    assert any("do not make" in why or "joins" in why for why in reasons)


def test_a_number_of_gpus_and_one_of_machines_must_agree():
    found = plan(replace(FINETUNE, gpus=16, nodes=2))
    assert {(row.nodes, row.offer.instance.gpu_count) for row in found.rows} == {(2, 8)}


def test_a_load_that_takes_more_gpus_than_were_asked_for_is_refused():
    found = plan(replace(SERVE, gpus=1), gpus=["l4"])
    assert not found.rows
    assert any("and 1 are allowed" in item.why for item in found.rejected)


def test_more_nodes_only_over_a_fast_network():
    rows = plan().rows
    assert any(row.nodes > 1 for row in rows)
    assert all(row.offer.instance.fabric is not None for row in rows if row.nodes > 1)


def test_a_batch_too_small_for_the_gpus_is_refused():
    found = plan(replace(FINETUNE, batch=1, nodes=8), providers=["aws"], gpus=["h200"])
    assert found.winner is None
    assert "does not feed" in found.rejected[0].why


def test_a_model_too_large_for_one_copy_a_gpu_is_spread_over_several():
    big = replace(FINETUNE, shape=find_shape(MATRIX, "llama-3.1-70b"), tokens=1e8)
    assert any(row.fit.layout.tensor > 1 or row.fit.training.checkpointing == "full" for row in plan(big).rows)


def test_serving_takes_enough_replicas_for_the_peak():
    usual = plan(SERVE, gpus=["h100"]).winner
    peak = plan(SERVE, gpus=["h100"], extras=Extras(peak_factor=3.0)).winner
    assert peak.service.replicas > usual.service.replicas
    assert peak.service.minimum == usual.service.minimum
    assert usual.service.replicas * usual.service.per_replica >= 10
    assert peak.nodes * peak.fit.replicas >= peak.service.replicas


@pytest.mark.parametrize("limit", ["nodes", "max_nodes"])
def test_serving_takes_no_more_machines_than_allowed(limit):
    busy = replace(SERVE, requests_per_second=100.0)
    usual = plan(busy, gpus=["l4"]).winner
    assert usual.nodes > 2
    few = plan(replace(busy, **{limit: 2}), gpus=["l4"])
    assert all(row.nodes <= 2 for row in few.rows)
    assert any("2 are allowed" in item.why for item in few.rejected)


def test_more_machines_than_the_load_takes_are_paid_when_asked_for():
    many = plan(replace(SERVE, nodes=100), gpus=["l4"]).winner
    assert many.nodes == 100
    assert many.cost.usd == pytest.approx(100 * 730 * many.price.usd)


def test_the_most_nodes_of_training_are_a_limit():
    assert max(row.nodes for row in plan(replace(FINETUNE, max_nodes=3)).rows) == 2
    assert max(row.nodes for row in plan().rows) == 8


def test_the_cache_takes_what_the_weights_leave():
    row = plan(SERVE, gpus=["l4"]).winner
    serving = row.fit.serving
    assert serving.concurrent > 4
    assert row.fit.memory.total_gib <= row.fit.usable_gib
    more = plan(replace(SERVE, concurrent=serving.concurrent + 2), gpus=["l4"])
    assert all(other.fit.layout.tensor > row.fit.layout.tensor for other in more.rows)


def test_mig_instances_have_their_own_memory_and_share():
    job = replace(SERVE, shape=find_shape(MATRIX, "qwen2.5-1.5b"), mig="1g.10gb", requests_per_second=1.0)
    found = plan(job)
    row = found.winner
    assert row.fit.usable_gib < 10
    assert row.fit.share == pytest.approx(1 / 7)
    assert row.fit.replicas == 7 * row.offer.instance.gpu_count
    assert any("no MIG profile" in item.why for item in found.rejected)


def test_a_model_too_large_for_the_mig_instance_is_refused():
    found = plan(replace(SERVE, mig="1g.10gb"), gpus=["a100-sxm4-80gb"])
    assert found.winner is None
    assert "above 9 GiB" in found.rejected[0].why


def test_rendering_wants_an_encoder():
    found = plan(Job(task="render", hours=10.0))
    assert all(row.offer.gpu.id.startswith(("h100", "a100")) is False for row in found.rows)
    assert any("no video encoder" in item.why for item in found.rejected)


@pytest.mark.parametrize(
    "job",
    [
        replace(FINETUNE, tokens=None),
        replace(FINETUNE, hours=1.0),
        replace(FINETUNE, tokens=-1.0),
        replace(FINETUNE, tokens=float("nan")),
        replace(FINETUNE, sequence=0),
        replace(FINETUNE, precision="int4"),
        replace(FINETUNE, task="train"),
        replace(FINETUNE, shape=None),
        replace(FINETUNE, deadline_hours=0.0),
        replace(FINETUNE, budget_usd=-5.0),
        replace(FINETUNE, nodes=0),
        replace(FINETUNE, mtbf_hours=0.0),
        replace(FINETUNE, spot_share=2.0),
        replace(FINETUNE, mig="1g.10gb", nodes=2),
        replace(SERVE, output=2048),
        replace(SERVE, hours=None),
        Job(task="render"),
        Job(task="hpc", hours=10.0, deadline_hours=5.0),
    ],
)
def test_a_job_that_cannot_be_is_refused(job):
    with pytest.raises(UsageError):
        check_job(job)


def test_the_same_question_has_the_same_answer():
    assert plan(purchases=ALL) == plan(purchases=ALL)
