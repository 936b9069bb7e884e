//! Applies the layers of a configuration: flag over environment variable over file over default.

mod entries;
pub(super) mod file;
mod tier;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use shoal_base::secret::Secret;
use shoal_base::small_file;
use shoal_net::secret_headers::{self, HEADERS_MAX};

use self::entries::EntryReader;
use self::file::{Assignment, File};
use super::check;
use super::problem::{ConfigError, Problem, Provenance, Report};
use super::settings::{ConfigDraft, Holds, REMOVED, SECRETS, SETTINGS, Setting, position, variable_of};
use super::value::RawValue;
use super::{Config, Role};

/// The environment variable with the path of the configuration file, used if no flag gives one.
pub const FILE_VARIABLE: &str = "SHOAL_CONFIG";

/// The hint for headers that cannot be read.
const HEADERS_HINT: &str = "write a name, a colon and a value on each line";

/// The sources of a configuration. They are not shown, because variables may hold secrets of this program or
/// of others.
#[derive(Default)]
pub struct Sources {
    /// The role whose settings are validated.
    pub role: Role,
    /// `--config`; without it the file that [`FILE_VARIABLE`] names, if any.
    pub file: Option<PathBuf>,
    /// True if an empty file is an error. During a reload, an empty file is one that is still being written.
    pub refuses_empty: bool,
    /// Environment variables; those that do not begin with `SHOAL_` are ignored.
    pub variables: Vec<(String, String)>,
    /// Command-line flags without dashes, and their values.
    pub flags: Vec<(String, String)>,
}

/// A valid configuration.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration in force.
    pub config: Config,
    /// Warnings for the operator.
    pub warnings: Vec<Problem>,
}

impl Sources {
    /// Creates sources with the environment variables of this process and nothing else.
    pub fn of_process() -> Self {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        Self {
            variables: variables.collect(),
            ..Self::default()
        }
    }

    fn file(&self) -> Option<PathBuf> {
        let mut variables = self.variables.iter();
        let variable = variables.find(|(name, value)| name == FILE_VARIABLE && !value.is_empty());
        self.file.clone().or_else(|| Some(variable?.1.clone().into()))
    }
}

impl Config {
    /// Returns the names of the tiers.
    pub fn tier_names(&self) -> Vec<&str> {
        self.tiers.iter().map(|tier| &*tier.name).collect()
    }

    /// Loads, layers and validates a configuration.
    ///
    /// # Errors
    ///
    /// Fails with every problem of the configuration, not only the first.
    pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
        Self::load_over(Self::default(), sources)
    }

    /// Like [`Self::load`], with defaults from the caller, whose lists are not used.
    ///
    /// # Errors
    ///
    /// Fails as [`load`](Self::load) does.
    pub fn load_over(defaults: Self, sources: &Sources) -> Result<Loaded, ConfigError> {
        let mut loader = Loader {
            draft: ConfigDraft::over(defaults),
            ..Loader::default()
        };
        loader.run(sources);
        let Report {
            mut problems,
            strangers,
            warnings,
        } = loader.report;
        problems.extend(strangers);
        if problems.is_empty() {
            return Ok(Loaded {
                config: loader.draft.config,
                warnings,
            });
        }
        problems.sort_by_key(|problem| match problem.provenance {
            Provenance::File { line, .. } => (0, line),
            Provenance::Env(_) => (1, 0),
            Provenance::Flag(_) => (2, 0),
            Provenance::Default => (3, 0),
        });
        Err(ConfigError { problems })
    }
}

#[derive(Default)]
struct Loader {
    draft: ConfigDraft,
    report: Report,
}

impl Loader {
    fn run(&mut self, sources: &Sources) {
        let mut file = sources
            .file()
            .map(|path| self.read_file(&path, sources.refuses_empty))
            .unwrap_or_default();
        self.apply(std::mem::take(&mut file.assignments));
        let variables = self.variables(sources);
        self.apply(variables);
        let flags = sources.flags.iter().map(flag).collect();
        self.apply(flags);

        self.read_lists(&file);
        self.read_secret_files();
        // A value that cannot be parsed would be validated as if it were the default.
        if self.report.problems.is_empty() {
            check::check(&self.draft, &file, sources.role, &mut self.report);
        }
        // The endpoint identifies the lake in digests of objects, so it is normalized.
        let lake = &mut self.draft.config.lake.endpoint;
        for url in self.draft.config.lookup.nodes.iter_mut().chain([lake]) {
            url.truncate(url.trim_end_matches('/').len());
        }
    }

