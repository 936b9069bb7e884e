//! The table of settings: the name, the description and the field of each.
//!
//! The file, the variables, the flags, `--help` and `--check` are all derived from this table, so a setting
//! exists in all of them or in none.

use std::path::PathBuf;

use shoal_base::secret::Secret;
use toml::Value as Toml;

use super::problem::Fault;
use super::value::{RawValue, Value};
use super::{Config, Provenance};

/// A configuration while its layers are being applied.
#[derive(Debug, Default)]
pub(super) struct ConfigDraft {
    pub(super) config: Config,
    /// The file to load into `config.lake.secret_key` once all layers are applied.
    pub(super) lake_secret_key_file: Option<PathBuf>,
    /// The same for `config.cooperation.secret_key`.
    pub(super) cooperation_secret_key_file: Option<PathBuf>,
    /// The file to load into `config.directory.password`.
    pub(super) directory_password_file: Option<PathBuf>,
    /// The file to load into `config.trace.headers`.
    pub(super) trace_headers_file: Option<PathBuf>,
    /// The origin of each value, in the order of [`SETTINGS`].
    pub(super) provenances: Vec<Provenance>,
}

/// One scalar setting: `[store] capacity`, `SHOAL_STORE_CAPACITY`, `--store-capacity`.
pub struct Setting {
    /// The section of the file.
    pub section: &'static str,
    /// The key within the section.
    pub key: &'static str,
    /// One line for `--help` and `shoal.toml`.
    pub doc: &'static str,
    pub(super) assign: fn(&mut ConfigDraft, &RawValue) -> Result<(), Fault>,
    pub(super) show: fn(&ConfigDraft) -> Option<Toml>,
    pub(super) differs: fn(&ConfigDraft, &ConfigDraft) -> bool,
}

impl Setting {
    /// Returns the environment variable of this setting.
    pub fn variable(&self) -> String {
        variable_of(self.section, self.key)
    }

    /// Returns true if the value is a secret.
    pub(super) fn is_secret(&self) -> bool {
        let is_this = |secret: &SecretSetting| secret.section == self.section && secret.key() == self.key;
        SECRETS.iter().any(is_this)
    }

    /// Returns the long flag of this setting, without dashes. A secret has no flag, because other users of
    /// the machine can read command lines.
    pub fn flag(&self) -> Option<String> {
        (!self.is_secret()).then(|| format!("{}-{}", self.section, self.key).replace('_', "-"))
    }
}

macro_rules! settings {
    ($($section:ident $key:ident => $($field:ident).+, $doc:literal;)*) => {
        /// Every scalar setting, section by section.
        pub static SETTINGS: &[Setting] = &[$(Setting {
            section: stringify!($section),
            key: stringify!($key),
            doc: $doc,
            assign: |draft, given| {
                draft.$($field).+ = Value::read(given)?;
                Ok(())
            },
            show: |draft| draft.$($field).+.to_toml(),
            differs: |one, other| one.$($field).+ != other.$($field).+,
        },)*];
    };
}

