// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the trace to a file.

use std::fs::File;
use std::io;
use std::io::BufWriter;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context;
use libbpf_rs::RingBuffer;

use super::ROUND;
use super::lock;
use crate::trace::MAGIC;

/// Where the trace goes, if somewhere, and what went wrong there.
pub(crate) struct Recorder(Mutex<(Option<BufWriter<File>>, Option<io::Error>)>);

impl Recorder {
    /// To this file, which begins anew.
    pub(crate) fn new(path: Option<&Path>) -> anyhow::Result<Self> {
        let writer = path.map(open).transpose()?;
        Ok(Self(Mutex::new((writer, None))))
    }

    /// What goes wrong is told by [`Self::flush`]: the caller is called by libbpf.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let (writer, failed) = &mut *lock(&self.0);
        if let Some(writer) = writer
            && let Err(error) = writer.write_all(bytes)
        {
            *failed = Some(error);
        }
    }

    /// Takes what the kernel's side says within a [`ROUND`]; all of the trace in it is in the
    /// file then.
    ///
    /// # Errors
    /// It cannot be read, or not be written.
    pub(crate) fn hear(&self, rings: &RingBuffer<'_>) -> anyhow::Result<()> {
        let cannot = "cannot read the kernel's events";
        match rings.poll(ROUND) {
            Ok(()) => {}
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context(cannot),
        }
        rings.consume().context(cannot)?;
        self.flush()
    }

    /// All of it is in the file now.
    ///
    /// # Errors
    /// It could not be written, now or before.
    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        let (writer, failed) = &mut *lock(&self.0);
        if let Some(writer) = writer
            && let Err(error) = writer.flush()
        {
            *failed = Some(error);
        }
        match failed.take() {
            Some(error) => Err(error).context("cannot write the trace; is the disk full?"),
            None => Ok(()),
        }
    }
}

fn open(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let cannot = || format!("cannot write the trace to {}", path.display());
    let mut writer = BufWriter::new(File::create(path).with_context(cannot)?);
    writer.write_all(&MAGIC).with_context(cannot)?;
    Ok(writer)
}
