//! `shoal completions` and `shoal man`: what is installed beside the program, made from its own help.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use shoal_base::clock;
use time::OffsetDateTime;

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
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let written =
            fs::create_dir_all(&self.folder).and_then(|()| write_pages(&command, &date(), &self.folder));
        let what = || format!("the manual pages cannot be written to {}", self.folder.display());
        written.map_err(|error| Failure::new(&what(), &error))
    }
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &Command, date: &str, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(subcommand, date, folder)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let page = clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .date(date)
        .source(concat!("shoal ", env!("CARGO_PKG_VERSION")))
        .manual("Shoal");
    let mut text = Vec::new();
    page.render(&mut text)?;
    fs::write(folder.join(format!("{name}.1")), text)
}

/// Returns the date that the pages show: that of the sources where a build names it, else today.
fn date() -> String {
    let sources = env::var("SOURCE_DATE_EPOCH")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    let moment = sources.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let moment = moment.unwrap_or_else(|| clock::utc_now().into());
    moment.date().to_string()
}
