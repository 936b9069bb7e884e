//! The `shoal` binary. Each subcommand is a file in `cli`.

mod allocator;
mod cli;
mod name_service;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::configure();
    name_service::configure();
    cli::main()
}
