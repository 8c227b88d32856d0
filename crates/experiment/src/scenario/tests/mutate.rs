// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texts of this project's scenarios with something wrong in them. Also used where
//! what parses is simulated.

use std::path::Path;

use proptest::prelude::*;

/// The texts of all scenarios.
pub(crate) fn texts() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("the project has scenarios")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    paths.sort();
    let text = |path: &std::path::PathBuf| std::fs::read_to_string(path).expect("a text");
    paths.iter().map(text).collect()
}

/// One thing that goes wrong; numbers say where, modulo what there is.
#[derive(Clone, Debug)]
enum Fault {
    Byte(usize, u8),
    NoByte(usize),
    NoLine(usize),
    TwoLines(usize),
    Swap(usize, usize),
    Number(usize, &'static str),
    Key(usize),
    Word(usize, &'static str),
    Insert(usize, &'static str),
    End(usize),
}

/// What a number becomes.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "2",
    "3",
    "64",
    "257",
    "1024",
    "1025",
    "4294967296",
    "-9223372036854775808",
    "9223372036854775807",
    "99999999999999999999999",
    "1e308",
    "nan",
    "-inf",
    "0.5",
    "007",
    "0x10",
    "true",
    "\"\"",
    "[]",
    "{}",
];
/// What the text of a value becomes.
const WORDS: &[&str] = &[
    "",
    " ",
    "0 s",
    "-1 ms",
    "1 ns",
    "1 ms",
    "1 s",
    "10000 years",
    "18446744073709551616 ns",
    "disk",
    "pulse",
    "reader",
    "echo",
    "parallel",
    "locks",
    "compute",
    "adversary",
    "dodge",
    "fake-io",
    "profile",
    "idle",
    "ssd",
    "hdd",
    "network",
    "driver-domain",
    "far-end",
    "queues = \"per-stream\"\n",
    "io",
    "one-to-one",
    "round-robin",
    "phantom",
    "vanilla",
    "vmigrater",
    "published",
    "xballoon",
    "fifo",
    "credit1",
    "credit2",
    "isacs",
    "ische",
    "jupiter",
    "cosched",
    "vsmtio",
    "fixed",
    "eevdf",
    "$ssd.latency_us",
    "$smt.computing * 4",
    "$hdd.seek_us / 0",
    "$nothing",
    "$ssd.latency_us - 1",
    "\\u0000",
    "\u{1F600}",
];
const PIECES: &[&str] = &[
    "[",
    "]",
    "[[vm]]\n",
    "[[device]]\n",
    "[[load]]\n",
    "[sweep]\n",
    "[sim.policy]\n",
    "slice = \"3 ms\"\n",
    "equation_2 = \"as-printed\"\n",
    "dasl = false\n",
    "dasl_initial = \"2 ms\"\n",
    "pcpus_per_queue = 2\n",
    "settings = { slice = \"2 ms\" }\n",
    "\"sim.policy.slice\" = [\"1 ms\", \"2 ms\"]\n",
    "\"",
    "'''",
    "=",
    "\n",
    "#",
    ".",
    "\u{0}",
    "\u{feff}",
    "name = \"x\"\n",
    "vcpus = 3\n",
    "pins = [0]\n",
    "count = 2\n",
    "threads = 70\n",
    "device = \"disk\"\n",
    "write = true\n",
    "group = true\n",
    "class = \"driver-domain\"\n",
    "\"sim.seed\" = [1, 2]\n",
    "threads_per_core = 2\n",
    "cpu_speed_permille = 50\n",
];

fn fault() -> impl Strategy<Value = Fault> {
    let at = any::<usize>;
    prop_oneof![
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Fault::Byte(at, byte)),
        1 => at().prop_map(Fault::NoByte),
        1 => at().prop_map(Fault::NoLine),
        1 => at().prop_map(Fault::TwoLines),
        1 => (at(), at()).prop_map(|(a, b)| Fault::Swap(a, b)),
        3 => (at(), prop::sample::select(NUMBERS)).prop_map(|(at, n)| Fault::Number(at, n)),
        1 => at().prop_map(Fault::Key),
        3 => (at(), prop::sample::select(WORDS)).prop_map(|(at, word)| Fault::Word(at, word)),
        1 => (at(), prop::sample::select(PIECES)).prop_map(|(at, piece)| Fault::Insert(at, piece)),
        1 => at().prop_map(Fault::End),
    ]
}

/// Ranges of the text that match.
fn runs(text: &str, good: impl Fn(char) -> bool) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, c) in text.char_indices().filter(|(_, c)| good(*c)) {
        match runs.last_mut() {
            Some((_, end)) if *end == at => *end += c.len_utf8(),
            _ => runs.push((at, at + c.len_utf8())),
        }
    }
    runs
}

fn replace(text: &str, (from, to): (usize, usize), by: &str) -> String {
    format!("{}{by}{}", &text[..from], &text[to..])
}

fn apply(text: &str, fault: &Fault) -> String {
    if text.is_empty() {
        return String::new();
    }
    let bytes = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = text.as_bytes().to_vec();
        change(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let lines = |change: &dyn Fn(&mut Vec<&str>)| {
        let mut lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            return String::new();
        }
        change(&mut lines);
        lines.join("\n")
    };
    let in_run = |runs: Vec<(usize, usize)>, at: usize, by: &dyn Fn(&str) -> String| {
        if runs.is_empty() {
            return text.to_owned();
        }
        let run = runs[at % runs.len()];
        replace(text, run, &by(&text[run.0..run.1]))
    };
    match *fault {
        Fault::Byte(at, byte) => bytes(&|bytes| {
            let n = at % bytes.len();
            bytes[n] = byte;
        }),
        Fault::NoByte(at) => bytes(&|bytes| {
            bytes.remove(at % bytes.len());
        }),
        Fault::NoLine(at) => lines(&|lines| {
            lines.remove(at % lines.len());
        }),
        Fault::TwoLines(at) => lines(&|lines| {
            let n = at % lines.len();
            lines.insert(n, lines[n]);
        }),
        Fault::Swap(a, b) => lines(&|lines| {
            let count = lines.len();
            lines.swap(a % count, b % count);
        }),
        Fault::Number(at, by) => in_run(runs(text, |c| c.is_ascii_digit()), at, &|_| by.to_owned()),
        Fault::Key(at) => {
            let keys = text
                .match_indices(" = ")
                .map(|(end, _)| (end, end))
                .collect();
            in_run(keys, at, &|_| "x".to_owned())
        }
        Fault::Word(at, by) => {
            let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
            let words = quotes.chunks_exact(2).map(|q| (q[0] + 1, q[1])).collect();
            in_run(words, at, &|_| by.to_owned())
        }
        Fault::Insert(at, piece) => {
            let mut place = at % (text.len() + 1);
            while !text.is_char_boundary(place) {
                place -= 1;
            }
            replace(text, (place, place), piece)
        }
        Fault::End(at) => bytes(&|bytes| bytes.truncate(at % bytes.len())),
    }
}

/// A scenario of the project with one to three faults.
pub(crate) fn mutated() -> impl Strategy<Value = String> {
    let texts = prop::sample::select(texts());
    (texts, prop::collection::vec(fault(), 1..=3))
        .prop_map(|(text, faults)| faults.iter().fold(text, |text, fault| apply(&text, fault)))
}
