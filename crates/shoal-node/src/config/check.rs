//! Validates the values of a configuration against each other and against the machine.

mod advice;
mod directory;
mod disk;
mod link;
mod lookup;
mod split;
mod tier;
mod write;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use http::Uri;
use shoal_base::secret::Secret;
use shoal_policy::eviction::layered::LAYERS_MAX;
use shoal_s3::uri::S3Uri;
use tracing_subscriber::EnvFilter;

use super::file::Entry;
use super::problem::Problem;
use super::settings::ConfigDraft;
use super::{
    Config, CooperationConfig, CooperationMode, FreshnessRule, IdentityConfig, LookupPlace, Role, TierConfig,
    WriteRule,
};

/// Tracking a smaller block would cost more than fetching it again.
const BLOCK_BYTES_MIN: u64 = 64 << 10;
/// With a larger block, a range read of a few bytes would fetch far too much.
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Eviction runs ahead of need between two watermarks; a smaller store has no room between them.
const CAPACITY_BLOCKS_MIN: u64 = 16;
/// A stream writes one block while the next one arrives.
const FILL_BLOCKS_MIN: u64 = 2;
/// A ring in which one node is this much heavier than the others is useless.
const WEIGHT_PERCENT_MAX: u32 = 10_000;
/// Shorter secrets can be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// A configuration draft, with the list entries that each rule came from.
pub(super) struct Located<'a> {
    pub(super) draft: &'a ConfigDraft,
    pub(super) freshness_rules: &'a [(FreshnessRule, &'a Entry)],
    pub(super) write_rules: &'a [(WriteRule, &'a Entry)],
    pub(super) tiers: &'a [(TierConfig, &'a Entry)],
    pub(super) places: &'a [(LookupPlace, &'a Entry)],
    pub(super) identities: &'a [(IdentityConfig, &'a Entry)],
}

/// Returns all problems and all warnings in the sections that `role` reads.
pub(super) fn check(located: &Located<'_>, role: Role) -> (Vec<Problem>, Vec<Problem>) {
    let mut check = Check {
        located,
        config: &located.draft.config,
        problems: vec![],
        warnings: vec![],
    };
    match role {
        Role::Node => {
            check.node_settings();
            check.advice();
        }
        Role::Dev => check.node_settings(),
        Role::Lookup => check.lookup_settings(),
    }
    check.log();
    (check.problems, check.warnings)
}

