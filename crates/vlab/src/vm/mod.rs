// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual machines with Debian kernels.
