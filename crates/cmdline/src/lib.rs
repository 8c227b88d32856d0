// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the programs' command lines have in common.
//!
//! What is wrong with one is told as everything else is: in one line with the cause and the
//! way out, which a script or a journal can keep. clap says it in several, with blank ones.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// The command line; or, if there is nothing more to do, the exit code, after what there is to
/// say: help and version as clap has them, what is wrong in one line.
///
/// # Errors
/// Help or version was asked for (0), or it is wrong (2).
pub fn parse<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| {
        match line(&error) {
            Some(line) => eprintln!("{}: {line}", C::command().get_name()),
            // Nobody reads it; nothing to be done about that.
            None => drop(error.print()),
        }
        u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

/// What is wrong, in one line; `None`: nothing is, it is help or the version.
fn line(error: &clap::Error) -> Option<String> {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        return None;
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    // Paragraphs: what is wrong, values that would be right, usage, where help is.
    let mut parts: Vec<String> = vec![String::new()];
    for words in text.lines().map(str::trim) {
        match parts.last_mut() {
            Some(part) if !words.is_empty() => {
                if !part.is_empty() {
                    part.push(' ');
                }
                part.push_str(words);
            }
            _ => parts.push(String::new()),
        }
    }
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    Some(parts.map(plain).collect::<Vec<_>>().join("; "))
}

/// A part of a line, without what makes a paragraph of it.
fn plain(part: String) -> String {
    let part = part.trim_end_matches('.');
    match part.strip_prefix("For more information, ") {
        Some(help) => help.to_owned(),
        None => part.replacen("Usage: ", "usage: ", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "tried", version, arg_required_else_help = true)]
    struct Tried {
        #[arg(long, value_parser = ["slow", "quick"])]
        speed: Option<String>,
        #[arg(long)]
        every: Option<u32>,
        #[arg(required_unless_present = "speed")]
        file: Option<String>,
    }

    fn told(words: &[&str]) -> Option<String> {
        let words = ["tried"].iter().chain(words);
        line(&Tried::try_parse_from(words).unwrap_err())
    }

    #[test]
    fn what_is_wrong_is_one_line_with_a_way_out() {
        for (words, parts) in [
            (
                &["--speed=fast"][..],
                &["invalid value 'fast' for '--speed", "slow, quick"][..],
            ),
            (
                &["--speed=quik"],
                &["; tip: a similar value exists: 'quick'; try '--help'"],
            ),
            (&["--speed=a\n\nb"], &["invalid value 'a; b'"]),
            (&["--quick"], &["unexpected argument '--quick' found"]),
            (
                &["--every=2"],
                &["required arguments were not provided: <FILE>; usage: tried "],
            ),
            (&["--every=2s", "x"], &["invalid value '2s' for '--every"]),
            (&["--every"], &["a value is required for '--every"]),
        ] {
            let said = told(words).unwrap();
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
            assert!(said.ends_with("; try '--help'"), "{said}");
            assert!(!said.contains("error:") && !said.contains("  "), "{said}");
        }
    }

    #[test]
    fn help_and_version_are_claps() {
        for words in [&["--help"][..], &["--version"], &[]] {
            assert_eq!(told(words), None, "{words:?}");
        }
    }
}
