// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policy `vslicer`: what the file may say. The rules are `policy::host::vslicer`.

use policy::host::vslicer;
use serde::Deserialize;

use crate::config::Time;

/// `[vslicer]` of the file. Its latency-sensitive VMs are those of class `io`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vslicer {
    /// What each vCPU gets per round.
    pub slice: Option<Time>,
    /// A turn of a latency-sensitive vCPU.
    pub micro: Option<Time>,
}

impl Vslicer {
    pub(crate) fn dilated(self, by: u32) -> Self {
        let now = self.settings();
        Self {
            slice: Time::dilated(now.slice, by),
            micro: Time::dilated(now.micro, by),
        }
    }

    /// The rules with these changes.
    #[must_use]
    pub fn settings(&self) -> vslicer::Settings {
        let default = vslicer::Settings::default();
        vslicer::Settings {
            slice: self.slice.map_or(default.slice, |time| time.0),
            micro: self.micro.map_or(default.micro, |time| time.0),
        }
    }
}
