# SPDX-License-Identifier: Apache-2.0 OR MIT
# Shared by the scripts beside it; to be sourced, not run.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# rustup's directory is not on the PATH of a make that root started by sudo.
PATH="${HOME:-/root}/.cargo/bin:$PATH"
export PATH

say() {
	printf '%s\n' "$*"
}

# One line that says what is wrong and how to put it right.
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

is_root() {
	[ "$(id -u)" = 0 ]
}
