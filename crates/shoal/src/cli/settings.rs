//! Every setting of the configuration as a flag: `[store] capacity` is `--store-capacity`.

use std::path::PathBuf;

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use shoal_node::config::{Loaded, Role, SETTINGS, Setting, Sources};

use super::failure::print_warnings;
use super::output::print;

/// The configuration of `shoal serve`.
pub(super) type ConfiguredNode = Configured<false>;

/// The configuration of `shoal lookup`.
pub(super) type ConfiguredLookup = Configured<true>;

/// The configuration of a subcommand, for a node or for the name server.
#[derive(Debug, Args)]
pub(super) struct Configured<const IS_LOOKUP: bool> {
    /// The configuration file; without it, variables, flags and defaults apply
    ///
    /// The variable `SHOAL_CONFIG` can name it, too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<IS_LOOKUP>,
}

const fn role(is_lookup: bool) -> Role {
    if is_lookup { Role::Lookup } else { Role::Node }
}

impl<const IS_LOOKUP: bool> Configured<IS_LOOKUP> {
    /// Returns the sources of the configuration.
    pub(super) fn sources(self) -> Sources {
        Sources {
            role: role(IS_LOOKUP),
            file: self.config,
            flags: self.settings.0,
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
struct SettingFlags<const IS_LOOKUP: bool>(Vec<(String, String)>);

/// Returns the settings that the subcommand reads.
fn settings(is_lookup: bool) -> impl Iterator<Item = &'static Setting> {
    let settings = SETTINGS.iter();
    settings.filter(move |setting| role(is_lookup).reads(setting.section))
}

impl<const IS_LOOKUP: bool> Args for SettingFlags<IS_LOOKUP> {
    fn augment_args(command: Command) -> Command {
        settings(IS_LOOKUP).fold(command, |command, setting| match setting.flag() {
            None => command,
            Some(flag) => command.arg(
                Arg::new(flag.clone())
                    .long(flag)
                    .value_name("VALUE")
                    .long_help(format!("{} [env: {}]", setting.doc, setting.variable()))
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

impl<const IS_LOOKUP: bool> FromArgMatches for SettingFlags<IS_LOOKUP> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |flag: String| {
            matches
                .get_one::<String>(&flag)
                .map(|value| (flag, value.clone()))
        };
        let settings = settings(IS_LOOKUP);
        Ok(Self(
            settings.filter_map(|setting| given(setting.flag()?)).collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
