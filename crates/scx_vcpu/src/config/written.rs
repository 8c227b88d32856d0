// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which keys a policy file has, and where: for what is said of one that means nothing. Pure.

use toml::de::DeTable;
use toml::de::DeValue;

use super::place;

/// A key that is written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Its table and itself: `credit1.slice`, `ische.automatic.periods`, `vm.weight`.
    pub(crate) key: String,
    /// Of tables with the same name the one with this number, from 0.
    pub(crate) nth: usize,
    /// The file and the line.
    pub(crate) at: String,
}

/// All keys of the text of the file called `name`, by line.
pub(super) fn written(text: &str, name: &str) -> Vec<Written> {
    let mut keys = Vec::new();
    // One that is no TOML has been refused already.
    if let Ok(tables) = DeTable::parse(text) {
        for (table, value) in tables.get_ref() {
            let begins = table.span().start;
            match value.get_ref() {
                DeValue::Array(all) => {
                    for (nth, one) in all.iter().enumerate() {
                        keys_of(table.get_ref(), begins, one.get_ref(), nth, &mut keys);
                    }
                }
                one => keys_of(table.get_ref(), begins, one, 0, &mut keys),
            }
        }
    }
    keys.sort_by_key(|(begins, ..)| *begins);
    keys.into_iter()
        .map(|(begins, key, nth)| Written {
            key,
            nth,
            at: place::at(name, Some(place::line_at(text, begins))),
        })
        .collect()
}

/// The keys of the one that begins at this byte. A table without keys says something by being
/// there: `[ische.automatic]`.
fn keys_of(
    name: &str,
    begins: usize,
    value: &DeValue<'_>,
    nth: usize,
    keys: &mut Vec<(usize, String, usize)>,
) {
    match value {
        DeValue::Table(table) if !table.is_empty() => {
            for (key, value) in table {
                let name = format!("{name}.{}", key.get_ref());
                keys_of(&name, key.span().start, value.get_ref(), nth, keys);
            }
        }
        DeValue::Table(_) if !name.contains('.') => {}
        _ => keys.push((begins, name.to_owned(), nth)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_line_in_every_kind_of_table() {
        let text = "credit2.slice = \"5ms\"\n[credit1]\n[ische.automatic]\n\
            [[vm]]\nmatch = \"a\"\n[[vm]]\nmatch = \"b\"\nweight = 1\n\
            [isacs]\nhardened = true\n";
        let all = written(text, "f");
        let of: Vec<_> = all
            .iter()
            .map(|w| (w.key.as_str(), w.at.as_str()))
            .collect();
        assert_eq!(
            of,
            [
                ("credit2.slice", "f:1"),
                ("ische.automatic", "f:3"),
                ("vm.match", "f:5"),
                ("vm.match", "f:7"),
                ("vm.weight", "f:8"),
                ("isacs.hardened", "f:10"),
            ]
        );
        assert_eq!(all[4].nth, 1);
        // The seed is more than TOML's integers have to be.
        let inline = "\nische = { io_slice = \"20ms\", seed = 18446744073709551615 }\n";
        let all = written(inline, "f");
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|written| written.at == "f:2"), "{all:?}");
    }
}
