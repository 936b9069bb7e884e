//! Every setting of the configuration as a flag: `[store] capacity` is `--store-capacity`.

use std::fmt;
use std::marker::PhantomData;

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use shoal_node::config::{Role, SETTINGS, Setting};

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

/// The settings given as flags, with their values as text.
#[derive(Clone, Debug)]
pub(super) struct SettingFlags<V> {
    pub(super) given: Vec<(String, String)>,
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