settings! {
    node name => config.node.name, "Unique in the cluster; shown in headers, logs and status";
    node topology => config.node.topology, "The node's place, outermost first";

    s3 listen => config.s3.listen, "Where clients speak S3: address and port";
    s3 domain => config.s3.domain, "Domain of virtual-host style (bucket.domain); path style always works";
    s3 anonymous => config.s3.anonymous, "Requests without credentials: forward (the lake decides) or refuse (403 before anything else)";
    s3 unknown_identities => config.s3.unknown_identities, "Requests signed with keys that the node does not know: refuse (403), or lake (the lake gets each as it came, and judges it)";
    s3 tls_cert => config.s3.tls_cert, "PEM certificate chain; reloaded without a restart";
    s3 tls_key => config.s3.tls_key, "PEM private key of that certificate";

    sts roles => config.sts.roles, "ARNs of the roles for which clients may get temporary keys through this node, a star for any characters, \"\" for keys without a role; none: nobody can";
    sts listen => config.sts.listen, "Where clients get them: address and port; others than this machine need TLS";
    sts tls_cert => config.sts.tls_cert, "PEM certificate chain; reloaded without a restart";
    sts tls_key => config.sts.tls_key, "PEM private key of that certificate";
    sts endpoint => config.sts.endpoint, "The STS that decides: http:// or https://, without a path; else that of the lake's endpoint";
    sts ca_file => config.sts.ca_file, "PEM certificates that sign that of STS; without it those that the system trusts";

    admin listen => config.admin.listen, "Health, metrics and status: address and port, never those of S3";
    admin hosts => config.admin.hosts, "Names under which it is reached; addresses, names without a dot and private ones (.local, .internal) always work";

    admin token_file => config.admin.token_file, "File with tokens, one a line, that operators show; then orders need one, and so do pages from elsewhere than loopback";
    admin tls_cert => config.admin.tls_cert, "PEM certificate chain of the admin port, which speaks TLS then; reloaded without a restart";
    admin tls_key => config.admin.tls_key, "PEM private key of that certificate";
    admin client_ca => config.admin.client_ca, "PEM certificates that sign those of operators, which count as tokens do; needs tls_cert";

    lake endpoint => config.lake.endpoint, "The S3 store this node extends: http:// or https://, without a path";
    lake region => config.lake.region, "Region that signatures to the lake name";
    lake access_key => config.lake.access_key, "Account for identities without one of their own; else the AWS chain";
    lake secret_key => config.lake.secret_key, "Its secret; better in a file";
    lake secret_key_file => lake_secret_key_file, "File that holds the secret and nothing else";
    lake answer_timeout => config.lake.answer_timeout, "The lake's answer to a read must begin within this time, and no body may pause for longer; all retries together take twice as long at most";
    lake write_timeout => config.lake.write_timeout, "The lake's answer to a write must begin within this time after the last byte of the write";
    lake bandwidth => config.lake.bandwidth, "What the link to the lake carries in each direction; clients go first, cleaning and other work get the rest; with shared behind it, all nodes have it together. Without it nothing is metered";

    store path => config.store.path, "A folder of this node's own";
    store capacity => config.store.capacity_bytes, "Bytes on disk never exceed this";
    store policy => config.store.policy, "Eviction policy: duel (the default), gwf (the default with a directory) or lru; c2p, or c2p+ before one of these, keeps objects whole";
    store block_size => config.store.block_bytes, "Unit of caching, a power of two; changing it starts the cache empty";

    freshness default => config.freshness.default, "How long the lake's answer holds: revalidate, coherent, immutable, or a time";

    write default => config.write.default, "Where the bytes of a write go besides the lake: around (nowhere) or through (the cache)";
    write age => config.write.age, "How long an object that was written back stays in its tier, at most, before it is brought to the lake; 10m at least if it is short-lived";
    write permission => config.write.permission, "How long the lake's permission to write below a bucket or prefix is remembered; 0s: not at all";

    cooperation mode => config.cooperation.mode, "How nodes work together: solo (not at all), hierarchy (in layers) or directory (which says where blocks are)";
    cooperation listen => config.cooperation.listen, "Where other nodes reach this one: blocks by TCP, gossip by UDP";
    cooperation advertise => config.cooperation.advertise, "The address under which they do, when it is another one";
    cooperation seeds => config.cooperation.seeds, "Nodes to ask for the others: host:port of their listen";
    cooperation layers => config.cooperation.layers, "Names of the levels of the topology, innermost first: this node, L2, L3";
    cooperation weight => config.cooperation.weight_percent, "Blocks at home here, in percent of an ordinary node's: 200 for twice the disk";
    cooperation period => config.cooperation.period, "How often the layers of this node divide its room anew, in steps of a twentieth at most";
    cooperation split => config.cooperation.split, "How it is divided: adaptive, or fixed percents from L1 outwards such as [50, 50]";
    cooperation secret_key => config.cooperation.secret_key, "Secret that all nodes of a cluster share; better in a file";
    cooperation secret_key_file => cooperation_secret_key_file, "File that holds it and nothing else, but for a second line: the secret before, which counts as well while the nodes change to the new one";

    directory url => config.directory.url, "Which nodes hold a block, for mode directory: embedded (the nodes of one process) or the URL of a Redis, with the user before @ if it has users";
    directory password_file => directory_password_file, "File that holds the password at Redis and nothing else";
    directory ca_file => config.directory.ca_file, "PEM certificates that sign that of Redis; without it those that the system trusts";
    directory prefix => config.directory.prefix, "Keys in Redis begin with this, so that several clusters can share it";
    directory timeout => config.directory.timeout, "A node waits for an answer for this time and then goes on without the directory";


    limits requests => config.limits.requests, "Requests in flight on the node; an identity may have half of them, and clients twice as many connections";
    limits fill_bytes => config.limits.fill_bytes, "Memory for bytes fetched from the lake and not yet on disk";
    limits read_ahead_blocks => config.limits.read_ahead_blocks, "Blocks fetched ahead of one reader";

    hints room => config.hints.limits.room_percent, "Percent of the nodes' room that objects which hints bring may take";
    hints link => config.hints.limits.link_percent, "Percent of [lake] bandwidth that bringing them may use";
    hints keep => config.hints.keep, "How long the objects of a running job are kept, at most, if its end is never announced";
    hints token_file => config.hints.token_file, "File with tokens, one a line, with which engines may send events and nothing else; those of [admin] token_file work, too";

    plan every => config.plan.every, "How often the nodes make a plan by themselves, for twice that time; without it they carry out only what is handed over. Needs [lake] bandwidth";
    plan room => config.plan.room_percent, "Percent of the nodes' room that planned files may take";
    plan link => config.plan.link_percent, "Percent of [lake] bandwidth that planned transfers and reads may use; leave room for readers that are not foreseen";
    plan identity => config.plan.identity, "Access key of the identity in whose name plans are carried out; may be left out where there is only one";
    plan history => config.plan.history, "Files and folders of this machine with logs that plans learn from, as `shoal plan` reads them, beside the runs that engines announce";

    lookup listen => config.lookup.listen, "Where clients ask over UDP and TCP: addresses and ports";
    lookup admin => config.lookup.admin, "Where /healthz, /readyz and /metrics of the name server are, under an address or a private name; without it they are nowhere";
    lookup name => config.lookup.name, "The name that leads to the nearest nodes; each node's own name lies below it";
    lookup nodes => config.lookup.nodes, "Admin URLs of nodes that are asked each second for the living nodes; a few of the cluster suffice";
    lookup nodes_token_file => config.lookup.nodes_token_file, "File with a token of [admin] token_file of these nodes, where they have one";
    lookup nodes_ca_file => config.lookup.nodes_ca_file, "PEM certificates that sign those of https admin URLs; without it those that the system trusts";
    lookup answers => config.lookup.answers, "Addresses in one answer, all of nodes that are equally near";
    lookup buckets => config.lookup.buckets, "Whether other names below lead to the nearest nodes, too: for virtual-host style (bucket.name)";
    lookup trusted_resolvers => config.lookup.trusted_resolvers, "Networks of resolvers whose statement of the client's network (EDNS Client Subnet) is believed";

    log filter => config.log.filter, "Filter of the log on stderr, such as info or shoal=debug";
    log format => config.log.format, "text or json";
    log access => config.log.access, "One line a request: true (an event of this log), s3 (a line as Amazon S3 writes it), or false";
    log access_file => config.log.access_file, "File for lines as Amazon S3 writes them, opened again at SIGHUP; without it they go to stderr";

    trace endpoint => config.trace.endpoint, "Where traces of requests go: the URL of a collector of OpenTelemetry (OTLP over HTTP), without /v1/traces; without it nothing is traced";
    trace ca_file => config.trace.ca_file, "PEM certificates that sign that of the collector; without it those that the system trusts";
    trace headers_file => trace_headers_file, "File with headers for the collector, such as a token, one a line";
    trace sample => config.trace.sample, "Share of requests that are traced, from 0 to 1, where the client does not decide by the header traceparent";
}

