// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every knob through the whole way, and every way a file can be wrong.

use std::os::unix::ffi::OsStrExt;

use super::knobs::Field;
use super::knobs::KNOBS;
use super::knobs::Knob;
use super::*;

fn parse(text: &str) -> Result<Effective, String> {
    from_text("f.toml", text, None).map_err(|error| error.to_string())
}

/// `key = value` with the table that the key needs.
fn assignment(knob: &Knob, value: &str) -> String {
    match knob.key.rsplit_once('.') {
        Some((table, name)) => format!("[{table}]\n{name} = {value}\n"),
        None => format!("{} = {value}\n", knob.key),
    }
}

/// A value that the knob takes and that differs from the default.
fn another_value(knob: &Knob) -> String {
    let ours = knob.value(&Profile::Default.settings());
    let candidates = match &knob.field {
        Field::Switch(_) => vec!["true".into(), "false".into()],
        Field::Duration { min, max, .. } => {
            vec![
                format!("\"{}\"", human::duration(*min)),
                format!("\"{}\"", human::duration(*max)),
            ]
        }
        Field::Percent { min, max, .. } => {
            vec![
                format!("\"{}\"", human::percent(*min)),
                format!("\"{}\"", human::percent(*max)),
            ]
        }
        Field::Count { min, max, .. } => vec![min.to_string(), max.to_string()],
        Field::Optional(_) => vec!["7".into()],
        // Every odd piece between quotation marks.
        Field::Word { expected, .. } => expected()
            .split('"')
            .skip(1)
            .step_by(2)
            .map(|word| format!("\"{word}\""))
            .collect(),
    };
    candidates
        .into_iter()
        .find(|value| Some(value) != ours.as_ref())
        .unwrap()
}

/// Knobs whose extreme values contradict another knob need that one moved too.
fn companion(key: &str) -> &'static str {
    match key {
        "iobound.enter" => "leave = \"0 %\"\n",
        "iobound.window" => "min_accounted = \"0 ns\"\n",
        "slice.window" => "min_cycles = 3\n",
        "xballoon.reserve_max" => "reserve_min = \"0.1 %\"\n",
        "trial.rest_max" => "rest = \"100 ms\"\n",
        "placement.margin_max" => "margin_min = \"0 ns\"\n",
        _ => "",
    }
}

#[test]
fn every_knob_set_in_a_file_shows_and_reads_back() {
    for knob in KNOBS {
        let value = another_value(knob);
        let text = assignment(knob, &value) + companion(knob.key);
        let effective = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", knob.key));
        assert_ne!(
            effective.settings,
            Profile::Default.settings(),
            "{} does nothing",
            knob.key
        );
        let shown = show(&effective);
        let name = knob.key.rsplit('.').next().unwrap();
        assert!(
            shown.contains(&format!("\n{name} = {value}\n")),
            "{} = {value} not in\n{shown}",
            knob.key
        );
        assert_eq!(parse(&shown).as_ref(), Ok(&effective), "{}", knob.key);
    }
}

#[test]
fn both_profiles_read_back() {
    for profile in [Profile::Default, Profile::Published] {
        let effective = from_text("", "", Some(profile)).unwrap();
        assert_eq!(parse(&show(&effective)), Ok(effective));
    }
}

/// The settings' own field names, from their Debug form: a field without a knob
/// could not be set by anybody.
#[test]
fn every_field_of_the_settings_has_a_knob() {
    let settings = Profile::Default.settings();
    let sections = [
        ("heartbeat", format!("{:#?}", settings.heartbeat)),
        ("slice", format!("{:#?}", settings.slice)),
        ("iobound", format!("{:#?}", settings.iobound)),
        ("placement", format!("{:#?}", settings.placement)),
        ("wakeup", format!("{:#?}", settings.wakeup)),
        ("budget", format!("{:#?}", settings.budget)),
        ("trial", format!("{:#?}", settings.trial)),
        ("xballoon", format!("{:#?}", settings.xballoon)),
    ];
    for (section, debug) in &sections {
        let fields: Vec<&str> = debug
            .lines()
            .filter(|line| line.starts_with("    ") && !line.starts_with("     "))
            .filter_map(|line| line.trim().split_once(':').map(|(name, _)| name))
            .collect();
        assert!(!fields.is_empty(), "{debug}");
        for field in fields {
            let key = format!("{section}.{field}");
            let known = KNOBS
                .iter()
                .any(|knob| knob.key == key || knob.key == format!("{key}_permille"));
            assert!(known, "{key} has no knob");
        }
    }
    let top = format!("{settings:#?}");
    let others = [
        "mode",
        "source",
        "steal_map_id",
        // Of test beds only, and no key.
        "steal_stat",
        // Of emulated machines only: --dilation, and no key.
        "dilation",
        // Of reading, not of deciding: its key is placement.completion_prior.
        "completion_prior",
        "estimator",
        "priorities",
        "dry_run",
        "quiet_after",
        "calm_after",
        "bios_in_flight",
    ];
    let fields = top
        .lines()
        .filter(|line| line.starts_with("    ") && !line.starts_with("     "));
    for name in fields.filter_map(|line| line.trim().split_once(':').map(|(name, _)| name)) {
        let known = others.contains(&name) || sections.iter().any(|(section, _)| *section == name);
        assert!(known, "{name} has no knob");
    }
}

