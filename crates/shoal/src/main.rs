//! The one binary. Everything it can do is a verb in `shoal::cli`.

use std::process::ExitCode;

/// Worth up to 6% of a 4 KiB hit over the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    shoal::cli::main()
}