/// The sections of the file in the order in which they are printed.
pub(super) const SECTIONS: [&str; 20] = [
    "node",
    "s3",
    "sts",
    "admin",
    "lake",
    "store",
    "freshness",
    "write",
    "tier",
    "cooperation",
    "directory",
    "limits",
    "hints",
    "plan",
    "lookup",
    "log",
    "trace",
    "identity",
    "key_source",
    "quota",
];

/// The sections that are lists of tables.
pub(super) const LISTS: [&str; 4] = ["tier", "identity", "key_source", "quota"];

macro_rules! removed {
    ($($section:ident $key:ident => $hint:literal;)*) => {
        /// Settings of earlier builds by section and key, and what to write instead.
        pub(super) const REMOVED: &[(&str, &str, &str)] = &[
            $((stringify!($section), stringify!($key), $hint),)*
        ];
    };
}

removed! {
    s3 signature_v2 => "leave it out, and let clients sign with version 4 (boto3: signature_version=\"s3v4\")";
    lake connect_timeout => "leave it out: a connection to the lake must be made within 3s";
    lake long_write_timeout => "leave it out: a write that makes the lake move bytes of its own has 15m";
    lake stall_timeout => "write answer_timeout, which bounds the pauses within a body, too";
    lake bandwidth_scope => "leave it out, or write bandwidth = \"10Gbit shared\" for what all nodes have together";
    store completeness => "leave it out: those blocks of an object count that readers used lately";
    store pinned_share => "leave it out: pinned blocks may take half the room";
    write allow_volatile => "leave it out: writing back is durable now, into the [[tier]] that a [[write.rule]] names";
    write flush_interval => "write age instead; it says how long an object stays in its tier before it is brought to the lake";
    write short_age => "leave it out: it is 10m, or age if that is longer";
    cooperation encrypt => "leave it out: nodes always encrypt what they send each other";
    cooperation step => "leave it out: a layer grows or shrinks by a twentieth of the room at a time";
    cooperation decay => "leave it out: requests count half as much after each period";
    cooperation fetch_missing => "leave it out: a node fetches what readers and tasks ask for";
    cooperation previous_secret_key => "write it into secret_key_file, as the second line";
    cooperation previous_secret_key_file => "write that secret into secret_key_file, as the second line";
    directory user => "write it into url: redis://USER@HOST:PORT";
    trace headers => "write them into a file, and the path of that as headers_file";
    directory password => "write it into a file, and the path of that as password_file";
    plan planner => "leave it out, and put shoal-planner beside this program or on the PATH";
    limits connections => "leave it out: there may be twice as many as requests";
    limits requests_per_identity => "leave it out: an identity may have half of requests";
    limits lake_requests => "leave it out: the node finds out how many requests the lake can use, up to 512";
    limits mapped_bytes => "leave it out: up to 1GiB stays mapped, as page cache";
    limits header_timeout => "leave it out: a request head must arrive within 15s";
    limits idle_timeout => "leave it out: a connection without a request is closed after 5m";
    limits stall_timeout => "leave it out: a body that makes no progress for 1m ends its connection";
    limits retry_budget_percent => "leave it out: a tenth of the requests to the lake may be retries";
    lookup admin_hosts => "leave it out, and ask for the pages under an address or a private name";
    lookup ttl => "leave it out: answers hold for 5s";
    lookup udp_rate => "leave it out: a network gets 200 answers a second over UDP; name its resolver in trusted_resolvers";
    lookup topology => "write it as [[lookup.place]] of the networks 0.0.0.0/0 and ::/0";
    lookup nodes_client_cert => "leave it out, and give the name server a token: nodes_token_file";
    lookup nodes_client_key => "leave it out, and give the name server a token: nodes_token_file";
    tier class_small => "leave it out: small objects have the default class of the store";
    tier registry_ca_file => "write ca_file, whose certificates are those for the store and for etcd";
    tier registry_user => "write it into registry: https://USER@HOST:PORT";
    tier large => "leave it out: objects are large from 4MiB on";
}

