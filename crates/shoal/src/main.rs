//! The `shoal` binary. Each subcommand is a file in `cli`.

mod allocator;
mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::configure();
    cli::main()
}
