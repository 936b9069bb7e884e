//! The bounds of each setting's value.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use shoal_policy::eviction::PolicyName;
use shoal_policy::eviction::layered::LAYERS_MAX;
use tracing_subscriber::EnvFilter;

use super::texts::{
    ACCESS_KEY_HINT, PLACE_HINT, access_key_fault, collector_fault, endpoint_fault, is_domain,
    is_host_and_port, is_name, is_open_to_others, is_own, is_place, overlap, unreadable,
};
use crate::config::problem::Fault;
use crate::config::{AccessFormat, BandwidthScope, Config, CooperationMode, SplitRule, WriteMode};

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
/// With a lower age, the node would flush everything at once.
const AGE_MIN: Duration = Duration::from_secs(1);
/// No object is meant to stay longer in a tier.
const AGE_MAX: Duration = Duration::from_hours(7 * 24);
/// A permission withdrawn by the lake stays in effect for up to this time.
const PERMISSION_MAX: Duration = Duration::from_mins(10);
/// A shorter period would have too few samples.
const PERIOD_MIN: Duration = Duration::from_secs(1);
/// Redis on another machine cannot answer faster.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Beyond it, asking the lake is faster.
const TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// A node's name, of at least one label, is prepended to the name of the service; together they must fit in
/// the 253 characters of a domain name.
const NAME_LENGTH_MAX: usize = 189;
/// A job may run for a week; no job needs its inputs for less than a minute.
const HINTS_KEPT: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(7 * 24);
/// A plan is made for twice that time, and ends within 8 days.
const PLANS_EVERY: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(24);
/// A datagram small enough for every client has no room for more addresses.
const ANSWERS_MAX: usize = 32;

pub(super) const PEM_HINT: &str = "name a PEM file that shoal may read";
const NODES_HINT: &str = "write admin addresses of nodes, such as [\"http://10.0.0.1:9100\"]";
const FILE_HINT: &str = "name a file that shoal may read";

/// A rule for the value of one setting, or of one key of a list.
pub(super) struct Rule<F> {
    /// The section, or the list, that the key belongs to.
    pub(super) section: &'static str,
    pub(super) key: &'static str,
    /// Returns what is wrong with the value.
    pub(super) faults: F,
}

impl<F> fmt::Display for Rule<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.section, self.key)
    }
}