/// The content of a file.
#[derive(Clone, Copy)]
pub(super) enum Holds {
    /// The secret.
    Secret,
    /// The secret, and below it the one before, if there is one.
    SecretAndPrevious,
    /// Headers, which are one secret together.
    Headers,
}

/// A secret that can be kept in a separate file.
pub(super) struct SecretSetting {
    pub(super) section: &'static str,
    /// The key that names the file: that of the secret itself, with `_file` behind it.
    pub(super) file_key: &'static str,
    pub(super) holds: Holds,
    /// Returns the secret, and the file that it is loaded from.
    pub(super) of: fn(&mut ConfigDraft) -> (&mut Option<Secret>, &mut Option<PathBuf>),
}

impl SecretSetting {
    /// Returns the key of the secret itself.
    pub(super) fn key(&self) -> &'static str {
        self.file_key.trim_end_matches("_file")
    }
}

/// Every secret among the settings. The password of a directory and the headers for a collector stand in files
/// only.
pub(super) static SECRETS: [SecretSetting; 4] = [
    SecretSetting {
        section: "lake",
        file_key: "secret_key_file",
        holds: Holds::Secret,
        of: |draft| (&mut draft.config.lake.secret_key, &mut draft.lake_secret_key_file),
    },
    SecretSetting {
        section: "cooperation",
        file_key: "secret_key_file",
        holds: Holds::SecretAndPrevious,
        of: |draft| {
            let secret = &mut draft.config.cooperation.secret_key;
            (secret, &mut draft.cooperation_secret_key_file)
        },
    },
    SecretSetting {
        section: "directory",
        file_key: "password_file",
        holds: Holds::Secret,
        of: |draft| {
            (
                &mut draft.config.directory.password,
                &mut draft.directory_password_file,
            )
        },
    },
    SecretSetting {
        section: "trace",
        file_key: "headers_file",
        holds: Holds::Headers,
        of: |draft| (&mut draft.config.trace.headers, &mut draft.trace_headers_file),
    },
];

