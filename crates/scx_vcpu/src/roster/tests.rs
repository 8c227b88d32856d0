// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use crate::table::State;
use crate::table::Vcpu;

fn found(vm: u32, vcpu: u32) -> Found {
    Found {
        vm,
        tid: vm * 10 + vcpu,
        vcpu,
    }
}

fn config(text: &str) -> Config {
    Config::parse(text, "f").unwrap()
}

const FILE: &str = "[ische]\ngeneral_cores = 1\nseed = 1\n\
    [[vm]]\nmatch = \"guest=web\"\nweight = 512\nclass = \"io\"\ncap = 50\n";

fn roster() -> Roster {
    let cores = Cores::new(vec![0, 1], 1, 1);
    let mut roster = Roster::new(config(FILE), Some(cores));
    roster.add(found(1, 0), "qemu guest=web".to_owned(), vec![0, 1]);
    roster.add(found(2, 0), "qemu guest=db".to_owned(), vec![0, 1]);
    roster
}

#[test]
fn a_vcpu_that_comes_takes_its_part_of_the_cap_and_a_home_of_its_class() {
    let mut roster = roster();
    let told = roster.add(found(1, 1), "qemu guest=web".to_owned(), vec![0, 1]);
    assert_eq!(told[0].0, found(1, 1), "its own first");
    let io = roster.cores.as_ref().unwrap().of(Core::Io)[0];
    for (_, knobs) in &told {
        let Knobs {
            weight,
            cap_permille,
            class,
            home,
            ..
        } = *knobs;
        assert_eq!((weight, cap_permille), (512, 250), "half of 50 %");
        assert_eq!((class, home), (Class::Io, Some(io)));
    }
    assert_eq!(told.len(), 2);
    // Who asks later is told the same.
    let knobs = |vm, tid| roster.knobs(vm, tid);
    assert!(
        told.iter()
            .all(|(found, told)| knobs(found.vm, found.tid) == Some(*told))
    );
    assert_eq!((knobs(2, found(1, 0).tid), knobs(9, 90)), (None, None));
}

#[test]
fn what_is_set_counts_until_the_file_changes() {
    let mut roster = roster();
    let change = Change {
        vm: "guest=db".to_owned(),
        weight: Some(64),
        class: Some(Class::Io),
        cap: Some(20),
        slice: Some(Ns::from_ms(5)),
        ..Change::default()
    };
    let (pid, worth, told) = roster.set(&change).unwrap();
    assert_eq!((pid, worth.weight, worth.cap), (2, 64, Some(20)));
    assert_eq!(told[0].1.cap_permille, 200);
    assert_eq!(told[0].1.slice, Ns::from_ms(5));
    let no_cap = Change {
        vm: "2".to_owned(),
        cap: Some(0),
        ..Change::default()
    };
    let (_, worth, told) = roster.set(&no_cap).unwrap();
    assert_eq!(
        (worth.weight, worth.cap, told[0].1.cap_permille),
        (64, None, 0)
    );

    let cores = Cores::new(vec![0, 1], 1, 2);
    let general = cores.of(Core::General)[0];
    let told = roster.reload(config(FILE), Some(cores));
    assert_eq!(told.len(), 2);
    let db = told.iter().find(|(found, _)| found.vm == 2).unwrap().1;
    assert_eq!(
        (db.weight, db.class, db.home),
        (256, Class::Cpu, Some(general))
    );
}

#[test]
fn a_change_that_cannot_be_made_says_why() {
    let mut roster = roster();
    for (vm, weight, cap, part) in [
        ("guest=mail", None, None, "scx_vcpu list"),
        ("", None, None, "scx_vcpu list"),
        ("qemu", None, None, "[1, 2]"),
        ("1", Some(0), None, "weight = 0; use 1 to 65535"),
        ("1", None, Some(500_000), "cap = 500000"),
    ] {
        let change = Change {
            vm: vm.to_owned(),
            weight,
            cap,
            ..Change::default()
        };
        let said = roster.set(&change).unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    }
}

