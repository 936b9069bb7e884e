//! Every setting of the configuration as a flag: `[store] capacity` is `--store-capacity`.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use shoal_node::config::{Loaded, Role, SETTINGS, Setting, Sources};

use super::failure::print_warnings;
use super::output::print;

/// A subcommand with flags for settings.
pub(super) trait Verb: Clone + fmt::Debug + Send + Sync + 'static {
    /// The role of its process.
    const ROLE: Role;
}

/// `shoal serve`
#[derive(Clone, Debug)]
pub(super) struct ServeVerb;

/// `shoal lookup`
#[derive(Clone, Debug)]
pub(super) struct LookupVerb;

impl Verb for ServeVerb {
    const ROLE: Role = Role::Node;
}

impl Verb for LookupVerb {
    const ROLE: Role = Role::Lookup;
}

/// The configuration of a subcommand.
#[derive(Debug, Args)]
pub(super) struct Configured<V: Verb> {
    /// The configuration file; without it, variables, flags and defaults apply
    ///
    /// The variable `SHOAL_CONFIG` can name it, too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<V>,
}

impl<V: Verb> Configured<V> {
    /// Returns the sources of the configuration.
    pub(super) fn sources(self) -> Sources {
        Sources {
            role: V::ROLE,
            file: self.config,
            flags: self.settings.given,
            ..Sources::of_process()
        }
    }
}

/// Prints the warnings and the effective configuration, with secrets hidden.
pub(super) fn print_checked(loaded: &Loaded, role: Role, as_json: bool) {
    print_warnings(&loaded.warnings);
    if as_json {
        print(&format!("{:#}\n", loaded.config.to_json(role)));
    } else {
        print(&loaded.config.to_toml(role));
    }
}

/// The settings given as flags, with their values as text.
#[derive(Clone, Debug)]
pub(super) struct SettingFlags<V> {
    given: Vec<(String, String)>,
    verb: PhantomData<V>,
}

/// Returns the settings that the subcommand reads.
fn settings<V: Verb>() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| V::ROLE.reads(setting.section))
}

impl<V: Verb> Args for SettingFlags<V> {
    fn augment_args(command: Command) -> Command {
        settings::<V>().fold(command, |command, setting| match setting.flag() {
            None => command,
            Some(flag) => command.arg(
                Arg::new(flag.clone())
                    .long(flag)
                    .value_name("VALUE")
                    .help(format!("{} [env: {}]", setting.doc, setting.variable()))
                    .help_heading(format!("[{}]", setting.section))
                    // `-h` fits on one screen; `--help` lists them all.
                    .hide_short_help(true),
            ),
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<V: Verb> FromArgMatches for SettingFlags<V> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |flag: String| {
            matches
                .get_one::<String>(&flag)
                .map(|value| (flag, value.clone()))
        };
        Ok(Self {
            given: settings::<V>()
                .filter_map(|setting| given(setting.flag()?))
                .collect(),
            verb: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
