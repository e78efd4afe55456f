"""What holds for every job: more of anything costs no less, and nothing is free, negative or not a number."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from provision.matrix.load import Matrix
from provision.planner.catalogue import Price
from provision.planner.cost import Extras, add_up
from provision.planner.memory import (
    CHECKPOINTING,
    SHARDINGS,
    STATES,
    Layout,
    Training,
    estimate_training,
    read_constants,
)
from provision.planner.shape import count_parameters, make_shape
from provision.planner.spot import daly_interval, expected_hours
from provision.records import replace

MATRIX = Matrix()
CONSTANTS = read_constants(MATRIX)
HOURS = st.floats(1e-3, 1e4)


@st.composite
def shapes(draw):
    heads = draw(st.sampled_from([4, 8, 16, 32]))
    sizes = {
        "layers": draw(st.integers(1, 100)),
        "hidden": heads * draw(st.sampled_from([32, 64, 128])),
        "heads": heads,
        "kv_heads": draw(st.sampled_from([1, 2, 4])),
        "vocab": draw(st.integers(1, 200_000)),
        "is_gated": draw(st.booleans()),
        "is_tied": draw(st.booleans()),
    }
    return make_shape(MATRIX, "any", parameters=None, sizes=sizes)


@st.composite
def trainings(draw):
    return Training(
        states=draw(st.sampled_from(sorted(STATES))),
        sharding=draw(st.sampled_from(SHARDINGS)),
        checkpointing=draw(st.sampled_from(CHECKPOINTING)),
        method=draw(st.sampled_from(["full", "lora", "qlora"])),
        micro_batch=draw(st.integers(1, 64)),
        sequence=draw(st.integers(1, 100_000)),
        is_compiled=draw(st.booleans()),
    )


@given(shapes(), trainings(), st.sampled_from([1, 2, 8, 64]))
def test_memory_is_a_number_above_zero_and_does_not_shrink_as_the_batch_grows(shape, training, gpus):
    layout = Layout(gpus=gpus)
    one = estimate_training(shape, layout, training, CONSTANTS)
    two = estimate_training(shape, layout, replace(training, micro_batch=2 * training.micro_batch), CONSTANTS)
    assert all(math.isfinite(part.gib) and part.gib >= 0 for part in one.parts)
    assert 0 < one.total_gib <= two.total_gib


@given(shapes(), trainings())
def test_more_gpus_never_need_more_each_once_there_are_several(shape, training):
    few = estimate_training(shape, Layout(gpus=8), training, CONSTANTS)
    many = estimate_training(shape, Layout(gpus=64), training, CONSTANTS)
    assert many.total_gib <= few.total_gib * (1 + 1e-12)


@given(shapes())
def test_a_shape_counts_its_own_parameters(shape):
    assert shape.parameters == count_parameters(shape)
    assert 0 < shape.active_parameters <= shape.parameters


@example(work=1.0, mtbf=0.25, checkpoint=5e-324, restart=0.0)
@given(HOURS, HOURS, st.floats(0, 10), st.floats(0, 10))
def test_interruptions_never_shorten_a_job(work, mtbf, checkpoint, restart):
    interval = daly_interval(checkpoint, mtbf)
    total = expected_hours(
        work, mtbf_hours=mtbf, checkpoint_hours=checkpoint, restart_hours=restart, interval_hours=interval
    )
    assert total >= work * (1 - 1e-9)


@given(HOURS, HOURS, st.floats(1e-3, 1))
def test_rarer_interruptions_never_cost_more(work, mtbf, checkpoint):
    def total(between: float) -> float:
        return expected_hours(
            work,
            mtbf_hours=between,
            checkpoint_hours=checkpoint,
            restart_hours=0.1,
            interval_hours=daly_interval(checkpoint, between),
        )

    assert total(2 * mtbf) <= total(mtbf) * (1 + 1e-9)


@given(st.floats(0.01, 500), st.integers(1, 64), HOURS, st.floats(1, 5))
def test_a_bill_is_the_sum_of_its_lines(usd, nodes, hours, factor):
    price = Price(usd=usd, native=usd, currency="USD", as_of="2026-01-01", source=("x",), status="stated")
    extras = Extras(storage_gb=10.0, storage_usd_gb_month=0.02, egress_gb=1.0, egress_usd_gb=0.1)
    cost = add_up((("spot", price, nodes, factor),), hours=(hours, hours, hours), gpus=nodes, extras=extras)
    assert math.isclose(cost.usd, sum(item.usd for item in cost.items))
    assert cost.usd >= usd * nodes * hours