/// A VM may have gone, and its process id be a part of another one's command line.
#[test]
fn a_number_is_a_process_id_and_nothing_else() {
    let mut roster = Roster::new(Config::default(), None);
    roster.add(
        found(7, 0),
        "qemu -m 4096 guest=web4100".to_owned(),
        vec![0],
    );
    let set = |roster: &mut Roster, vm: &str| {
        let change = Change {
            vm: vm.to_owned(),
            weight: Some(3),
            ..Change::default()
        };
        roster.set(&change).map(|(pid, ..)| pid)
    };
    for gone in ["4096", "4100", "0", "99999999999"] {
        let nobody = SetError::Nobody(gone.to_owned());
        assert_eq!(set(&mut roster, gone), Err(nobody));
    }
    for vm in ["7", "web4100", "=web", "-m 4096"] {
        assert_eq!(set(&mut roster, vm), Ok(7), "{vm}");
    }
}

#[test]
fn each_knob_is_set_and_taken_back_alone() {
    let mut roster = Roster::new(Config::default(), None);
    roster.add(found(1, 0), "web".to_owned(), vec![0, 1]);
    let mut set = |change: Change| {
        let vm = "1".to_owned();
        roster
            .set(&Change { vm, ..change })
            .map(|(_, _, told)| told[0].1)
            .map_err(|error| error.to_string())
    };
    let slice = |slice| Change {
        slice: Some(slice),
        ..Change::default()
    };
    let latency = |latency| Change {
        latency: Some(latency),
        ..Change::default()
    };
    let cpus = |cpus| Change {
        cpus: Some(cpus),
        ..Change::default()
    };
    let one = CpuSet::only(VcpuId(1));
    set(slice(Ns::from_ms(5))).unwrap();
    set(latency(Ns::from_ms(2))).unwrap();
    let knobs = set(cpus(one)).unwrap();
    assert_eq!(
        (knobs.slice, knobs.latency),
        (Ns::from_ms(5), Ns::from_ms(2))
    );
    assert_eq!((knobs.cpus, knobs.weight), (Some(one), 256));
    assert_eq!(set(slice(Ns::ZERO)).unwrap().slice, Ns::ZERO);
    assert_eq!(set(latency(Ns::ZERO)).unwrap().latency, Ns::ZERO);
    assert_eq!(
        set(cpus(CpuSet::first(CpuSet::CAPACITY))).unwrap().cpus,
        None
    );
    for (change, part) in [
        (slice(Ns::from_us(10)), "slice = 10 us; use 1 ms to 3 s"),
        (
            latency(Ns::from_us(10)),
            "latency = 10 us; use 100 us to 3 s",
        ),
        (
            cpus(CpuSet::only(VcpuId(7))),
            "vCPU 0 may run on none of these; its own are 0,1",
        ),
    ] {
        let said = set(change).unwrap_err();
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn cgroups_multiply_the_weight_within_its_range() {
    let mut roster = roster();
    let weights = |told: Told| -> Vec<(u32, u32)> {
        told.iter()
            .map(|(found, knobs)| (found.vm, knobs.weight))
            .collect()
    };
    assert_eq!(roster.weigh(|_| ONE), [], "nothing new");
    let twice = roster.weigh(|pid| if pid == 2 { 2 * ONE } else { ONE });
    assert_eq!(weights(twice), [(2, 512)]);
    let change = Change {
        vm: "2".to_owned(),
        weight: Some(100),
        ..Change::default()
    };
    assert_eq!(weights(roster.set(&change).unwrap().2), [(2, 200)]);
    assert_eq!(weights(roster.weigh(|_| 1)), [(1, 1), (2, 1)]);
    assert_eq!(
        weights(roster.weigh(|_| 1000 * ONE)),
        [(1, 65_535), (2, 65_535)]
    );
}

#[test]
fn counters_change_a_class_after_some_periods_only() {
    let text = "[ische]\ngeneral_cores = 1\n[ische.automatic]\nevents_per_s = 10\nperiods = 2\n";
    let cores = Cores::new(vec![0, 1], 1, 1);
    let mut roster = Roster::new(config(text), Some(cores));
    roster.add(found(1, 0), "web".to_owned(), vec![0, 1]);
    let after = |io: u64| Vcpu {
        vm: 1,
        name: String::new(),
        policy: String::new(),
        tid: 10,
        vcpu: 0,
        state: State::Asleep,
        cpu: 0,
        weight: 256,
        class: Class::Cpu,
        cap_permille: 0,
        ran: Ns::from_ms(10 * io),
        share_permille: 0,
        vm_share_permille: 0,
        waited: Ns::ZERO,
        longest_wait: Ns::ZERO,
        slept: Ns::ZERO,
        turns: io,
        preempted: 0,
        wakes: io,
        io,
        ipi: 0,
        wake_ipis: 0,
        wakers: BTreeMap::new(),
        halts: 0,
        halted: Ns::ZERO,
        own_slice: Ns::ZERO,
        latency: Ns::ZERO,
        slice: Ns::ZERO,
        credit: 0,
        ivcredit: Ns::ZERO,
    };
    let second = Ns::from_secs(1);
    // What came before, as in a rest, is no period's.
    roster.begin_periods(&[after(1000)]);
    assert_eq!(roster.vms[&1].last, (1000, Ns::from_secs(10)));
    for _ in 0..3 {
        assert_eq!(roster.period(&[after(1000)], second), []);
    }
    roster.begin_periods(&[after(0)]);
    assert_eq!(roster.period(&[after(20)], second), []);
    let told = roster.period(&[after(40)], second);
    assert_eq!(told[0].1.class, Class::Io);
    assert_eq!(roster.period(&[after(60)], second), []);
    roster.retain(|_| false);
    assert_eq!(roster.period(&[after(80)], second), []);
}

#[test]
fn a_vcpu_that_goes_leaves_its_part_of_the_cap_to_its_siblings() {
    let mut roster = roster();
    let last = found(1, 1);
    let told = roster.add(last, "qemu guest=web".to_owned(), vec![0, 1]);
    assert_eq!(told[0].1.cap_permille, 250, "half of 50 %");
    assert_eq!(roster.retain(|_| true), Told::new());
    let told = roster.retain(|tid| tid != last.tid);
    let caps: Vec<_> = told
        .iter()
        .map(|(found, knobs)| (*found, knobs.cap_permille))
        .collect();
    assert_eq!(caps, [(found(1, 0), 500)]);
    assert_eq!(roster.retain(|_| false), Told::new(), "nobody is left");
}

#[test]
fn what_owners_say_after_a_vcpu_was_found_counts() {
    let mut roster = roster();
    let io = roster.cores.as_ref().unwrap().of(Core::Io)[0];
    let web = found(1, 0);
    let pinned_to = |cpus: &[u32]| {
        let cpus = cpus.to_vec();
        move |tid: u32| {
            if tid == web.tid {
                cpus.clone()
            } else {
                vec![0, 1]
            }
        }
    };
    assert_eq!(roster.follow(pinned_to(&[0, 1])), Told::new());
    // Not on the I/O core, so it has no home (S3).
    let told = roster.follow(pinned_to(&[1 - io]));
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].0, told[0].1.home), (web, None));
    assert_eq!(roster.move_home(web.tid, Some(io)), Told::new());
    let told = roster.follow(pinned_to(&[0, 1]));
    assert_eq!((told[0].0, told[0].1.home), (web, Some(io)));
    // It has gone; or its mask is ours.
    assert_eq!(roster.follow(pinned_to(&[])), Told::new());
    let change = Change {
        vm: "1".to_owned(),
        cpus: Some("0-1".parse().unwrap()),
        ..Change::default()
    };
    roster.set(&change).unwrap();
    assert_eq!(roster.follow(pinned_to(&[io])), Told::new());
}
