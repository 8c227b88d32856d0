// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root-only UNIX socket: one connection, one report as JSON, closed.

mod client;
mod server;

#[cfg(test)]
pub(crate) use client::ClientError;
pub(crate) use client::fetch;
pub(crate) use server::Server;
pub(crate) use server::ServerError;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::report as report_for_tests;
