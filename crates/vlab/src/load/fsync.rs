// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab load fsync`: writes one block and waits until the disk has it.
//!
//! What a database's log does: a buffered write of one block, then `fsync`. The
//! thread waits for the file system's own threads as well as for the disk, so it
//! is another kind of waiting than a read: not always with `in_iowait` set, and
//! some of its requests are submitted by others.
//!
//! Databases write their log into files that they have filled before, and so does
//! this load unless `--append` is given. An append makes the file system allocate, and what
//! that takes depends on what the file has become: with ext4 on a disk that is
//! told what is free, the same load did 2500 or 270 appends a second beside compute, for
//! seconds on end, as a worker of the kernel had to discard a block each time or not.
//! A comparison of two such phases compares two files.
//!
//! # Limits
//! The file is one without a name and is written round and round, so that it
//! neither fills the disk nor stays behind; with `--append` blocks are allocated in the first
//! round only.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::mpsc;

use anyhow::Context;
use clap::Args;

use super::Control;
use super::count::Done;
use super::fio::DataFile;
use super::introduce;
use super::now;
use super::run_threads;

/// Writes that are durable before the next one.
#[derive(Args, Clone, Debug)]
pub struct FsyncArgs {
    /// Bytes of one write, in KiB.
    #[arg(long, default_value_t = 4, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub block_kib: u32,
    /// Begin at the start of the file again after so many MiB.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..=65536))]
    pub file_mib: u32,
    /// Let the file grow, instead of writing into one that was filled before.
    #[arg(long)]
    pub append: bool,
    /// Threads, each with its own file.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// A directory on the disk to be written.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Run for so many seconds and print the result, instead of waiting for a window on standard input.
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
}

/// Runs the load.
///
/// # Errors
/// The directory cannot be written, the disk is full, or the protocol is broken.
pub fn run(args: &FsyncArgs) -> anyhow::Result<()> {
    let works = (0..args.threads).map(|_| {
        let args = args.clone();
        Ok(move |control: &Control, tell: &_| work(&args, control, tell))
    });
    run_threads("fsync", works, args.seconds, None)
}

/// A file without a name; the kernel removes it with its last descriptor.
pub(crate) fn unnamed(dir: &Path) -> anyhow::Result<File> {
    let flags =
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fd = rustix::fs::open(dir, flags, mode).with_context(|| {
        let dir = dir.display();
        format!("cannot make an unnamed file in {dir}; give a directory on a local disk with --dir")
    })?;
    Ok(File::from(fd))
}

/// One thread: write, fsync, again.
fn work(
    args: &FsyncArgs,
    control: &Control,
    tell: &mpsc::Sender<u32>,
) -> anyhow::Result<Vec<Done>> {
    let file = if args.append {
        unnamed(&args.dir)?
    } else {
        DataFile::create(&args.dir, args.file_mib, &|| control.stopped())?.into_file()
    };
    // Not zeros, which some disks do not store.
    let block: Vec<u8> = (0..args.block_kib * 1024)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let blocks = u64::from(args.file_mib) * 1024 / u64::from(args.block_kib);
    introduce(tell);
    let mut records = Vec::new();
    control.has_started();
    for nth in (0..blocks.max(1)).cycle() {
        if control.stopped() {
            break;
        }
        let begin = now();
        file.write_all_at(&block, nth * block.len() as u64)
            .and_then(|()| file.sync_all())
            .with_context(|| {
                format!("cannot write in {}; is the disk full?", args.dir.display())
            })?;
        let at = now();
        records.push(Done {
            at,
            latency: at.since(begin),
        });
    }
    Ok(records)
}
