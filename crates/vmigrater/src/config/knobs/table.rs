// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The knobs, grouped by their table in the file; top level first, because TOML
//! wants it so.

use policy::guest::wakeup::MAX_SLICE;
use policy::guest::wakeup::MIN_SLICE;
use units::Ns;
use units::Permille;

use super::ESTIMATORS;
use super::Field;
use super::Knob;
use super::LEVERS;
use super::MODES;
use super::SOURCES;
use super::special;

/// All of them.
pub(crate) static KNOBS: &[Knob] = &[
    choice!(
        "mode",
        MODES,
        mode,
        "what is done for I/O-bound tasks: vmigrater moves them; xballoon moves nothing, raises their priority and holds computation back (XB1), for comparison"
    ),
    choice!(
        "source",
        SOURCES,
        source,
        "where knowledge of the vCPUs' slices comes from; auto takes the best that this machine offers"
    ),
    choice!(
        "estimator",
        ESTIMATORS,
        estimator,
        "how slices are predicted: last-value as published (V10), or a distribution with a confidence that abstains while slices are unstable"
    ),
    switch!("dry_run", dry_run, "decide and record, but move nothing"),
    duration!(
        "quiet_after",
        Ns::from_ms(100),
        Ns::from_secs(3600),
        quiet_after,
        "without steal for this long, everything that ticks is switched off"
    ),
    duration!(
        "calm_after",
        Ns::from_ms(100),
        Ns::from_secs(3600),
        calm_after,
        "without an I/O-bound task for this long, the programs at context switches are detached; shorter saves their cost sooner, but to attach them again takes up to seconds while vCPUs are away"
    ),
    count!(
        "bios_in_flight",
        64,
        1_048_576,
        bios_in_flight,
        u32,
        "block I/O requests of all threads that are followed at once from submission to completion, some 128 bytes of the kernel's memory each; those beyond do not count as waiting for I/O, unless their threads sleep for them"
    ),
    Knob {
        key: "steal_map_id",
        field: Field::Optional(|settings| &mut settings.steal_map_id),
        help: "the id of a BPF map that stands in for KVM's steal pages; test beds only, needs CAP_SYS_ADMIN",
    },
    // The published heartbeat.
    duration!(
        "heartbeat.period",
        Ns::from_us(50),
        Ns::from_ms(10),
        heartbeat.period,
        "P_mon of V7; shorter sees gaps sooner and costs more CPU: 300 us take 5 to 17 % of what a vCPU has, the timer's interrupts included; where a beat costs more than a quarter of it, the period is four times what a beat costs"
    ),
    duration!(
        "heartbeat.tolerance",
        Ns::from_us(10),
        Ns::from_ms(10),
        heartbeat.tolerance,
        "a wake-up later than the period plus this is a gap (V8); smaller takes timer jitter for gaps"
    ),
    // What counts as a gap, and when slices are stable.
    duration!(
        "slice.min_gap",
        Ns::ZERO,
        Ns::from_ms(100),
        slice.min_gap,
        "gaps shorter than this do not end a slice; longer misses the slices of a host with short ones"
    ),
    count!(
        "slice.window",
        3,
        16,
        slice.window,
        usize,
        "cycles that the distribution remembers; more smooths, fewer recovers sooner after a change (V25)"
    ),
    count!(
        "slice.min_cycles",
        1,
        16,
        slice.min_cycles,
        usize,
        "cycles without which it abstains; at most slice.window"
    ),
    percent!(
        "slice.tolerance",
        0,
        1000,
        slice.tolerance,
        "a cycle agrees with the estimate if it is not further away than this share of it"
    ),
    duration!(
        "slice.tolerance_floor",
        Ns::ZERO,
        Ns::from_ms(100),
        slice.tolerance_floor,
        "or than this, whichever is more"
    ),
    percent!(
        "slice.quorum",
        1,
        1000,
        slice.quorum,
        "the share of the remembered cycles that must agree on one length, or on two or three, else it abstains"
    ),
    // Task Detector.
    duration!(
        "iobound.window",
        Ns::from_us(500),
        Ns::from_secs(1),
        iobound.window,
        "T_det of V15: the load of a thread is judged over this; shorter finds a phase sooner and takes a single request for one"
    ),
    duration!(
        "iobound.min_accounted",
        Ns::ZERO,
        Ns::from_secs(1),
        iobound.min_accounted,
        "a window with less accounted time goes on, so that time on a stolen vCPU is not judged"
    ),
    percent!(
        "iobound.enter",
        1,
        1000,
        iobound.enter,
        "I/O-bound from this load on (V15); lower finds more tasks, which are worth less each"
    ),
    percent!(
        "iobound.leave",
        0,
        1000,
        iobound.leave,
        "a window below this counts towards leaving; at most iobound.enter"
    ),
    count!(
        "iobound.leave_windows",
        1,
        1000,
        iobound.leave_windows,
        u32,
        "windows in a row below iobound.leave that end the I/O phase (V16)"
    ),
    duration!(
        "iobound.stay",
        Ns::ZERO,
        Ns::from_secs(60),
        iobound.stay,
        "asleep this long, and not on I/O, a task stays on its vCPU if those who wake it run there (its timers do); 0: it is moved in its sleep"
    ),
    duration!(
        "iobound.idle",
        Ns::ZERO,
        Ns::from_secs(60),
        iobound.idle,
        "asleep this long for another reason than I/O ends the phase; 0 s means never"
    ),
    // Task Migrater.
    switch!(
        "placement.push",
        placement.push,
        "move tasks off a vCPU before its slice ends (V17)"
    ),
    switch!(
        "placement.pull",
        placement.pull,
        "take tasks off a vCPU that is gone already (V22)"
    ),
    switch!(
        "placement.soon_active",
        placement.soon_active,
        "push to the vCPU that is back first where none runs on (V12); with two vCPUs this carries the gain"
    ),
    switch!(
        "placement.spread",
        placement.spread,
        "let a vCPU that runs longer take one of several I/O-bound tasks that share another (V20)"
    ),
    switch!(
        "placement.completion",
        placement.completion,
        "keep tasks on the vCPU where all their completions arrive (disks with one queue)"
    ),
    switch!(
        "placement.completion_prior",
        completion_prior,
        "believe what Linux says of where that is (queues, interrupts) until it is seen; false: learn it from requests alone"
    ),
    Knob {
        key: "placement.margin",
        field: Field::Word {
            get: special::margin,
            set: special::set_margin,
            expected: special::expected_margin,
        },
        help: "how long before the end of a slice a task leaves (V17): adaptive, or a fixed duration",
    },
    Knob {
        key: "placement.margin_base",
        field: Field::Duration {
            at: special::margin_base,
            min: Ns::ZERO,
            max: Ns::from_ms(100),
        },
        help: "adaptive margin: what is added to the task's own I/O latency and the prediction's error",
    },
    Knob {
        key: "placement.margin_min",
        field: Field::Duration {
            at: special::margin_min,
            min: Ns::ZERO,
            max: Ns::from_ms(100),
        },
        help: "adaptive margin: at least this; at most placement.margin_max",
    },
    Knob {
        key: "placement.margin_max",
        field: Field::Duration {
            at: special::margin_max,
            min: Ns::ZERO,
            max: Ns::from_ms(100),
        },
        help: "adaptive margin: at most this; more gives away running time",
    },
    Knob {
        key: "placement.margin_max_of_slice",
        field: Field::Percent {
            at: special::margin_max_of_slice,
            min: Permille::new(1),
            max: Permille::ONE,
        },
        help: "adaptive margin: at most this share of the slice",
    },
    duration!(
        "placement.min_stay",
        Ns::ZERO,
        Ns::from_ms(100),
        placement.min_stay,
        "what a target must offer beyond the margin; a shorter stay would not pay for the move"
    ),
    duration!(
        "placement.pull_unless_back_within",
        Ns::ZERO,
        Ns::from_ms(100),
        placement.pull_unless_back_within,
        "a vCPU that is back within this keeps its tasks"
    ),
    switch!(
        "placement.pull_in_flight",
        placement.pull_in_flight,
        "pull also a task whose completion is due on the vCPU that is gone"
    ),
    duration!(
        "placement.soon_lead",
        Ns::ZERO,
        Ns::from_ms(100),
        placement.soon_lead,
        "how much earlier than its own vCPU the soon-active one must be back"
    ),
    duration!(
        "placement.soon_below",
        Ns::ZERO,
        Ns::from_ms(100),
        placement.soon_below,
        "go to a vCPU that is back within pull_unless_back_within rather than to one at hand that goes on for less than this (V12); 0 s: only if none is at hand"
    ),
    count!(
        "placement.resident_penalty_permille",
        0,
        100_000,
        placement.resident_penalty,
        u32,
        "how much each I/O-bound task on a target counts against it, in thousandths (V21); 0 ranks by remaining slice alone (V19)"
    ),
    percent!(
        "placement.completion_cpu_max",
        1,
        1000,
        placement.completion_cpu_max,
        "how much CPU the tasks that live on one completion vCPU may use together where it has half of its time; more where it has less"
    ),
    Knob {
        key: "placement.overdue_after",
        field: Field::Word {
            get: special::overdue_after,
            set: special::set_overdue_after,
            expected: special::expected_or_never,
        },
        help: "a slice that outlives its latest expected end by this makes the prediction void",
    },
    Knob {
        key: "placement.back_overdue_after",
        field: Field::Word {
            get: special::back_overdue_after,
            set: special::set_back_overdue_after,
            expected: special::expected_or_never,
        },
        help: "a gap that outlives its latest expected end by this makes the prediction void: while another is at hand the vCPU's tasks are pulled and none are sent there; never: it is back any moment",
    },
    // The wake-up lever.
    choice!(
        "wakeup.mode",
        LEVERS,
        wakeup.mode,
        "what a task gets that waits behind compute after its completions: auto tries and measures, the others force"
    ),
    duration!(
        "wakeup.slice",
        MIN_SLICE,
        MAX_SLICE,
        wakeup.slice,
        "the EEVDF slice (Linux 6.12); shorter is served sooner and preempts more often"
    ),
    percent!(
        "wakeup.fifo_max_cpu",
        1,
        1000,
        wakeup.fifo_max_cpu,
        "a task that uses more of a CPU never has SCHED_FIFO; higher keeps compute waiting longer"
    ),
    percent!(
        "wakeup.on",
        1,
        1000,
        wakeup.on,
        "a lever goes on when a task is queued for this share of its time, and works if it brings the share below"
    ),
    percent!(
        "wakeup.relief",
        1,
        1000,
        wakeup.relief,
        "a lever also works if it takes this much of the queued share away and the task does not wake less often by as much"
    ),
    percent!(
        "wakeup.urgent",
        1,
        1000,
        wakeup.urgent,
        "who is queued for this share of its time has the first lever, and the next, after `windows` windows instead of `trial`"
    ),
    count!(
        "wakeup.trial",
        1,
        100_000,
        wakeup.trial,
        u32,
        "windows over which a lever is judged"
    ),
    count!(
        "wakeup.min_wakes",
        1,
        1_000_000,
        wakeup.min_wakes,
        u64,
        "wake-ups that make a measurement; windows with fewer are put together"
    ),
    count!(
        "wakeup.windows",
        1,
        1000,
        wakeup.windows,
        u32,
        "windows in a row that switch a lever on"
    ),
    count!(
        "wakeup.hold",
        1,
        1_000_000,
        wakeup.hold,
        u32,
        "windows until a lever that is on is doubted, or one that was given up is tried again"
    ),
    // Migration budget.
    count!(
        "budget.per_slice_end_permille",
        0,
        100_000,
        budget.per_slice_end,
        u32,
        "moves per slice end and I/O-bound task, in thousandths: the bound on P of equation (2); 0 means no bound"
    ),
    count!(
        "budget.burst",
        1,
        10_000,
        budget.burst,
        u32,
        "moves that may be saved up for a phase change"
    ),
    count!(
        "budget.worth_permille",
        0,
        100_000,
        budget.worth,
        u32,
        "a move must gain this many times C_avg, in thousandths; 0 means every move is worth it"
    ),
    duration!(
        "budget.assumed_cost",
        Ns::from_us(1),
        Ns::from_ms(100),
        budget.assumed_cost,
        "C_avg until one has been measured"
    ),
    // Do no harm.
    switch!(
        "trial.enabled",
        trial.enabled,
        "let each program go for a few cycles now and then, and leave those alone that do better without us"
    ),
    duration!(
        "trial.first",
        Ns::from_ms(100),
        Ns::from_secs(3600),
        trial.first,
        "a program is held for this long before it is let go first; shorter finds harm sooner and costs short runs more"
    ),
    count!(
        "trial.cycles",
        1,
        1000,
        trial.cycles,
        u32,
        "length of one leg of a trial, in cycles of slice and gap; longer scatters less and costs more"
    ),
    duration!(
        "trial.min_leg",
        Ns::from_ms(1),
        Ns::from_secs(60),
        trial.min_leg,
        "a leg is never shorter"
    ),
    count!(
        "trial.min_requests",
        1,
        1_000_000,
        trial.min_requests,
        u64,
        "a leg with fewer requests says nothing"
    ),
    percent!(
        "trial.margin",
        0,
        1000,
        trial.margin,
        "a program must do better by this much when let go; higher leaves fewer programs alone"
    ),
    count!(
        "trial.pairs",
        1,
        100,
        trial.pairs,
        u32,
        "comparisons in a row that change what is believed of a program"
    ),
    count!(
        "trial.rest_legs",
        1,
        10_000,
        trial.rest_legs,
        u32,
        "a rest, also the one before the first trial, is at least so many legs long; fewer find out sooner and cost more, a leg in so many"
    ),
    duration!(
        "trial.rest",
        Ns::from_ms(100),
        Ns::from_secs(3600),
        trial.rest,
        "the rest after a trial; doubled each time that the belief is confirmed"
    ),
    duration!(
        "trial.rest_max",
        Ns::from_ms(100),
        Ns::from_secs(3600),
        trial.rest_max,
        "the longest rest; at least trial.rest"
    ),
    // The mode xballoon.
    percent!(
        "xballoon.reserve_min",
        1,
        900,
        xballoon.reserve_min,
        "mode xballoon: the share of each slice that is at least preserved for the I/O-bound tasks of its vCPU; at most xballoon.reserve_max"
    ),
    percent!(
        "xballoon.reserve_max",
        1,
        900,
        xballoon.reserve_max,
        "mode xballoon: at most this share; computation keeps the rest"
    ),
    count!(
        "xballoon.headroom_permille",
        0,
        100_000,
        xballoon.headroom,
        u32,
        "mode xballoon: preserved per demand of the I/O-bound tasks, in thousandths"
    ),
    duration!(
        "xballoon.min_pause",
        Ns::ZERO,
        Ns::from_ms(100),
        xballoon.min_pause,
        "mode xballoon: a shorter pause of computation is not made"
    ),
    duration!(
        "xballoon.max_pause",
        Ns::from_ms(1),
        Ns::from_secs(1),
        xballoon.max_pause,
        "mode xballoon: a pause of computation ends after this, whatever was expected"
    ),
    percent!(
        "xballoon.compute_min",
        1,
        1000,
        xballoon.compute_min,
        "mode xballoon: a thread that uses this share of what its vCPU gives is computation, which can be held; lower holds more threads"
    ),
];