    /// Reads the entries of all lists. Those that are invalid are left out.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the path of a method is not general over the lifetime of the entry"
    )]
    fn read_lists(&mut self, file: &File) {
        self.draft.config.freshness.rules =
            self.list(file, "[[freshness.rule]]", |entry| entry.freshness_rule());
        self.draft.config.write.rules = self.list(file, "[[write.rule]]", |entry| entry.write_rule());
        self.draft.config.tiers = self.list(file, "[[tier]]", |entry| entry.tier());
        self.draft.config.hints.rules = self.list(file, "[[hints.rule]]", |entry| entry.hint_rule());
        self.draft.config.hints.tables = self.list(file, "[[hints.table]]", |entry| entry.hint_table());
        self.draft.config.lookup.places = self.list(file, "[[lookup.place]]", |entry| entry.place());
        self.draft.config.identities = self.list(file, "[[identity]]", |entry| entry.identity());
        self.draft.config.key_sources = self.list(file, "[[key_source]]", |entry| entry.key_source());
        self.draft.config.quotas = self.list(file, "[[quota]]", |entry| entry.quota());
    }

    fn list<T>(&mut self, file: &File, title: &str, read: fn(&mut EntryReader<'_>) -> Option<T>) -> Vec<T> {
        let entries = file.list(title);
        entries
            .filter_map(|entry| read(&mut EntryReader { entry, loader: self }))
            .collect()
    }

    fn read_file(&mut self, path: &Path, refuses_empty: bool) -> File {
        match small_file::read_text(path) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && !refuses_empty => File::default(),
            Ok(text) => {
                let file = file::read(path, &text, &mut self.report);
                if file.holds_secrets() {
                    let name = "the configuration file, which holds a secret,";
                    self.warn_if_public(path, &Provenance::Default, name);
                }
                file
            }
            Err(error) => {
                let file = path.display();
                let what = format!("the configuration file {file} cannot be read: {error}");
                let hint = "name it with --config FILE";
                self.report
                    .problems
                    .push(Problem::new(&Provenance::Default, what, hint));
                File::default()
            }
        }
    }

    /// Applies one layer over the layers below it.
    fn apply(&mut self, layer: Vec<Assignment>) {
        self.replace_secrets(&layer);
        for Assignment {
            position,
            given,
            provenance,
        } in layer
        {
            let setting = &SETTINGS[position];
            match (setting.assign)(&mut self.draft, &given) {
                Ok(()) => self.draft.provenances[position] = provenance,
                Err(fault) => {
                    let name = format!("[{}] {}", setting.section, setting.key);
                    self.report.problems.push(fault.of(name, &provenance));
                }
            }
        }
    }

    /// A secret given inline or as a file replaces a secret that a lower layer gave in the other form.
    fn replace_secrets(&mut self, layer: &[Assignment]) {
        for secret in &SECRETS {
            let given = |key: &str| {
                let position = position(secret.section, key)?;
                let is_empty = |given: &RawValue| matches!(given, RawValue::Bare(text) if text.is_empty());
                let written = |one: &&Assignment| one.position == position && !is_empty(&one.given);
                layer.iter().find(written).map(|one| &one.provenance)
            };
            let (inline, file) = (given(secret.key()), given(secret.file_key));
            if let (Some(_), Some(provenance)) = (inline, file) {
                let title = format!("[{}]", secret.section);
                self.report
                    .problems
                    .push(both_secrets(&title, secret.key(), provenance));
            }
            if inline.or(file).is_some() {
                let (inline, file) = (secret.of)(&mut self.draft);
                (*inline, *file) = (None, None);
            }
        }
    }

    fn variables(&mut self, sources: &Sources) -> Vec<Assignment> {
        let mut layer = Vec::new();
        let ours = sources
            .variables
            .iter()
            .filter(|(name, _)| name.starts_with("SHOAL_") && name != FILE_VARIABLE);
        for (name, value) in ours {
            let provenance = Provenance::Env(name.clone());
            match SETTINGS.iter().position(|setting| setting.variable() == *name) {
                Some(position) => layer.push(Assignment::bare(position, value, provenance)),
                None => self.unknown_variable(name, &provenance, sources.role),
            }
        }
        layer
    }

    /// Rejects a misspelled variable like a misspelled key. A variable that resembles no known one causes
    /// only a warning, because Kubernetes sets `SHOAL_SERVICE_HOST` and others in every container if there is
    /// a service called `shoal`.
    fn unknown_variable(&mut self, name: &str, provenance: &Provenance, role: Role) {
        let mut removed = REMOVED.iter();
        if let Some((section, key, hint)) =
            removed.find(|(section, key, _)| variable_of(section, key) == name)
        {
            let what = format!("[{section}] {key} was removed");
            self.report.strangers.push(Problem::new(provenance, what, *hint));
            return;
        }
        let unknown = |hint: String| Problem::new(provenance, "unknown variable", hint);
        if let Some(known) = nearest_variable(name) {
            self.report
                .strangers
                .push(unknown(format!("did you mean {known}?")));
        } else {
            let verb = role.verb();
            let hint = format!("it is ignored; `shoal {verb} --help` names those that are read");
            self.report.warnings.push(unknown(hint));
        }
    }

    fn read_secret_files(&mut self) {
        for secret in &SECRETS {
            let Some(path) = (secret.of)(&mut self.draft).1.take() else {
                continue;
            };
            let key = secret.file_key;
            let provenance = self.draft.provenance(secret.section, key).clone();
            let read = match secret.holds {
                Holds::Secret => self.read_secret(key, &path, &provenance),
                Holds::Headers => self.read_headers(key, &path, &provenance),
                Holds::SecretAndPrevious => {
                    let mut secrets = self.read_secrets(key, &path, &provenance, 2).into_iter();
                    let current = secrets.next();
                    self.draft.config.cooperation.previous_secret_key = secrets.next();
                    current
                }
            };
            *(secret.of)(&mut self.draft).0 = read;
        }
    }

    /// Reads headers for a service from a file, as one secret.
    fn read_headers(&mut self, key: &str, path: &Path, provenance: &Provenance) -> Option<Secret> {
        let lines = self.read_secrets(key, path, provenance, HEADERS_MAX);
        let lines: Vec<&str> = lines.iter().map(Secret::expose).collect();
        if lines.is_empty() {
            return None;
        }
        let text = lines.join("\n");
        if let Err(line) = secret_headers::read(&text) {
            let what = format!("{key} {} has headers whose line {line} is none", path.display());
            self.report
                .problems
                .push(Problem::new(provenance, what, HEADERS_HINT));
        }
        Some(Secret::new(text))
    }

    /// Reads a secret from a file.
    fn read_secret(&mut self, key: &str, path: &Path, provenance: &Provenance) -> Option<Secret> {
        self.read_secrets(key, path, provenance, 1).pop()
    }

    /// Reads at most `most` secrets from a file, one a line, without the trailing newline that editors add.
    fn read_secrets(&mut self, key: &str, path: &Path, provenance: &Provenance, most: usize) -> Vec<Secret> {
        let refuse = |why: String| {
            let hint = "it should hold the secret and nothing else, readable by the user that runs shoal";
            Problem::new(provenance, format!("{key} {} {why}", path.display()), hint)
        };
        let text = match small_file::read_text(path) {
            Ok(text) => text,
            Err(error) => {
                self.report
                    .problems
                    .push(refuse(format!("cannot be read: {error}")));
                return Vec::new();
            }
        };
        let lines: Vec<&str> = text.trim_end_matches(['\n', '\r']).lines().collect();
        if !(1..=most).contains(&lines.len()) || lines.contains(&"") {
            let what = match most {
                1 => "is not one line",
                2 => "is not one line or two",
                _ => "has no line, an empty one, or too many",
            };
            self.report.problems.push(refuse(what.into()));
            return Vec::new();
        }
        self.warn_if_public(path, provenance, key);
        lines.into_iter().map(Secret::new).collect()
    }

    fn warn_if_public(&mut self, path: &Path, provenance: &Provenance, name: &str) {
        let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o004 != 0 {
            let path = path.display();
            let what = format!("{name} {path} can be read by every user of this machine");
            let hint = format!("chmod 600 {path}");
            self.report.warnings.push(Problem::new(provenance, what, hint));
        }
    }
}

fn flag((name, value): &(String, String)) -> Assignment {
    let names_it = |setting: &Setting| setting.flag().as_deref() == Some(name.as_str());
    let position = SETTINGS
        .iter()
        .position(names_it)
        .expect("flags are read off the table");
    Assignment::bare(position, value, Provenance::Flag(format!("--{name}")))
}

fn both_secrets(title: &str, key: &str, provenance: &Provenance) -> Problem {
    let what = format!("{title} has both {key} and {key}_file");
    Problem::new(provenance, what, "keep one of the two")
}

/// Returns the known variable that `name` probably misspells.
fn nearest_variable(name: &str) -> Option<String> {
    let known = SETTINGS
        .iter()
        .map(Setting::variable)
        .chain([FILE_VARIABLE.into()]);
    known
        .map(|known| (strsim::osa_distance(name, &known), known))
        .filter(|(slips, _)| *slips <= 2)
        .min()
        .map(|(_, known)| known)
}