#[test]
fn the_defaults_are_within_their_own_ranges() {
    for profile in [Profile::Default, Profile::Published] {
        for knob in KNOBS {
            let Some(value) = knob.value(&profile.settings()) else {
                continue;
            };
            let text = format!("profile = \"{profile}\"\n{}", assignment(knob, &value));
            assert_eq!(
                parse(&text).map(|effective| effective.settings),
                Ok(profile.settings()),
                "{text}"
            );
        }
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let file = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        file == markdown(),
        "docs/configuration.md is out of date; write it with `vmigrater config-reference > docs/configuration.md`"
    );
    for knob in KNOBS {
        assert!(
            file.contains(&format!("| `{}` |", knob.key)),
            "{} missing",
            knob.key
        );
    }
}

#[test]
fn errors_name_place_value_and_what_would_be_right() {
    for (text, message) in [
        (
            "\n[iobound]\nwindow = \"5 h\"",
            "f.toml:3:1: iobound.window = \"5 h\": expected a duration from \"500 us\" to \"1 s\"",
        ),
        (
            "[iobound]\n  window = 5",
            "f.toml:2:3: iobound.window = 5: expected a duration",
        ),
        (
            "iobound.enter = \"130 %\"",
            "f.toml:1:9: iobound.enter = \"130 %\": expected a percentage from \"0.1 %\" to \"100 %\"",
        ),
        (
            "dry_run = 1",
            "f.toml:1:1: dry_run = 1: expected true or false",
        ),
        (
            "source = \"guess\"",
            "source = \"guess\": expected \"auto\" or \"steal-page\" or \"heartbeat\"",
        ),
        ("source = { a = 1 }", "source = { a = 1 }: expected"),
        (
            "steal_map_id = -1",
            "steal_map_id = -1: expected a whole number from 1 to",
        ),
        (
            "budget.burst = 99999999999999999999",
            "budget.burst = 99999999999999999999: expected a whole number",
        ),
        (
            "profile = \"fast\"",
            "f.toml:1:1: profile = \"fast\": expected \"default\" or \"published\"",
        ),
        (
            "heartbeet = 1",
            "f.toml:1:1: unknown key `heartbeet`; `vmigrater run --show-config` lists all keys",
        ),
        (
            "[heartbeat]\nperiode = \"1 ms\"",
            "f.toml:2:1: unknown key `heartbeat.periode`; did you mean `heartbeat.period`?",
        ),
        (
            "[hartbeat]\nperiod = \"1 ms\"",
            "f.toml:1:2: unknown key `hartbeat`",
        ),
        ("a = ", "f.toml:1:5: not valid TOML"),
        (
            "dry_run = true\ndry_run = false",
            "f.toml:2:1: not valid TOML: duplicate key",
        ),
        (
            "tasks = 1",
            "tasks = 1: expected one [[tasks]] section per rule",
        ),
        (
            "[[tasks]]\ncomm = \"a\"",
            "f.toml:1:1: this [[tasks]] section says nothing",
        ),
        (
            "[[tasks]]\npriority = 1",
            "this [[tasks]] section has no `comm`",
        ),
        (
            "[[tasks]]\ncomm = \"a\"\npriority = 1\nignore = true",
            "has both",
        ),
        (
            "[[tasks]]\ncomm = \"sixteen bytes...\"\npriority = 1",
            "f.toml:2:1: comm = \"sixteen bytes...\": expected the first 1 to 15 bytes",
        ),
        (
            "[[tasks]]\ncom = \"a\"",
            "f.toml:2:1: unknown key `com`; did you mean `comm`?",
        ),
        (
            "[iobound]\nenter = \"10 %\"\nleave = \"20 %\"",
            "f.toml: iobound.leave (20 %) is above iobound.enter (10 %)",
        ),
        (
            "[placement]\nmargin = \"600 us\"\nmargin_base = \"1 us\"",
            "f.toml:3:1: placement.margin_base = \"1 us\": has no meaning while",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            error.contains(message),
            "{text:?}\n gave {error}\n want {message}"
        );
        assert!(!error.contains('\n'), "more than one line: {error}");
    }
}

