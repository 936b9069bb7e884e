//! `shoal completions` and `shoal man`: what is installed beside the program, made from its own help.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;
use super::failure::Failure;

const COMPLETIONS_HELP: &str = "Examples:
  shoal completions bash > /etc/bash_completion.d/shoal
  shoal completions zsh > \"${fpath[1]}/_shoal\"
  shoal completions fish > ~/.config/fish/completions/shoal.fish";

/// Print what a shell needs to complete commands and flags
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub(super) struct Completions {
    /// The shell that reads it
    shell: Shell,
}

/// Write the manual pages: one for each command
#[derive(Debug, Args)]
#[command(after_help = "Example: shoal man /usr/local/share/man/man1")]
pub(super) struct Man {
    /// The folder that gets them; it is made if need be
    folder: PathBuf,
}

impl Completions {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "shoal", &mut script);
        let written = io::stdout().write_all(&script);
        written.map_err(|error| Failure::new("the completions cannot be written", &error))
    }
}

impl Man {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let written = fs::create_dir_all(&self.folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &self.folder));
        let what = || format!("the manual pages cannot be written to {}", self.folder.display());
        written.map_err(|error| Failure::new(&what(), &error))
    }
}