/// Returns the settings of one section.
pub(super) fn of_section(section: &str) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |setting| setting.section == section)
}

/// Returns the variable of a setting.
pub(super) fn variable_of(section: &str, key: &str) -> String {
    format!("SHOAL_{section}_{key}").to_uppercase()
}

/// Returns the index of a setting in [`SETTINGS`] and in [`ConfigDraft::provenances`].
pub(super) fn position(section: &str, key: &str) -> Option<usize> {
    SETTINGS
        .iter()
        .position(|setting| setting.section == section && setting.key == key)
}

impl ConfigDraft {
    /// Creates a draft over `config` in which no layer has set a value.
    pub(super) fn over(config: Config) -> Self {
        Self {
            config,
            provenances: vec![Provenance::Default; SETTINGS.len()],
            ..Self::default()
        }
    }

    /// Returns the origin of a setting's value.
    pub(super) fn provenance(&self, section: &str, key: &str) -> &Provenance {
        assert_eq!(
            self.provenances.len(),
            SETTINGS.len(),
            "each setting has an origin"
        );
        let position = position(section, key).expect("the caller names a setting of the table");
        &self.provenances[position]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{ConfigDraft, SECTIONS, SETTINGS};
    use crate::config::Config;

    #[test]
    fn every_setting_has_names_of_its_own_and_a_known_section() {
        let variables: HashSet<_> = SETTINGS.iter().map(super::Setting::variable).collect();
        assert_eq!(variables.len(), SETTINGS.len());
        assert!(variables.contains("SHOAL_S3_LISTEN") && variables.contains("SHOAL_STORE_BLOCK_SIZE"));
        assert!(SETTINGS.iter().all(|setting| SECTIONS.contains(&setting.section)));
    }

    #[test]
    fn a_secret_has_no_flag() {
        let without: Vec<_> = SETTINGS
            .iter()
            .filter(|s| s.flag().is_none())
            .map(|s| (s.section, s.key))
            .collect();
        assert_eq!(without, [("lake", "secret_key"), ("cooperation", "secret_key")]);
    }

    #[test]
    fn every_setting_with_a_default_shows_it_and_reads_it_back() {
        for setting in SETTINGS {
            let mut draft = ConfigDraft::over(Config::default());
            let Some(shown) = (setting.show)(&draft) else {
                continue;
            };
            (setting.assign)(&mut draft, &super::RawValue::File(shown.clone())).unwrap();
            assert_eq!(
                (setting.show)(&draft),
                Some(shown),
                "[{}] {}",
                setting.section,
                setting.key
            );
        }
    }
}
