"""The workloads, in the order of the table. One file each; each says what it measures and why."""

from bench.measure import Workload

from . import (
    c1_cells,
    c2_cells,
    c3_snapshots,
    postgres_fleet,
    postgres_model,
    postgres_queue,
    postgres_w1,
    postgres_w2,
    postgres_w5,
    postgres_w6,
    w1_sequential,
    w2_concurrent,
    w3_latency,
    w4_timers,
    w5_messages,
    w6_recovery,
    w7_install,
    w7_sleepers,
    w8_history,
    w8_instances,
    w9_loop,
    w9_payload,
    w9_rebuild,
)

STANDARD: tuple[Workload, ...] = (
    w1_sequential.WORKLOAD,
    w2_concurrent.WORKLOAD,
    w3_latency.WORKLOAD,
    w4_timers.WORKLOAD,
    w5_messages.WORKLOAD,
    w6_recovery.WORKLOAD,
    w7_install.WORKLOAD,
    w7_sleepers.WORKLOAD,
    w9_rebuild.WORKLOAD,
    w9_loop.WORKLOAD,
    w9_payload.WORKLOAD,
    c1_cells.WORKLOAD,
)
GROWTH: tuple[Workload, ...] = (w8_history.WORKLOAD, w8_instances.WORKLOAD, c2_cells.WORKLOAD, c3_snapshots.WORKLOAD)
POSTGRES: tuple[Workload, ...] = (
    postgres_w1.WORKLOAD,
    postgres_w2.WORKLOAD,
    postgres_w5.WORKLOAD,
    postgres_w6.WORKLOAD,
    postgres_fleet.WORKLOAD,
    postgres_queue.WORKLOAD,
    postgres_model.WORKLOAD,
    w9_payload.POSTGRES,
)
POSTGRES_GROWTH: tuple[Workload, ...] = (w8_history.POSTGRES, w8_instances.POSTGRES, c2_cells.POSTGRES)
QUICK: tuple[Workload, ...] = (*STANDARD[:3], w9_rebuild.TINY, w9_loop.TINY)

BY_NAME: dict[str, Workload] = {
    workload.name: workload for workload in (*STANDARD, *GROWTH, *POSTGRES, *POSTGRES_GROWTH, *QUICK)
}