struct Check<'a> {
    located: &'a Located<'a>,
    config: &'a Config,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Check<'_> {
    fn refuse(&mut self, section: &str, key: &str, what: &str, hint: &str) {
        let provenance = self.located.draft.provenance(section, key);
        self.problems
            .push(Problem::new(provenance, format!("[{section}] {key} {what}")).hint(hint));
    }

    fn node_settings(&mut self) {
        self.node();
        self.listeners();
        self.domain();
        self.tls();
        self.lake();
        self.link();
        self.store();
        let freshness_rules = self.located.freshness_rules.iter();
        self.prefixes(freshness_rules.map(|(rule, entry)| (&*rule.prefix, *entry)));
        let write_rules = self.located.write_rules.iter();
        self.prefixes(write_rules.map(|(rule, entry)| (&*rule.prefix, *entry)));
        self.write();
        self.tiers();
        self.cooperation();
        self.directory();
        self.split();
        self.lake_timeouts();
        self.limits();
        self.identities();
    }

    fn node(&mut self) {
        if !is_name(&self.config.node.name) {
            let hint = "use 1 to 63 letters, digits and . - _";
            self.refuse("node", "name", "is not a name", hint);
        }
        if !is_place(&self.config.node.topology) {
            self.refuse("node", "topology", "is not a place", PLACE_HINT);
        }
    }

    fn listeners(&mut self) {
        let (s3, admin) = (self.config.s3.listen, self.config.admin.listen);
        if overlap(s3, admin) {
            let what = format!("({admin}) collides with [s3] listen ({s3})");
            let hint = "give health and metrics a port of their own";
            self.refuse("admin", "listen", &what, hint);
        }
    }

    fn domain(&mut self) {
        let Some(domain) = &self.config.s3.domain else {
            return;
        };
        if !is_domain(domain) {
            let hint = "write a DNS name without scheme, port or bucket, such as s3.example.org";
            self.refuse("s3", "domain", "is not a domain", hint);
        }
    }

    fn tls(&mut self) {
        let (s3, admin) = (&self.config.s3, &self.config.admin);
        self.tls_of("s3", s3.tls_cert.as_deref(), s3.tls_key.as_deref());
        self.tls_of("admin", admin.tls_cert.as_deref(), admin.tls_key.as_deref());
        if admin.client_ca.is_some() && admin.tls_cert.is_none() {
            let hint = "add tls_cert and tls_key: certificates are shown over TLS only";
            self.refuse(
                "admin",
                "client_ca",
                "has no certificate of the port itself beside it",
                hint,
            );
        }
        self.can_be_read(
            "admin",
            "client_ca",
            admin.client_ca.as_deref(),
            "name a PEM file that shoal may read",
        );
        let hint = "name a file with one token a line, such as one made with: openssl rand -hex 32";
        self.can_be_read("admin", "token_file", admin.token_file.as_deref(), hint);
    }

    fn tls_of(&mut self, section: &str, certificate: Option<&Path>, key: Option<&Path>) {
        match (certificate, key) {
            (Some(_), None) => self.refuse(
                section,
                "tls_cert",
                "has no key",
                "add tls_key, the private key of it",
            ),
            (None, Some(_)) => self.refuse(
                section,
                "tls_key",
                "has no certificate",
                "add tls_cert, its chain",
            ),
            _ => {}
        }
        for (name, path) in [("tls_cert", certificate), ("tls_key", key)] {
            self.can_be_read(section, name, path, "name a PEM file that shoal may read");
        }
    }

    pub(super) fn can_be_read(&mut self, section: &str, key: &str, path: Option<&Path>, hint: &str) {
        if let Some(Err(error)) = path.map(std::fs::File::open) {
            self.refuse(section, key, &format!("cannot be read: {error}"), hint);
        }
    }

    fn lake(&mut self) {
        let lake = &self.config.lake;
        if let Err(why) = check_endpoint(&lake.endpoint) {
            let hint = "write only scheme, host and port, such as http://127.0.0.1:9090";
            self.refuse("lake", "endpoint", why, hint);
        } else if [self.config.s3.listen, self.config.admin.listen]
            .iter()
            .any(|own| is_own(&lake.endpoint, *own))
        {
            let hint = "name the S3 store behind this node";
            self.refuse("lake", "endpoint", "is an address of this node itself", hint);
        }
        if !is_name(&lake.region) {
            let hint = "write a name such as us-east-1";
            self.refuse("lake", "region", "is not a region", hint);
        }
        match (&lake.access_key, &lake.secret_key) {
            (Some(_), None) => {
                let hint = "add secret_key_file (or secret_key)";
                self.refuse("lake", "access_key", "has no secret_key", hint);
            }
            (None, Some(_)) => self.refuse("lake", "secret_key", "has no access_key", "add access_key"),
            _ => {}
        }
        if let Some(Err(why)) = lake.access_key.as_deref().map(check_access_key) {
            self.refuse("lake", "access_key", why, ACCESS_KEY_HINT);
        }
    }

    fn store(&mut self) {
        let store = &self.config.store;
        if store.path == Path::new("/") {
            let hint = "name a folder of this node's own";
            self.refuse("store", "path", "is the root of the file system", hint);
        }
        if !store.block_bytes.is_power_of_two()
            || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&store.block_bytes)
        {
            let hint = "choose a power of two from 64KiB to 64MiB; 4MiB suits most";
            self.refuse("store", "block_size", "is not a size a block can have", hint);
        } else if store.capacity_bytes < CAPACITY_BLOCKS_MIN * store.block_bytes {
            let what = format!("holds fewer than {CAPACITY_BLOCKS_MIN} blocks");
            self.refuse("store", "capacity", &what, "raise it, or lower block_size");
        }
    }

    fn prefixes<'r>(&mut self, rules: impl Iterator<Item = (&'r str, &'r Entry)>) {
        let mut seen = HashMap::new();
        for (prefix, entry) in rules {
            let (title, provenance) = (entry.title, entry.origin("prefix"));
            let problem = match prefix.parse::<S3Uri>() {
                Err(why) => {
                    let what = format!("{title} prefix cannot be {prefix:?}: {why}");
                    Some(Problem::new(provenance, what).hint("write s3://bucket/prefix/"))
                }
                Ok(uri) => seen.insert(uri, provenance).map(|first| {
                    let what = format!("{title} {prefix:?} is written twice");
                    Problem::new(provenance, what).hint(format!("the first stands at {first}"))
                }),
            };
            self.problems.extend(problem);
        }
    }

    fn cooperation(&mut self) {
        let Config {
            cooperation,
            s3,
            admin,
            node,
            ..
        } = self.config;
        if cooperation.mode == CooperationMode::Solo {
            return;
        }
        for (section, other) in [("s3", s3.listen), ("admin", admin.listen)] {
            if overlap(cooperation.listen, other) {
                let what = format!(
                    "({}) collides with [{section}] listen ({other})",
                    cooperation.listen
                );
                let hint = "give the other nodes a port of their own";
                self.refuse("cooperation", "listen", &what, hint);
            }
        }
        let address = address_for_others(cooperation);
        if address.ip().is_unspecified() {
            let hint = "write advertise = the address of this machine that the other nodes connect to, with its port";
            self.refuse(
                "cooperation",
                "listen",
                "is an address that no other node can connect to",
                hint,
            );
        }
        for seed in cooperation.seeds.iter().filter(|seed| !is_host_and_port(seed)) {
            let what = format!("names {seed:?}");
            let hint = "write host:port, such as \"10.0.0.1:9200\"";
            self.refuse("cooperation", "seeds", &what, hint);
        }
        let places = node.topology.split('/').count();
        let is_list = (2..=LAYERS_MAX).contains(&cooperation.layers.len());
        if !is_list || !cooperation.layers.iter().all(|layer| is_name(layer)) {
            let hint = "write two names at least, innermost first, such as [\"rack\", \"cluster\"]";
            self.refuse("cooperation", "layers", "is not a list of layers", hint);
        } else if cooperation.layers.len() > places {
            let what = format!(
                "has {} names, and [node] topology {places} parts",
                cooperation.layers.len()
            );
            let hint = "give each layer a part of the topology, or leave the widest out";
            self.refuse("cooperation", "layers", &what, hint);
        }
        if !(1..=WEIGHT_PERCENT_MAX).contains(&cooperation.weight_percent) {
            let what = format!("is not between 1 and {WEIGHT_PERCENT_MAX}");
            let hint = "write 100 for a node like the others, 200 for one with twice the disk";
            self.refuse("cooperation", "weight", &what, hint);
        }
        if cooperation.secret_key.is_none() && !address.ip().is_loopback() {
            let hint =
                "write the same random text into a file on every node, and its path as secret_key_file";
            self.refuse(
                "cooperation",
                "secret_key",
                "is not set, and others than this machine can connect",
                hint,
            );
        }
        let secrets = [&cooperation.secret_key, &cooperation.previous_secret_key];
        let is_short = |secret: &Secret| secret.expose().len() < SECRET_BYTES_MIN;
        if secrets.into_iter().flatten().any(is_short) {
            let what = format!("has fewer than {SECRET_BYTES_MIN} characters");
            let hint = "make one with: openssl rand -hex 32";
            self.refuse("cooperation", "secret_key", &what, hint);
        }
    }

    fn lake_timeouts(&mut self) {
        let lake = &self.config.lake;
        let times = [
            ("answer_timeout", lake.answer_timeout),
            ("write_timeout", lake.write_timeout),
        ];
        for (key, _) in times.iter().filter(|(_, time)| time.is_zero()) {
            let hint = "no answer could be in time; write some seconds";
            self.refuse("lake", key, "is 0", hint);
        }
    }

    fn limits(&mut self) {
        let (limits, block_bytes) = (&self.config.limits, self.config.store.block_bytes);
        let at_least_one = [
            ("requests", limits.requests),
            ("read_ahead_blocks", limits.read_ahead_blocks),
        ];
        for (key, _) in at_least_one.iter().filter(|(_, count)| *count == 0) {
            self.refuse("limits", key, "is 0", "nothing could be served; write at least 1");
        }
        if limits.fill_bytes < FILL_BLOCKS_MIN * block_bytes {
            let what = format!("holds fewer than {FILL_BLOCKS_MIN} blocks");
            let hint = "raise it, or lower [store] block_size";
            self.refuse("limits", "fill_bytes", &what, hint);
        }
    }

    fn log(&mut self) {
        if EnvFilter::try_new(&self.config.log.filter).is_err() {
            let hint = "write a level (error, warn, info, debug, trace), or target=level pairs: shoal=debug";
            self.refuse("log", "filter", "is not a filter", hint);
        }
        if !["text", "json"].contains(&self.config.log.format.as_str()) {
            let hint = "write \"text\" or \"json\"";
            self.refuse("log", "format", "is neither text nor json", hint);
        }
    }

    fn identities(&mut self) {
        let mut seen = HashMap::new();
        for (identity, entry) in self.located.identities {
            let provenance = entry.origin("access_key");
            let mut refuse = |what: String, hint: String| {
                self.problems
                    .push(Problem::new(provenance, format!("[[identity]] {what}")).hint(hint));
            };
            let keys = [
                ("access_key", Some(&identity.access_key)),
                ("lake_access_key", identity.lake_access_key.as_ref()),
            ];
            for (name, key) in keys.iter().filter_map(|(name, key)| Some((name, (*key)?))) {
                if let Err(why) = check_access_key(key) {
                    refuse(format!("{name} {why}"), ACCESS_KEY_HINT.into());
                }
            }
            if !(1..=SHARE_MAX).contains(&identity.share) {
                let hint = "write 1 for an identity like the others, 2 for one with twice their turns";
                refuse(format!("share is not between 1 and {SHARE_MAX}"), hint.into());
            }
            if let Some(first) = seen.insert(&identity.access_key, provenance) {
                let hint = format!("the first stands at {first}");
                refuse(
                    format!("access_key \"{}\" is written twice", identity.access_key),
                    hint,
                );
            }
            match (&identity.lake_access_key, &identity.lake_secret_key) {
                (Some(_), None) => {
                    let hint = "add lake_secret_key_file (or lake_secret_key)";
                    refuse("lake_access_key has no lake_secret_key".into(), hint.into());
                }
                (None, Some(_)) => {
                    refuse(
                        "lake_secret_key has no lake_access_key".into(),
                        "add lake_access_key".into(),
                    );
                }
                _ => {}
            }
        }
    }
}

