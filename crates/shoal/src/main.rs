//! The one binary. Everything that it can do is a verb in `cli`.

mod allocator;
mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::configure();
    cli::main()
}
