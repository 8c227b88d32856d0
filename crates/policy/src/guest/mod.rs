// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest daemon's decisions, one module per question.

pub mod view;
