// SPDX-License-Identifier: Apache-2.0 OR MIT
mod reference;

use super::*;
use crate::load;
use crate::load::Rules;

#[test]
fn the_first_vm_that_matches_counts() {
    let text = "[[vm]]\nmatch = \"guest=web\"\nweight = 512\n\
        [[vm]]\nmatch = \"guest=\"\nweight = 128\n";
    let config = Config::parse(text, "f").unwrap();
    let line = |bytes: &[u8]| config.worth(&command_line(bytes)).weight;
    assert_eq!(line(b"qemu\0-name\0guest=web,x=on\0"), 512);
    assert_eq!(line(b"qemu\0-name\0guest=db\0"), 128);
    assert_eq!(line(b"firecracker\0"), DEFAULT_WEIGHT);
}

#[test]
fn bad_values_are_told_with_file_field_and_what_would_be_right() {
    for (text, parts) in [
        (
            "[credit1]\nslice = \"1us\"\n",
            ["p.toml:2: credit1.slice", "1 ms to 3 s"],
        ),
        (
            "[[vm]]\nmatch = \"a\"\nweight = 0\n",
            ["p.toml:3: vm.weight = 0", "1 to 65535"],
        ),
        (
            "[[vm]]\nmatch = \"a\"\n[[vm]]\nmatch = \"b\"\nlatency = \"1us\"\n",
            ["p.toml:5: vm.latency = 1 us", "100 us to 3 s"],
        ),
        (
            "[[vm]]\nmatch = \"a\"\ncpus = \"x\"\n",
            ["p.toml:3: vm.cpus: ", "x"],
        ),
        ("[credit3]\n", ["p.toml:1: ", "credit3"]),
        (
            "[[vm]]\nmatch = \"a\"\nweight = \"many\"\n",
            ["p.toml:3: vm.weight: ", "\"many\", expected a whole number"],
        ),
        (
            "[credit2]\nslice = \"soon\"\n",
            [
                "p.toml:2: credit2.slice: ",
                "\"soon\" is no time (expected number at 0); write \"10ms\"",
            ],
        ),
        ("[[vm]]\nmatch = \"\"\nweight = 1\n", ["vm.match", "part"]),
        ("[[vm]]\nmatch = \"a\"\ncap = 0\n", ["vm.cap = 0", "1 to"]),
        ("[[vm]]\nmatch = \"a\"\nclass = \"disk\"\n", ["disk", "io"]),
        (
            "[vslicer]\nmicro = \"31ms\"\n",
            ["vslicer.micro = 31 ms", "30 ms"],
        ),
        ("[ische]\ngeneral_cores = 0\n", ["ische.general_cores", "1"]),
        (
            "[isacs]\nboost_unit = \"4s\"\n",
            ["isacs.boost_unit = 4 s", "use 0 ns to 3 s"],
        ),
        (
            "[credit1]\ncredit_limit = \"1us\"\n",
            [
                "p.toml:2: credit1.credit_limit = 1 us",
                "use 1 ms to 3 s, or 0s for no limit",
            ],
        ),
        (
            "[credit1]\ncredit_limit = \"1h\"\n",
            ["p.toml:2: credit1.credit_limit = 3600 s", "use 1 ms to 3 s"],
        ),
        (
            "[credit2]\nbalance_period = \"10ms\"\n",
            [
                "p.toml:2: credit2.balance_period = 10 ms",
                "use 100 ms to 60 s",
            ],
        ),
        (
            "[isacs]\nbalance_period = \"0s\"\n",
            [
                "p.toml:2: isacs.balance_period = 0 ns",
                "use 100 ms to 60 s",
            ],
        ),
        (
            "[ische]\n[ische.automatic]\nevents_per_s = 0\n",
            [
                "p.toml:3: ische.automatic.events_per_s = 0;",
                "use 1 to 1000000",
            ],
        ),
        (
            "[ische.automatic]\ncpu_max_permille = 70000\n",
            [
                "p.toml:2: ische.automatic.cpu_max_permille = 70000;",
                "use 0 to 1000",
            ],
        ),
        (
            "[ische.automatic]\nperiods = 0\n",
            ["p.toml:2: ische.automatic.periods = 0;", "use 1 to 1000"],
        ),
        (
            "[ische.automatic]\nevents_per_s = -1\n",
            [
                "p.toml:2: ische.automatic.events_per_s: ",
                "expected a whole number",
            ],
        ),
        (
            "[credit1]\nidle_takes = \"over\"\n",
            ["p.toml:2: credit1.idle_takes: ", "`under` or `anybody`"],
        ),
    ] {
        let said = Config::parse(text, "p.toml").unwrap_err().to_string();
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn an_empty_file_is_the_published_system() {
    let config = Config::parse("", "f").unwrap();
    assert_eq!(
        config.credit1.settings(),
        policy::host::credit::credit1::Settings::default()
    );
    assert_eq!(
        config.credit2.settings(),
        policy::host::credit::credit2::Settings::default()
    );
    assert_eq!(
        config.vslicer.settings(),
        policy::host::vslicer::Settings::default()
    );
    assert_eq!(
        config.ische.settings(&config.credit1),
        policy::host::ische::Settings::default()
    );
    assert_eq!(config.ische.automatic(), None);
}

#[test]
fn whom_an_idle_pcpu_takes_is_credit1s_and_not_isches() {
    let config = Config::parse("[credit1]\nidle_takes = \"under\"\n", "f").unwrap();
    let stays = |rules: Rules| load::settings(&rules).unwrap().over_stays;
    assert_eq!(stays(Rules::Credit1(config.credit1.settings())), 1);
    assert_eq!(
        stays(Rules::Ische(config.ische.settings(&config.credit1))),
        0
    );
    let published = Config::default().credit1.settings();
    assert_eq!(stays(Rules::Credit1(published)), 0);
}

#[test]
fn dilation_reaches_every_time_of_every_policy() {
    let file = r#"
        [credit1]
        slice = "20ms"
        zero_is_under = true
        [isacs]
        balances = true
    "#;
    let config = Config::parse(file, "f.toml").unwrap();
    let slow = config.clone().dilated(20);
    let times = |config: &Config| {
        let credit1 = config.credit1.settings();
        let credit2 = config.credit2.settings();
        let vslicer = config.vslicer.settings();
        let ische = config.ische.settings(&config.credit1);
        let isacs = config.isacs.settings();
        [
            credit1.slice,
            credit1.boost_slice,
            credit1.refill_period,
            credit1.credit_limit,
            credit2.slice,
            credit2.default_credit,
            config.credit2.balances_every().unwrap(),
            vslicer.slice,
            vslicer.micro,
            ische.general_slice,
            ische.io_slice,
            isacs.slice,
            isacs.default_credit,
            isacs.cutoff,
            isacs.boost_unit,
            config.isacs.balances_every().unwrap(),
        ]
    };
    assert_eq!(times(&slow), times(&config).map(|time| time * 20));
    assert_eq!(times(&slow)[0], units::Ns::from_ms(400));
    assert!(slow.credit1.zero_is_under.unwrap());
    assert_eq!(times(&config.clone().dilated(1)), times(&config));
}
