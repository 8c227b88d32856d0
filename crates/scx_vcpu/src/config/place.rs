// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in a policy file something is: what an error says in one line instead of the
//! parser's picture. Pure.

/// The file and the line, if it is known.
pub(super) fn at(name: &str, line: Option<usize>) -> String {
    line.map_or_else(|| name.to_owned(), |line| format!("{name}:{line}"))
}

/// Line of a byte of the text, from 1.
pub(super) fn line_at(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().iter().take(byte);
    1 + before.filter(|byte| **byte == b'\n').count()
}

/// The parser's message, after the field that it is about.
pub(super) fn one_line(text: &str, byte: Option<usize>, message: &str) -> String {
    let message = message
        .replace("expected u32", "expected a whole number from 0 up")
        .replace("expected u64", "expected a whole number from 0 up")
        .replace("expected usize", "expected a whole number from 0 up")
        .replace("expected a boolean", "expected true or false")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    match byte.and_then(|byte| field_at(text, byte)) {
        Some(field) => format!("{field}: {message}"),
        None => message,
    }
}

/// The field whose value begins at this byte, with its table.
fn field_at(text: &str, byte: usize) -> Option<String> {
    let mut table = String::new();
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let end = begin + line.len();
        if let Some(name) = header(line) {
            name.clone_into(&mut table);
        }
        if byte < end || end == text.len() {
            let (key, _) = line.split_once('=')?;
            // A key that does not exist is named by the parser.
            if byte <= begin + key.len() {
                return None;
            }
            return Some(join(&table, key.trim()));
        }
        begin = end;
    }
    None
}

/// Line of the field `table.key`, from 1; of tables with the same name in the one with
/// this number. `None` if it is not written in a line of its own, or not at all.
pub(super) fn line_of(text: &str, field: &str, nth: usize) -> Option<usize> {
    let mut table = String::new();
    // How often a table with each line's name has begun.
    let mut begun = 0;
    for (number, line) in text.lines().enumerate() {
        if let Some(name) = header(line) {
            name.clone_into(&mut table);
            begun += usize::from(field.rsplit_once('.').is_some_and(|(of, _)| of == name));
        } else if let Some((key, _)) = line.split_once('=')
            && join(&table, key.trim()) == field
            && begun.saturating_sub(1) == nth
        {
            return Some(number + 1);
        }
    }
    None
}

/// The name of a table that begins in this line.
fn header(line: &str) -> Option<&str> {
    let (name, _) = line.trim().strip_prefix('[')?.split_once(']')?;
    Some(name.trim_start_matches('[').trim())
}

fn join(table: &str, key: &str) -> String {
    if table.is_empty() {
        key.to_owned()
    } else {
        format!("{table}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# weights\n[[vm]]\nmatch = \"a\"\nweight = 1\n\n[[vm]]\n\
        match = \"b\"\n  weight = 70000\n[credit1]\nslice = \"1us\"\n";

    #[test]
    fn a_field_is_found_in_the_table_that_is_meant() {
        assert_eq!(line_of(TEXT, "vm.weight", 0), Some(4));
        assert_eq!(line_of(TEXT, "vm.weight", 1), Some(8));
        assert_eq!(line_of(TEXT, "credit1.slice", 0), Some(10));
        assert_eq!(line_of(TEXT, "credit2.slice", 0), None);
        assert_eq!(
            line_of("credit1.slice = \"1us\"\n", "credit1.slice", 0),
            Some(1)
        );
    }

    #[test]
    fn what_the_parser_says_becomes_one_line_with_its_field() {
        let value = TEXT.find("70000").unwrap();
        assert_eq!(line_at(TEXT, value), 8);
        let said = one_line(TEXT, Some(value), "invalid type,\nexpected u32");
        assert_eq!(
            said,
            "vm.weight: invalid type, expected a whole number from 0 up"
        );
        let key = TEXT.find("slice").unwrap();
        assert_eq!(one_line(TEXT, Some(key), "unknown field"), "unknown field");
        assert_eq!(one_line("", None, "x"), "x");
        assert_eq!(at("f", Some(3)), "f:3");
    }
}
