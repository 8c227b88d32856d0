// SPDX-License-Identifier: Apache-2.0 OR MIT
mod credit1;
mod credit2;
mod mirror;
mod pool;
mod xen;
