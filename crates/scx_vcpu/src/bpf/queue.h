/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's functions for queues, and how queues are named.
 *
 * libbpf looks a kfunc up without its last ___suffix: __k stands for the
 * kernel's own name, so that ours never clash with a generated header's.
 */
#pragma once

#include "kernel.h"

extern s32 scx_bpf_create_dsq___k(u64 dsq_id, s32 node) __ksym;
extern s32 scx_bpf_task_cpu___k(const struct task_struct *p) __ksym;
extern bool scx_bpf_dsq_insert___v2___k(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
	__ksym;
extern void scx_bpf_dsq_insert_vtime___k(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
					 u64 enq_flags) __ksym;
extern bool scx_bpf_dsq_move_to_local___v2___k(u64 dsq_id, u64 enq_flags) __ksym;
extern bool scx_bpf_task_set_slice___k(struct task_struct *p, u64 slice) __ksym;
extern struct task_struct *scx_bpf_dsq_peek___k(u64 dsq_id) __ksym;
extern void scx_bpf_kick_cpu___k(s32 cpu, u64 flags) __ksym;
extern s32 scx_bpf_dsq_nr_queued___k(u64 dsq_id) __ksym;
/* Since 7.1. */
extern void scx_bpf_dsq_reenq___k(u64 dsq_id, u64 reenq_flags) __ksym __weak;
extern int bpf_iter_scx_dsq_new___k(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next___k(struct bpf_iter_scx_dsq *it) __ksym;
extern void bpf_iter_scx_dsq_destroy___k(struct bpf_iter_scx_dsq *it) __ksym;
extern void scx_bpf_dsq_move_set_vtime___k(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym;
extern bool scx_bpf_dsq_move_vtime___k(struct bpf_iter_scx_dsq *it, struct task_struct *p,
				       u64 dsq_id, u64 enq_flags) __ksym;
extern void scx_bpf_dsq_move_set_slice___k(struct bpf_iter_scx_dsq *it, u64 slice) __ksym;
extern bool scx_bpf_dsq_move___k(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
				 u64 enq_flags) __ksym;
extern bool scx_bpf_test_and_clear_cpu_idle___k(s32 cpu) __ksym;
extern s32 scx_bpf_pick_idle_cpu___k(const struct cpumask *allowed, u64 flags) __ksym;
extern bool bpf_cpumask_test_cpu___k(u32 cpu, const struct cpumask *cpumask) __ksym;

/* Each pCPU has four: of those that have a right to run, of the rest, of those that have
 * used up their caps, and of threads that are no vCPUs (stranger.h). */
enum queue {
	QUEUE_FIRST = 0,
	QUEUE_REST = 1,
	QUEUE_CAPPED = 2,
	QUEUE_STRANGERS = 3,
	NR_QUEUES = 4,
};

/* 0 is not a valid id. */
static __always_inline u64 queue_of(s32 cpu, enum queue queue)
{
	return (u64)(u32)cpu * NR_QUEUES + queue + 1;
}
