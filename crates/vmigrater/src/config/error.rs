// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading the file, and everything that can be wrong with it, in one line each.

use std::fmt;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use crate::exit::Exit;
use crate::exit::Failure;

/// A place in the file, both counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    line: usize,
    column: usize,
}

impl Position {
    /// Of the byte `offset` in `text`.
    pub(crate) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// No such file: fine for the default one, an error for one that was named.
    #[error("{}: no such file; correct --config, or leave it out to use {}", .path.display(), super::DEFAULT_FILE)]
    Missing { path: PathBuf },
    /// The file exists but cannot be read.
    #[error("{}: {problem}; {fix}", .path.display())]
    Unreadable {
        path: PathBuf,
        problem: String,
        fix: &'static str,
    },
    /// The text is not TOML.
    #[error("{file}:{at}: not valid TOML: {problem}")]
    Syntax {
        file: String,
        at: Position,
        problem: String,
    },
    /// No knob has this name.
    #[error("{file}:{at}: unknown key `{key}`; {hint}")]
    UnknownKey {
        file: String,
        at: Position,
        key: String,
        hint: String,
    },
    /// A value that its knob does not take.
    #[error("{file}:{at}: {key} = {value}: {expected}")]
    Value {
        file: String,
        at: Position,
        key: String,
        value: String,
        expected: String,
    },
    /// Two values that contradict each other.
    #[error("{}: {problem}", if .file.is_empty() { "configuration" } else { .file })]
    Contradiction { file: String, problem: String },
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Usage, error.to_string(), "")
    }
}

/// The file's text.
pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |problem: String, fix| ConfigError::Unreadable {
        path: path.to_owned(),
        problem,
        fix,
    };
    // A FIFO or a device would block for ever or never end: check before reading.
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ConfigError::Missing {
            path: path.to_owned(),
        },
        _ => unreadable(error.to_string(), "check the path and the permissions"),
    })?;
    if metadata.is_dir() {
        return Err(unreadable("is a directory".into(), "name the file in it"));
    }
    if !metadata.is_file() {
        return Err(unreadable(
            "is not a regular file".into(),
            "name a regular file",
        ));
    }
    let bytes = std::fs::read(path).map_err(|error| {
        unreadable(
            error.to_string(),
            "make it readable for the user that runs the daemon",
        )
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        unreadable(
            format!("not UTF-8 at {}", Position::of(&before, valid)),
            "save it as UTF-8 text",
        )
    })
}
