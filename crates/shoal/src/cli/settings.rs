//! Every setting of the configuration as a flag: `[store] capacity` is `--store-capacity`.

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::config::SETTINGS;

/// The settings given as flags, and their values as text.
#[derive(Clone, Debug, Default)]
pub(super) struct SettingFlags(pub(super) Vec<(String, String)>);

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        SETTINGS
            .iter()
            .fold(command, |command, setting| match setting.flag() {
                None => command,
                Some(flag) => command.arg(
                    Arg::new(flag.clone())
                        .long(flag)
                        .value_name("VALUE")
                        .help(format!("{} [env: {}]", setting.doc, setting.variable()))
                        .help_heading(format!("[{}]", setting.section))
                        // `-h` stays one screen; `--help` shows them all.
                        .hide_short_help(true),
                ),
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |flag: String| {
            matches
                .get_one::<String>(&flag)
                .map(|value| (flag, value.clone()))
        };
        Ok(Self(
            SETTINGS
                .iter()
                .filter_map(|setting| given(setting.flag()?))
                .collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
