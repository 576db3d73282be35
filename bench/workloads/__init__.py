"""The workloads, in the order of the table. One file each; each says what it measures and why."""

from bench.measure import Workload

from . import (
    c1_cells,
    c2_cells,
    c3_snapshots,
    g1_fan,
    g2_chain,
    g3_requests,
    g4_growth,
    p1_processes,
    postgres_dask,
    postgres_fleet,
    postgres_model,
    postgres_queue,
    postgres_w1,
    postgres_w2,
    postgres_w3,
    postgres_w4,
    postgres_w5,
    postgres_w6,
    r1_rebuild,
    r2_loop,
    s1_requests,
    s2_lists,
    s3_watchers,
    s4_engine,
    s5_history,
    s6_serve,
    s7_browser,
    t1_tasks,
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
    w9_payload,
    y1_playbooks,
)

SQLITE: tuple[Workload, ...] = (
    w1_sequential.WORKLOAD,
    w2_concurrent.WORKLOAD,
    w3_latency.WORKLOAD,
    w4_timers.WORKLOAD,
    w5_messages.WORKLOAD,
    w6_recovery.WORKLOAD,
    w7_install.WORKLOAD,
    w7_sleepers.WORKLOAD,
    r1_rebuild.WORKLOAD,
    r2_loop.WORKLOAD,
    w9_payload.WORKLOAD,
    c1_cells.WORKLOAD,
    t1_tasks.WORKLOAD,
    g1_fan.WORKLOAD,
    g2_chain.WORKLOAD,
    g3_requests.WORKLOAD,
    g4_growth.WORKLOAD,
    p1_processes.WORKLOAD,
    y1_playbooks.WORKLOAD,
)
POSTGRES: tuple[Workload, ...] = (
    postgres_w1.WORKLOAD,
    postgres_w2.WORKLOAD,
    postgres_w3.WORKLOAD,
    postgres_w4.WORKLOAD,
    postgres_w5.WORKLOAD,
    postgres_w6.WORKLOAD,
    postgres_fleet.WORKLOAD,
    postgres_queue.WORKLOAD,
    postgres_dask.WORKLOAD,
    postgres_model.WORKLOAD,
    w9_payload.POSTGRES,
)
GROWTH: tuple[Workload, ...] = (
    w8_history.WORKLOAD,
    w8_instances.WORKLOAD,
    c2_cells.WORKLOAD,
    c3_snapshots.WORKLOAD,
    w8_history.POSTGRES,
    w8_instances.POSTGRES,
    c2_cells.POSTGRES,
)

SERVER: tuple[Workload, ...] = (
    s1_requests.WORKLOAD,
    s2_lists.WORKLOAD,
    s3_watchers.WORKLOAD,
    s4_engine.WORKLOAD,
    s5_history.WORKLOAD,
    s6_serve.WORKLOAD,
    s7_browser.WORKLOAD,
    s2_lists.POSTGRES,
)

PARTS: dict[str, tuple[Workload, ...]] = {"sqlite": SQLITE, "postgres": POSTGRES, "growth": GROWTH, "server": SERVER}
"""A whole run is all of them, one after the other."""

QUICK: tuple[Workload, ...] = SQLITE[:3]

BY_NAME: dict[str, Workload] = {workload.name: workload for part in PARTS.values() for workload in part}
