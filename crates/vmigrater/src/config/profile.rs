// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two named sets of values.

use std::fmt;
use std::str::FromStr;

use guest::settings::Settings;

/// A named set of values for everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// Ours.
    #[default]
    Default,
    /// The published system's, where it states one.
    Published,
}

impl Profile {
    /// The settings of this profile; a file and flags go on top.
    pub(crate) fn settings(self) -> Settings {
        match self {
            Self::Default => Settings::default(),
            Self::Published => Settings::published(),
        }
    }

    /// For messages.
    pub(crate) fn expected() -> String {
        "\"default\" or \"published\"".into()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Published => "published",
        })
    }
}

impl FromStr for Profile {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "default" => Ok(Self::Default),
            "published" => Ok(Self::Published),
            _ => Err(()),
        }
    }
}