#[test]
fn the_profile_is_underneath_and_the_flag_wins() {
    let text = "profile = \"published\"\nestimator = \"distribution\"\n";
    let effective = parse(text).unwrap();
    assert_eq!(effective.profile, Profile::Published);
    assert_eq!(effective.settings.source, SourceChoice::Heartbeat);
    assert_eq!(
        effective.settings.estimator,
        guest::settings::EstimatorChoice::Distribution
    );
    let flagged = from_text("", text, Some(Profile::Default)).unwrap();
    assert_eq!(flagged.settings, Profile::Default.settings());
}

#[test]
fn flags_override_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    std::fs::write(&path, "source = \"heartbeat\"\nsteal_map_id = 3\n").unwrap();
    let overrides = Overrides {
        file: Some(path),
        source: Some(SourceChoice::StealPage),
        steal_map_id: Some(9),
        dry_run: true,
        ..Overrides::default()
    };
    let settings = load(&overrides).unwrap().settings;
    assert_eq!(settings.source, SourceChoice::StealPage);
    assert_eq!(settings.steal_map_id, Some(9));
    assert!(settings.dry_run);
}

#[test]
fn a_part_that_is_left_out_is_its_knob_turned_off() {
    for (part, name, off, _) in super::part::PARTS {
        let flagged = load(&Overrides {
            without: vec![part],
            ..Overrides::default()
        });
        let (key, value) = off.split_once(" = ").unwrap();
        let (table, key) = key.split_once('.').unwrap();
        let written = parse(&format!("[{table}]\n{key} = {value}\n")).unwrap();
        assert_eq!(flagged.unwrap().settings, written.settings, "{name}");
        assert_ne!(written.settings, Profile::Default.settings(), "{name}");
        let word = clap::ValueEnum::to_possible_value(&part).unwrap();
        assert_eq!(word.get_name(), name);
    }
}

#[test]
fn xballoon_moves_nothing_whatever_is_configured() {
    let effective = load(&Overrides {
        mode: Some(guest::settings::ModeChoice::Xballoon),
        ..Overrides::default()
    });
    let settings = effective.unwrap().settings;
    for (eevdf_slice, mode) in [
        (true, policy::guest::wakeup::Mode::EevdfSlice),
        (false, policy::guest::wakeup::Mode::Fifo),
    ] {
        let support = policy::guest::wakeup::Support {
            eevdf_slice,
            fifo: true,
        };
        let settings = settings.clone().in_force(support);
        let p = settings.placement;
        assert!(!p.push && !p.pull && !p.soon_active && !p.spread && !p.completion);
        assert_eq!(settings.wakeup.mode, mode);
    }
}

#[test]
fn files_that_cannot_be_read_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let load = |path: PathBuf| {
        load(&Overrides {
            file: Some(path),
            ..Overrides::default()
        })
    };
    let error = |path| load(path).unwrap_err().to_string();

    assert!(error(dir.path().join("none")).contains("no such file"));
    assert!(error(dir.path().to_owned()).contains("is a directory; name the file in it"));
    assert!(error("/dev/null".into()).contains("is not a regular file"));

    let path = dir.path().join("latin1");
    std::fs::write(&path, b"# caf\xe9\n").unwrap();
    assert!(error(path).contains("not UTF-8 at 1:6"));

    // A name that is not UTF-8 is a name like any other.
    let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
    std::fs::write(&odd, "x = 1").unwrap();
    assert!(error(odd).contains("unknown key `x`"));
}

/// Every file in which nothing is set means the defaults.
#[test]
fn a_file_that_sets_nothing_means_the_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.toml");
    for text in [
        "",
        "\n\n",
        " \t",
        "# all as it is\n",
        "[trial]\n",
        "\u{feff}",
    ] {
        std::fs::write(&file, text).unwrap();
        let effective = load(&Overrides {
            file: Some(file.clone()),
            ..Overrides::default()
        });
        let effective = effective.unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(effective.settings, Profile::Default.settings(), "{text:?}");
        assert_eq!(effective.profile, Profile::Default, "{text:?}");
    }
}

#[test]
fn task_rules_keep_their_order() {
    let text =
        "[[tasks]]\ncomm = \"a\\\"b\"\npriority = -5\n[[tasks]]\ncomm = \"c\"\nignore = true\n";
    let effective = parse(text).unwrap();
    let rules = &effective.settings.priorities;
    assert_eq!(rules.len(), 2);
    assert_eq!(
        (rules[0].comm_prefix.as_str(), rules[0].priority),
        ("a\"b", Some(-5))
    );
    assert_eq!(
        (rules[1].comm_prefix.as_str(), rules[1].priority),
        ("c", None)
    );
    assert_eq!(parse(&show(&effective)), Ok(effective));
}