/// Maximum share of an identity. Next to it, an identity with share 1 still gets every thousandth turn.
const SHARE_MAX: u32 = 1000;

const ACCESS_KEY_HINT: &str = "use printable characters other than space, slash, comma and =";

/// Checks an access key, which every signature delimits by slashes and commas.
fn check_access_key(key: &str) -> Result<(), &'static str> {
    let breaks = |c: char| !c.is_ascii_graphic() || ['/', ',', '=', '"'].contains(&c);
    if key.contains(breaks) {
        Err("has characters that a signature cannot carry")
    } else {
        Ok(())
    }
}

/// Returns true if a text may be used in headers, labels and topology paths.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_'].contains(&c);
    (1..=63).contains(&text.len()) && text.chars().all(allowed)
}

const PLACE_HINT: &str = "write names between slashes, outermost first: dc1/cluster-a/rack-1";

fn is_place(text: &str) -> bool {
    text.split('/').all(is_name)
}

fn is_domain(text: &str) -> bool {
    let ends_in_number = text
        .rsplit('.')
        .next()
        .is_some_and(|last| last.parse::<u32>().is_ok());
    text.split('.').all(is_dns_label) && !ends_in_number && text.len() <= 253
}

fn is_dns_label(label: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=63).contains(&label.len())
        && label.chars().all(allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Returns the address at which other nodes reach this one.
fn address_for_others(cooperation: &CooperationConfig) -> SocketAddr {
    cooperation.advertise.unwrap_or(cooperation.listen)
}

/// Returns true if two listeners need the same port of the same interface. Port 0 is always a free port.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_interface = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && same_interface
}

