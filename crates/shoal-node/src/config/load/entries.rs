//! Reads the entries of lists.

use std::path::PathBuf;
use std::sync::Arc;

use shoal_base::secret::Secret;
use shoal_net::secret_headers;
use shoal_s3::identity::Account;

use super::file::Entry;
use super::{HEADERS_HINT, Loader, both_secrets};
use crate::config::problem::Fault;
use crate::config::value::Value;
use crate::config::{
    FreshnessRule, HintRule, Identity, KeySourceConfig, KeySourceKind, LookupPlace, PackConfig, QuotaConfig,
    QuotaScope, Table, WriteRule,
};

/// Reads the keys of one entry. The loader collects what is wrong with them.
pub(super) struct EntryReader<'a> {
    pub(super) entry: &'a Entry,
    pub(super) loader: &'a mut Loader,
}

impl EntryReader<'_> {
    pub(super) fn freshness_rule(&mut self) -> Option<FreshnessRule> {
        let (prefix, mode) = (self.require("prefix"), self.require("freshness"));
        Some(FreshnessRule {
            prefix: prefix?,
            mode: mode?,
        })
    }

    pub(super) fn write_rule(&mut self) -> Option<WriteRule> {
        let (prefix, mode) = (self.require("prefix"), self.require("mode"));
        let tier = self.optional("tier");
        let lifetime = self.optional("lifetime").unwrap_or_default();
        let fallback = self.optional("fallback").unwrap_or_default();
        let readers = self.optional("readers").unwrap_or_default();
        let flush_as = self.optional("flush_as");
        let pack = self.packing();
        Some(WriteRule {
            prefix: prefix?,
            mode: mode?,
            tier,
            lifetime,
            fallback,
            readers,
            flush_as,
            pack,
        })
    }

    /// Reads how a rule packs. Without `pack = true`, [`Check`](crate::config::check) rejects the other keys.
    fn packing(&mut self) -> Option<PackConfig> {
        let is_on = self.optional("pack").unwrap_or(false);
        let below_bytes = self.optional("pack_below").unwrap_or(PackConfig::BELOW_BYTES);
        let pack_bytes = self.optional("pack_bytes").unwrap_or(PackConfig::PACK_BYTES);
        let idle = self.optional("pack_idle").unwrap_or(PackConfig::IDLE);
        let keeper = if is_on {
            self.require("pack_as")
        } else {
            self.optional("pack_as")
        };
        is_on.then_some(PackConfig {
            below_bytes,
            pack_bytes,
            idle,
            keeper: keeper.unwrap_or_default(),
        })
    }

    /// Returns the value of an optional key; `None` if it is absent or invalid.
    pub(super) fn optional<T: Value>(&mut self, key: &str) -> Option<T> {
        let (given, provenance) = self.entry.written.get(key)?;
        let value = T::read(given);
        let name = || format!("{} {key}", self.entry.title);
        let value = value.map_err(|fault| self.loader.report.problems.push(fault.of(name(), provenance)));
        value.ok()
    }

    /// Returns the value of a key that every entry needs.
    pub(super) fn require<T: Value>(&mut self, key: &str) -> Option<T> {
        if !self.entry.has(key) {
            self.refuse("", &format!("has no {key}"), &format!("add a line: {key} = ..."));
        }
        self.optional(key)
    }

    pub(super) fn hint_rule(&mut self) -> Option<HintRule> {
        let identity = self.optional("identity");
        Some(HintRule {
            namespace: self.require("namespace")?,
            identity,
        })
    }

    pub(super) fn hint_table(&mut self) -> Option<Table> {
        let (names, location) = (self.require("names"), self.require("location"));
        Some(Table {
            names: names?,
            location: location?,
        })
    }

    pub(super) fn place(&mut self) -> Option<LookupPlace> {
        let (network, topology) = (self.require("network"), self.require("topology"));
        Some(LookupPlace {
            network: network?,
            topology: topology?,
        })
    }

    pub(super) fn identity(&mut self) -> Option<Identity> {
        let access_key = self.require::<String>("access_key");
        let secret_key = self.secret("secret_key", "secret_key_file");
        if !self.entry.has("secret_key") && !self.entry.has("secret_key_file") {
            let hint = "add secret_key_file = \"...\" (or secret_key)";
            self.refuse("", "has no secret_key", hint);
        }
        let share = self.optional("share").unwrap_or(1);
        let lake_account = self.account(["lake_access_key", "lake_secret_key", "lake_secret_key_file"]);
        Some(Identity {
            share,
            lake_account: lake_account.map(Arc::new),
            ..Identity::new(&access_key?, secret_key?.expose())
        })
    }

    pub(super) fn key_source(&mut self) -> Option<KeySourceConfig> {
        let kind: Option<KeySourceKind> = self.require("kind");
        let is_http = kind == Some(KeySourceKind::Http);
        let url: Option<String> = if is_http {
            self.require("url")
        } else {
            self.optional("url")
        };
        let account = self.account(["access_key", "secret_key", "secret_key_file"]);
        if kind == Some(KeySourceKind::Ceph) && !self.entry.has("access_key") {
            let hint = "add access_key and secret_key_file of a user with the capability users=read";
            self.refuse("", "has no access_key", hint);
        }
        if is_http && self.entry.has("access_key") {
            let hint = "write headers_file; only the requests to Ceph are signed";
            self.refuse("access_key", "has an access_key beside kind \"http\"", hint);
        }
        let headers = self.headers();
        let cache_time = self.optional("cache_time");
        Some(KeySourceConfig {
            kind: kind?,
            url: url.map(|url| url.trim_end_matches('/').into()),
            ca_file: self.optional("ca_file"),
            headers,
            account,
            cache_time: cache_time.unwrap_or(KeySourceConfig::CACHE_TIME),
        })
    }

    pub(super) fn quota(&mut self) -> Option<QuotaConfig> {
        let (identity, prefix) = (self.optional("identity"), self.optional("prefix"));
        match [self.entry.has("identity"), self.entry.has("prefix")] {
            [true, true] => {
                let hint = "keep one of the two, and write another [[quota]] for the other";
                self.refuse("prefix", "has both an identity and a prefix", hint);
            }
            [false, false] => {
                let hint = "add a line: identity = \"AK\", or prefix = \"s3://bucket/prefix/\"";
                self.refuse("", "has neither an identity nor a prefix", hint);
            }
            _ => {}
        }
        if !self.entry.has("room") && !self.entry.has("bandwidth") {
            let hint = "add a line: room = \"20%\", or bandwidth = \"1Gbit\"";
            self.refuse("", "has neither room nor bandwidth", hint);
        }
        let (room, bandwidth) = (self.optional("room"), self.optional("bandwidth"));
        let scope = identity.map(QuotaScope::Identity);
        Some(QuotaConfig {
            scope: scope.or_else(|| prefix.map(QuotaScope::Prefix))?,
            room,
            bandwidth,
        })
    }

    /// Reads the headers of a key source, which are one secret.
    fn headers(&mut self) -> Option<Secret> {
        if let (Some(path), false) = (
            self.optional::<PathBuf>("headers_file"),
            self.entry.has("headers"),
        ) {
            let origin = self.entry.origin("headers_file");
            return self.loader.read_headers("headers_file", &path, origin);
        }
        let text = self.secret("headers", "headers_file");
        if let Some(Err(line)) = text.as_ref().map(|text| secret_headers::read(text.expose())) {
            let what = format!("has headers whose line {line} is none");
            self.refuse("headers", &what, HEADERS_HINT);
        }
        text
    }

    /// Reads an account: an access key and its secret, or neither.
    pub(super) fn account(&mut self, [access_key, secret_key, file_key]: [&str; 3]) -> Option<Account> {
        let hint = format!("add {file_key} (or {secret_key})");
        self.needs(access_key, &[secret_key, file_key], &hint);
        for key in [secret_key, file_key] {
            self.needs(key, &[access_key], &format!("add {access_key}"));
        }
        let secret_key = self.secret(secret_key, file_key);
        Some(Account {
            access_key: self.optional(access_key)?,
            secret_key: secret_key?,
            session_token: None,
        })
    }

    /// Rejects a key that stands without the first of the others, or another of them in its place.
    pub(super) fn needs(&mut self, key: &str, others: &[&str], hint: &str) {
        if self.entry.has(key) && !others.iter().any(|other| self.entry.has(other)) {
            self.refuse(key, &format!("{key} has no {}", others[0]), hint);
        }
    }

    /// Rejects an entry, at the line of one of its keys.
    pub(super) fn refuse(&mut self, key: &str, what: &str, hint: &str) {
        let problem = Fault::new(what, hint).of(self.entry.title, self.entry.origin(key));
        self.loader.report.problems.push(problem);
    }

    /// Reads a secret that may be given inline or as a file, but not both.
    fn secret(&mut self, key: &str, file_key: &str) -> Option<Secret> {
        let secret = self.optional(key);
        let file: Option<PathBuf> = self.optional(file_key);
        let provenance = self.entry.origin(file_key);
        match file {
            None => secret,
            Some(path) if secret.is_none() => self.loader.read_secret(file_key, &path, provenance),
            Some(_) => {
                let problem = both_secrets(self.entry.title, key, provenance);
                self.loader.report.problems.push(problem);
                None
            }
        }
    }
}
