//! The one binary. Everything it can do is a verb in `shoal::cli`.

mod allocator;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::configure();
    shoal::cli::main()
}