fn is_host_and_port(text: &str) -> bool {
    let host_and_port = text.rsplit_once(':');
    let is_host = |host: &str| {
        let name = host.strip_suffix('.').unwrap_or(host);
        host.starts_with('[') && text.parse::<SocketAddr>().is_ok() || name.split('.').all(is_dns_label)
    };
    host_and_port.is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|port| port != 0))
}

fn check_endpoint(endpoint: &str) -> Result<(), &'static str> {
    let uri: Uri = endpoint.parse().map_err(|_| "is not a URL")?;
    let authority = uri.authority().ok_or("is not a URL")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("begins with neither http:// nor https://");
    }
    if authority.as_str().contains('@') {
        return Err("holds a user name, which belongs into access_key");
    }
    if authority.host().is_empty() {
        return Err("names no host");
    }
    // `Uri` ignores the text after the colon if it is not a port.
    if authority.as_str().len() > authority.host().len() && authority.port_u16().is_none_or(|port| port == 0)
    {
        return Err("has no valid port");
    }
    if uri.path_and_query().is_some_and(|path| path != "/") || endpoint.contains('#') {
        return Err("has a path or a query");
    }
    Ok(())
}

fn is_own(endpoint: &str, own: SocketAddr) -> bool {
    let Some(host) = endpoint.split("://").nth(1) else {
        return false;
    };
    let own_ip = if own.ip().is_unspecified() {
        [127, 0, 0, 1].into()
    } else {
        own.ip()
    };
    let host = host.trim_end_matches('/').replace("localhost", "127.0.0.1");
    own.port() != 0 && host.parse() == Ok(SocketAddr::new(own_ip, own.port()))
}