/// Declares a table of rules: `section key: |config| FAULTS, HINT;`, where `FAULTS` yields a text for each
/// fault.
macro_rules! rules {
    (
        $(#[$meta:meta])* $name:ident: $type:ty;
        $($section:ident $key:ident: |$($given:pat_param),+| $faults:expr, $hint:expr;)*
    ) => {
        $(#[$meta])*
        pub(super) static $name: &[Rule<$type>] = &[$(Rule {
            section: stringify!($section),
            key: stringify!($key),
            faults: |$($given),+| faults($faults, $hint),
        },)*];
    };
}
pub(super) use rules;

rules! {
    /// The rules of all sections, in the order in which problems are reported.
    RULES: fn(&Config) -> Vec<Fault>;

    node name: |c| (!is_name(&c.node.name)).then_some("is not a name"), "use 1 to 63 letters, digits and . - _";
    node topology: |c| (!is_place(&c.node.topology)).then_some("is not a place"), PLACE_HINT;

    admin listen: |c| overlap(c.s3.listen, c.admin.listen)
            .then(|| format!("({}) collides with [s3] listen ({})", c.admin.listen, c.s3.listen)),
        "give health and metrics a port of their own";

    s3 domain: |c| c.s3.domain.as_deref().is_some_and(|domain| !is_domain(domain)).then_some("is not a domain"),
        "write a DNS name without scheme, port or bucket, such as s3.example.org";
    s3 tls_cert: |c| alone(&c.s3.tls_cert, &c.s3.tls_key, "has no key"), "add tls_key, the private key of it";
    s3 tls_key: |c| alone(&c.s3.tls_key, &c.s3.tls_cert, "has no certificate"), "add tls_cert, its chain";
    s3 tls_cert: |c| unreadable(c.s3.tls_cert.as_deref()), PEM_HINT;
    s3 tls_key: |c| unreadable(c.s3.tls_key.as_deref()), PEM_HINT;

    sts listen: |c| [("s3", c.s3.listen), ("admin", c.admin.listen)]
            .into_iter()
            .filter(|(_, other)| c.sts.is_on() && overlap(c.sts.listen, *other))
            .map(|(of, other)| format!("({}) collides with [{of}] listen ({other})", c.sts.listen)),
        "give temporary keys a port of their own";
    sts tls_cert: |c| (c.sts.is_on() && c.sts.tls_cert.is_none() && !c.sts.listen.ip().is_loopback())
            .then(|| format!("is not set, and others than this machine reach {}", c.sts.listen)),
        "add tls_cert and tls_key: keys and tokens pass this port";
    sts tls_cert: |c| alone(&c.sts.tls_cert, &c.sts.tls_key, "has no key"), "add tls_key, the private key of it";
    sts tls_key: |c| alone(&c.sts.tls_key, &c.sts.tls_cert, "has no certificate"), "add tls_cert, its chain";
    sts tls_cert: |c| unreadable(c.sts.tls_cert.as_deref()), PEM_HINT;
    sts tls_key: |c| unreadable(c.sts.tls_key.as_deref()), PEM_HINT;
    sts ca_file: |c| unreadable(c.sts.ca_file.as_deref()), PEM_HINT;
    sts endpoint: |c| c.sts.endpoint.as_deref().and_then(endpoint_fault),
        "write only scheme, host and port, such as https://sts.eu-central-1.amazonaws.com";
    sts endpoint: |c| c.sts.endpoint.as_deref().is_some_and(|endpoint| is_own(endpoint, c))
            .then_some("is an address of this node itself"),
        "name the STS behind this node, or leave it out for the lake's";
    sts roles: |c| (c.sts.is_on() && c.cooperation.secret_key.is_none())
            .then_some("need [cooperation] secret_key_file"),
        "temporary keys are sealed under it on the disk; make one with: openssl rand -hex 32";

    admin tls_cert: |c| alone(&c.admin.tls_cert, &c.admin.tls_key, "has no key"),
        "add tls_key, the private key of it";
    admin tls_key: |c| alone(&c.admin.tls_key, &c.admin.tls_cert, "has no certificate"),
        "add tls_cert, its chain";
    admin tls_cert: |c| unreadable(c.admin.tls_cert.as_deref()), PEM_HINT;
    admin tls_key: |c| unreadable(c.admin.tls_key.as_deref()), PEM_HINT;
    admin client_ca: |c| alone(&c.admin.client_ca, &c.admin.tls_cert,
            "has no certificate of the port itself beside it"),
        "add tls_cert and tls_key: certificates are shown over TLS only";
    admin client_ca: |c| unreadable(c.admin.client_ca.as_deref()), PEM_HINT;
    admin token_file: |c| unreadable(c.admin.token_file.as_deref()),
        "name a file with one token a line, such as one made with: openssl rand -hex 32";

    hints token_file: |c| unreadable(c.hints.token_file.as_deref()),
        "name a file with one token a line, such as one made with: openssl rand -hex 32";
    // Pinned blocks may take half the room, and those of operators are among them.
    hints room: |c| (!(1..=50).contains(&c.hints.limits.room_percent)).then_some("is not between 1 and 50"),
        "write percent of the room of all nodes, such as 25";
    hints link: |c| (!(1..=100).contains(&c.hints.limits.link_percent)).then_some("is not between 1 and 100"),
        "write percent of [lake] bandwidth, such as 50";
    hints keep: |c| (!HINTS_KEPT.contains(&c.hints.keep)).then_some("is not between 1m and 7d"),
        "write the time that the longest job takes, such as 6h";

    plan every: |c| c.plan.every.is_some_and(|every| !PLANS_EVERY.contains(&every))
            .then_some("is not between 1m and 1d"),
        "write how often jobs change, such as 1h";
    plan every: |c| (c.plan.every.is_some() && c.lake.bandwidth.is_none())
            .then_some("needs [lake] bandwidth, for which plans are made"),
        "write [lake] bandwidth, such as \"10Gbit\", or leave every out";
    plan every: |c| (c.plan.every.is_some() && c.plan.identity.is_none() && c.identities.len() > 1)
            .then_some("has no identity beside it, and there are several"),
        "add identity: the access key in whose name the inputs of jobs are read";
    plan room: |c| (!(1..=50).contains(&c.plan.room_percent)).then_some("is not between 1 and 50"),
        "write percent of the room of all nodes, such as 25";
    plan link: |c| (!(1..=100).contains(&c.plan.link_percent)).then_some("is not between 1 and 100"),
        "write percent of [lake] bandwidth, such as 80";
    plan identity: |c| c.plan.identity.as_deref()
            .filter(|known| c.identities.iter().all(|identity| identity.access_key != *known))
            .map(|known| format!("names {known:?}, which is the access_key of no [[identity]]")),
        "name one of the identities";
    plan history: |c| c.plan.history.iter().find_map(|path| {
            let error = std::fs::metadata(path).err()?;
            Some(format!("cannot be read ({}): {error}", path.display()))
        }),
        "name files or folders that the node can read";

    lake endpoint: |c| endpoint_fault(&c.lake.endpoint),
        "write only scheme, host and port, such as http://127.0.0.1:9090";
    lake endpoint: |c| is_own(&c.lake.endpoint, c).then_some("is an address of this node itself"),
        "name the S3 store behind this node";
    lake region: |c| (!is_name(&c.lake.region)).then_some("is not a region"), "write a name such as us-east-1";
    lake access_key: |c| alone(&c.lake.access_key, &c.lake.secret_key, "has no secret_key"),
        "add secret_key_file (or secret_key)";
    lake secret_key: |c| alone(&c.lake.secret_key, &c.lake.access_key, "has no access_key"), "add access_key";
    lake access_key: |c| c.lake.access_key.as_deref().and_then(access_key_fault), ACCESS_KEY_HINT;
    lake bandwidth: |c| c.lake.bandwidth.is_some_and(|bandwidth| bandwidth.bytes_per_second == 0)
            .then_some("is nothing"),
        "write what the link carries, or leave it out: then nothing is metered";
    lake bandwidth: |c| (!in_cluster(c) && c.lake.bandwidth.is_some_and(|it| it.scope == BandwidthScope::Cluster))
            .then_some("is shared, and this node knows no other: [cooperation] mode is solo"),
        "write [cooperation] mode, or this node's part without \"shared\"";

    store path: |c| (c.store.path == Path::new("/")).then_some("is the root of the file system"),
        "name a folder of this node's own";
    store block_size: |c| (!is_block_size(c.store.block_bytes)).then_some("is not a size a block can have"),
        "choose a power of two from 64KiB to 64MiB; 4MiB suits most";
    store capacity: |c| (is_block_size(c.store.block_bytes)
            && c.store.capacity_bytes < CAPACITY_BLOCKS_MIN * c.store.block_bytes)
            .then(|| format!("holds fewer than {CAPACITY_BLOCKS_MIN} blocks")),
        "raise it, or lower block_size";

    write default: |c| (c.write.default == WriteMode::Back).then_some("cannot be \"back\""),
        "write [[write.rule]] with mode = \"back\" and the prefixes that are to be written back";
    write age: |c| (!(AGE_MIN..=AGE_MAX).contains(&c.write.age)).then_some("is not between 1s and 7d"),
        "an object that is removed or overwritten in its tier costs no request to the lake; \
         write a time in between, such as \"1m\"";
    write permission: |c| (c.write.permission > PERMISSION_MAX).then_some("is longer than 10m"),
        "write at most 10m: a client whose permission the lake withdraws can write for this time";

    cooperation listen: |c| [("s3", c.s3.listen), ("admin", c.admin.listen)]
            .into_iter()
            .filter(|(_, other)| in_cluster(c) && overlap(c.cooperation.listen, *other))
            .map(|(of, other)| format!("({}) collides with [{of}] listen ({other})", c.cooperation.listen)),
        "give the other nodes a port of their own";
    cooperation listen: |c| others_reach(c).is_some_and(|address| address.ip().is_unspecified())
            .then_some("is an address that no other node can connect to"),
        "write advertise = the address of this machine that the other nodes connect to, with its port";
    cooperation seeds: |c| c.cooperation.seeds.iter()
            .filter(|seed| in_cluster(c) && !is_host_and_port(seed))
            .map(|seed| format!("names {seed:?}")),
        "write host:port, such as \"10.0.0.1:9200\"";
    cooperation layers: |c| (in_cluster(c) && !has_layers(c)).then_some("is not a list of layers"),
        "write two names at least, innermost first, such as [\"rack\", \"cluster\"]";
    cooperation layers: |c| (in_cluster(c) && has_layers(c) && c.cooperation.layers.len() > parts(c))
            .then(|| format!("has {} names, and [node] topology {} parts", c.cooperation.layers.len(), parts(c))),
        "give each layer a part of the topology, or leave the widest out";
    cooperation weight: |c| (in_cluster(c) && !(1..=WEIGHT_PERCENT_MAX).contains(&c.cooperation.weight_percent))
            .then(|| format!("is not between 1 and {WEIGHT_PERCENT_MAX}")),
        "write 100 for a node like the others, 200 for one with twice the disk";
    cooperation secret_key: |c| others_reach(c)
            .is_some_and(|address| c.cooperation.secret_key.is_none() && !address.ip().is_loopback())
            .then_some("is not set, and others than this machine can connect"),
        "write the same random text into a file on every node, and its path as secret_key_file";
    cooperation secret_key: |c| (in_cluster(c) && c.cooperation.secrets().any(is_short))
            .then(|| format!("has fewer than {SECRET_BYTES_MIN} characters")),
        "make one with: openssl rand -hex 32";

    directory timeout: |c| (!(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&c.directory.timeout))
            .then_some("is too short or too long"),
        "write a time from 1ms to 1s; a reader waits for it at each block that is not here";
    directory prefix: |c| (!is_key_prefix(&c.directory.prefix)).then_some("is not a prefix of keys"),
        "use letters, digits and . - _";
    directory url: |c| redis_fault(c).map(|fault| fault.what),
        redis_fault(c).map_or_else(String::new, |fault| fault.hint);
    // Nodes in other processes would each have a directory of their own.
    directory url: |c| others_reach(c)
            .filter(|address| has_directory(c) && c.directory.is_embedded() && !address.ip().is_loopback())
            .map(|address| format!("is embedded, and nodes on other machines ({address}) have others")),
        "write the URL of a Redis that all nodes reach, or [cooperation] mode = \"hierarchy\"";
    store policy: |c| (c.store.policy.is_some_and(PolicyName::is_gwf) && !has_directory(c))
            .then_some("needs a directory"),
        "write duel, or [cooperation] mode = \"directory\"";

    cooperation period: |c| (c.cooperation.period < PERIOD_MIN).then_some("is too short to learn from"),
        "write at least 1s; in 90s the requests of most clusters say enough";
    cooperation split: |c| shares(c).map(sum).filter(|sum| *sum != 100)
            .map(|sum| format!("adds up to {sum} percent")),
        "name a percentage for each layer from L1 outwards, such as [50, 50]";
    cooperation split: |c| whole_shares(c).filter(|shares| shares.len() > LAYERS_MAX)
            .map(|shares| format!("names {} layers", shares.len())),
        format!("a node has at most {LAYERS_MAX}");
    cooperation split: |c| whole_shares(c)
            .filter(|shares| shares.len() <= LAYERS_MAX && c.cooperation.mode == CooperationMode::Hierarchy)
            .filter(|shares| shares.len() != c.cooperation.layers.len())
            .map(|shares| format!("names {} shares for {} layers", shares.len(), c.cooperation.layers.len())),
        "name a percentage for each of layers, from L1 outwards";

    lake answer_timeout: |c| c.lake.answer_timeout.is_zero().then_some("is 0"),
        "no answer could be in time; write some seconds";
    lake write_timeout: |c| c.lake.write_timeout.is_zero().then_some("is 0"),
        "no answer could be in time; write some seconds";

    limits requests: |c| (c.limits.requests == 0).then_some("is 0"),
        "nothing could be served; write at least 1";
    limits read_ahead_blocks: |c| (c.limits.read_ahead_blocks == 0).then_some("is 0"),
        "nothing could be served; write at least 1";
    limits fill_bytes: |c| (c.limits.fill_bytes < FILL_BLOCKS_MIN * c.store.block_bytes)
            .then(|| format!("holds fewer than {FILL_BLOCKS_MIN} blocks")),
        "raise it, or lower [store] block_size";

    lookup listen: |c| c.lookup.listen.is_empty().then_some("names no address"),
        "write an address and a port, such as [\"10.0.0.53:53\"]";
    lookup listen: |c| colliding(&c.lookup.listen).map(|(a, b)| format!("names {b}, which collides with {a}")),
        "keep one of the two";
    lookup admin: |c| c.lookup.admin
            .and_then(|admin| c.lookup.listen.iter().find(|listen| overlap(**listen, admin)))
            .map(|taken| format!("collides with listen, which names {taken}")),
        "choose another port";
    lookup name: |c| c.lookup.name.is_none().then_some("is not set"),
        "write the name that clients use as their endpoint, such as s3.example.org";
    lookup name: |c| c.lookup.name.as_deref()
            .is_some_and(|name| !is_domain(name) || name.len() > NAME_LENGTH_MAX)
            .then_some("is not a domain"),
        format!("write a DNS name of at most {NAME_LENGTH_MAX} characters without scheme or port, such as s3.example.org");
    lookup nodes: |c| c.lookup.nodes.is_empty().then_some("names no node to ask for the members"), NODES_HINT;
    lookup nodes: |c| c.lookup.nodes.iter().enumerate().filter_map(|(index, url)| match endpoint_fault(url) {
            Some(why) => Some(format!("names {url:?}, which {why}")),
            None => c.lookup.nodes[..index].contains(url).then(|| format!("names {url:?} twice")),
        }),
        NODES_HINT;
    lookup nodes_token_file: |c| unreadable(c.lookup.nodes_token_file.as_deref()), FILE_HINT;
    lookup nodes_ca_file: |c| unreadable(c.lookup.nodes_ca_file.as_deref()), FILE_HINT;
    lookup answers: |c| (!(1..=ANSWERS_MAX).contains(&c.lookup.answers)).then_some("is not a number of addresses"),
        format!("write a number from 1 to {ANSWERS_MAX}");

    log filter: |c| EnvFilter::try_new(&c.log.filter).is_err().then_some("is not a filter"),
        "write a level (error, warn, info, debug, trace), or target=level pairs: shoal=debug";
    log format: |c| (!["text", "json"].contains(&&*c.log.format)).then_some("is neither text nor json"),
        "write \"text\" or \"json\"";

    log access_file: |c| (c.log.access_file.is_some() && c.log.access == AccessFormat::Events)
            .then_some("is for access = \"s3\" alone"),
        "write access = \"s3\", or leave it out: events go to stderr";

    trace endpoint: |c| c.trace.endpoint.as_deref().and_then(collector_fault),
        "write the URL of a collector, such as http://127.0.0.1:4318";
    trace endpoint: |c| c.trace.endpoint.as_deref().is_some_and(|endpoint| is_own(endpoint, c))
            .then_some("is an address of this node itself"),
        "write the URL of a collector, such as http://127.0.0.1:4318";
    trace ca_file: |c| unreadable(c.trace.ca_file.as_deref()), PEM_HINT;
    trace headers_file: |c| (c.trace.headers.is_some() && c.trace.endpoint.as_ref().is_some_and(|url| {
                url.parse().is_ok_and(|uri| is_open_to_others(&uri))
            }))
            .then_some("would pass the network unencrypted"),
        "write an endpoint that begins with https://, or put an agent on this machine";
    trace sample: |c| (!(0.0..=1.0).contains(&c.trace.sample.0)).then_some("is not between 0 and 1"),
        "write the share of requests that are traced, such as 0.01";
}

pub(super) fn faults<W: Into<String>>(
    whats: impl IntoIterator<Item = W>,
    hint: impl Into<String>,
) -> Vec<Fault> {
    let hint = hint.into();
    let whats = whats.into_iter();
    whats.map(|what| Fault::new(what, hint.as_str())).collect()
}

/// Returns `what` if a setting is set without the other that it needs.
#[expect(clippy::ref_option, reason = "rows of the table name fields")]
fn alone<A, B>(one: &Option<A>, other: &Option<B>, what: &'static str) -> Option<&'static str> {
    (one.is_some() && other.is_none()).then_some(what)
}

fn is_block_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes)
}

fn is_key_prefix(prefix: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !prefix.is_empty() && prefix.chars().all(is_plain)
}

fn in_cluster(config: &Config) -> bool {
    config.cooperation.mode != CooperationMode::Solo
}

fn has_directory(config: &Config) -> bool {
    config.cooperation.mode == CooperationMode::Directory
}

/// Returns the address at which other nodes reach this one, if it cooperates.
pub(super) fn others_reach(config: &Config) -> Option<SocketAddr> {
    let cooperation = &config.cooperation;
    in_cluster(config).then(|| cooperation.advertise.unwrap_or(cooperation.listen))
}

fn has_layers(config: &Config) -> bool {
    let layers = &config.cooperation.layers;
    (2..=LAYERS_MAX).contains(&layers.len()) && layers.iter().all(|layer| is_name(layer))
}

/// Returns the number of parts of the node's place.
fn parts(config: &Config) -> usize {
    config.node.topology.split('/').count()
}

/// Returns true if a secret can be guessed; the empty one is that of nodes without any.
fn is_short(secret: &str) -> bool {
    (1..SECRET_BYTES_MIN).contains(&secret.len())
}

fn redis_fault(config: &Config) -> Option<Fault> {
    let error = config.directory.check().err()?.to_string();
    let (what, hint) = error.split_once("\nhint: ").unwrap_or((&error, ""));
    Some(Fault::new(format!("cannot be used: {what}"), hint))
}

/// Returns the fixed shares of the layers in percent, if they are fixed.
fn shares(config: &Config) -> Option<&[u8]> {
    match &config.cooperation.split {
        SplitRule::Fixed(percents) => Some(percents),
        SplitRule::Adaptive => None,
    }
}

fn sum(percents: &[u8]) -> u32 {
    percents.iter().map(|&percent| u32::from(percent)).sum()
}

fn whole_shares(config: &Config) -> Option<&[u8]> {
    shares(config).filter(|percents| sum(percents) == 100)
}

/// Returns the first two listeners that need the same port.
fn colliding(listen: &[SocketAddr]) -> Option<(SocketAddr, SocketAddr)> {
    let mut pairs = (0..listen.len()).flat_map(|b| (0..b).map(move |a| (listen[a], listen[b])));
    pairs.find(|(a, b)| overlap(*a, *b))
}
