//! The parts of a node that other parts share: built once, and passed to the others by reference.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use shoal_base::causes;
use shoal_cache::cache_events::EventExchange;
use shoal_cache::coherence::Coherence;
use shoal_cache::cooperation::{Cooperation, CooperationMode};
use shoal_cache::directory::BlockDirectory;
use shoal_cache::early::EarlyBlocks;
use shoal_cache::fetch::{CacheParts, Fetcher};
use shoal_cache::gwf::Keeper;
use shoal_cache::held::HeldObjects;
use shoal_cache::job_reads::JobReads;
use shoal_cache::messages::Messages;
use shoal_cache::quotas::Quotas;
use shoal_cache::split::Split;
use shoal_cache::temporary_keys::SharedKeys;
use shoal_cache::write::{WriteRules, WriteThrough};
use shoal_net::channel::Channel;
use shoal_net::collector::Collector;
use shoal_net::endpoint::Endpoint;
use shoal_net::fair::in_flight::InFlight;
use shoal_net::key_lookup::Found;
use shoal_net::key_source::KeySources;
use shoal_net::metrics::Metrics;
use shoal_orders::bulletin::Bulletin;
use shoal_orders::tasks::OrderFiles;
use shoal_s3::auth::Refusal;
use shoal_s3::identity::Identities;
use shoal_store::Store;

use crate::access_log::{AccessLog, OpenLog};
use crate::config::Config;

/// The addresses of a node, once its listeners are bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    /// Address for clients.
    pub(crate) s3: SocketAddr,
    /// Address at which clients get temporary keys; `None` if they cannot.
    pub(crate) sts: Option<SocketAddr>,
    /// Address for operators.
    pub(crate) admin: SocketAddr,
    /// Address for other nodes; `None` if the node does not cooperate.
    pub(crate) peer: Option<SocketAddr>,
}

/// The parts that several other parts of a node share, beside those that reads and writes of blocks share.
pub(crate) struct Core {
    /// The configuration at the start of the node.
    pub(crate) config: Config,
    pub(crate) addresses: Addresses,
    pub(crate) identities: Arc<Identities>,
    /// The temporary keys that all nodes share; `None` if clients cannot get any.
    pub(crate) keys: Option<Arc<SharedKeys>>,
    /// The services that know the secrets of further clients; `None` without any.
    pub(crate) key_sources: Option<Arc<KeySources>>,
    /// Gets the traces of requests; `None` if nothing is traced.
    pub(crate) collector: Option<Arc<Collector>>,
    /// Sends and receives messages between nodes.
    pub(crate) messages: Arc<Messages>,
    /// Tracks changes to coherent objects; `None` if no object is coherent.
    pub(crate) coherence: Option<Arc<Coherence>>,
    /// Exchanges cache events with other nodes; `None` unless the store uses C2P.
    pub(crate) events: Option<Arc<EventExchange>>,
    /// Evicts blocks by worth; `None` unless the store uses GWF.
    pub(crate) keeper: Option<Arc<Keeper>>,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) write_rules: WriteRules,
    pub(crate) write_through: Arc<WriteThrough>,
    /// Client requests in flight.
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) metrics: Arc<Metrics>,
    /// Where requests are logged.
    pub(crate) access_log: AccessLog,
    /// The records that all nodes share.
    pub(crate) bulletin: Arc<Bulletin>,
    /// Object lists uploaded with orders.
    pub(crate) order_files: Arc<OrderFiles>,
}

impl Core {
    /// Asks the other nodes or a key source for the access key that a request was refused for.
    pub(crate) async fn find_key(&self, refusal: &Refusal) -> Found {
        match (refusal, &self.keys, &self.key_sources) {
            (Refusal::UnknownTemporaryKey(access_key), Some(keys), _) => keys.find(access_key).await,
            (Refusal::UnknownAccessKey(access_key), _, Some(sources)) => sources.find(access_key).await,
            _ => Found::Unknown,
        }
    }

    /// Returns true if another node or a key source may know an access key that a gate does not know.
    pub(crate) fn may_find(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::UnknownTemporaryKey(_) => self.keys.is_some(),
            Refusal::UnknownAccessKey(_) => self.key_sources.is_some(),
            _ => false,
        }
    }

    /// Builds the shared parts of a node that listens at these addresses around those that are open already.
    ///
    /// # Errors
    ///
    /// The temporary keys on the disk cannot be read, or a key source or the collector of traces cannot be
    /// used as configured. The text says what to do.
    pub(crate) fn new(
        config: Config,
        addresses: Addresses,
        lake: Arc<Endpoint>,
        store: Arc<Store>,
        directory: Option<Arc<BlockDirectory>>,
        bulletin: Arc<Bulletin>,
        order_files: OrderFiles,
    ) -> Result<Self, String> {
        let limits = &config.limits;
        let split = Split::new(
            Arc::clone(&store),
            &config.cooperation.split,
            config.cooperation.period,
            config.store.block_bytes,
        );
        let parts = CacheParts {
            lake,
            grants: Arc::default(),
            cooperation: Arc::new(cooperation(&config)),
            directory,
            split: Arc::new(split),
            store,
            single_flight: Arc::default(),
            early: EarlyBlocks::default(),
            held: HeldObjects::default(),
            job_reads: JobReads::default(),
            quotas: Quotas::new(&config.quotas, config.store.capacity_bytes, limits.fill_bytes),
            ahead: limits.read_ahead_blocks,
            block_bytes: config.store.block_bytes,
        };
        let fetcher = Arc::new(Fetcher::new(parts, limits.fill_bytes));
        let CacheParts {
            lake,
            cooperation,
            directory,
            store,
            ..
        } = &fetcher.parts;
        let coherence = directory
            .as_ref()
            .and_then(|directory| Coherence::new(&config.freshness, lake.url(), directory, cooperation));
        let messages = Messages::new(cooperation);
        let events = EventExchange::new(config.cooperation.mode, store, cooperation, &messages);
        let write_through = WriteThrough::new(Arc::clone(&fetcher), config.store.capacity_bytes);
        let identities = Arc::new(Identities::new(config.identities.iter().cloned()));
        let keys = config
            .sts
            .is_on()
            .then(|| SharedKeys::open(&identities, cooperation, config.cooperation.secrets(), store));
        let keys = keys.transpose().map_err(|error| format!(
            "the temporary keys of clients cannot be opened: {error}\nhint: the node needs to read and write node/keys in [store] path; without that file clients need new keys"
        ))?;
        let key_sources =
            KeySources::new(&config.key_sources, &config.lake, limits, &identities).map_err(|error| {
                format!(
                    "a [[key_source]] cannot be used: {}\nhint: see its url and ca_file",
                    causes::line(&error)
                )
            })?;
        let collector = Collector::open(&config.trace, &config.node.name, limits).map_err(|error| {
            format!(
                "the collector of traces cannot be used: {}\nhint: see [trace] endpoint and ca_file",
                causes::line(&error)
            )
        })?;
        let access_log = OpenLog::new(&config.log).map_err(|error| error.to_string())?;
        let access_log = AccessLog::begin(access_log).map_err(|error| error.to_string())?;
        Ok(Self {
            addresses,
            keys,
            key_sources,
            collector,
            identities,
            messages,
            events,
            coherence,
            keeper: Keeper::new(&fetcher),
            fetcher,
            write_rules: WriteRules::new(&config.write, &config.tier_names()),
            write_through: Arc::new(write_through),
            in_flight: InFlight::new(
                limits.requests,
                limits.requests_per_identity(),
                limits.connections(),
            ),
            metrics: Arc::new(Metrics::default()),
            access_log,
            bulletin,
            order_files: Arc::new(order_files),
            config,
        })
    }
}

impl Deref for Core {
    type Target = CacheParts;

    fn deref(&self) -> &CacheParts {
        &self.fetcher.parts
    }
}

/// Returns the number of layers that share the disk of a node. With a directory there is only one, because a
/// block is kept wherever it is read.
pub(crate) fn layers_of_room(config: &Config) -> usize {
    match config.cooperation.mode {
        CooperationMode::Solo | CooperationMode::Directory => 1,
        CooperationMode::Hierarchy => config.cooperation.layers.len(),
    }
}

fn cooperation(config: &Config) -> Cooperation {
    let node = &config.node;
    // The layers in which the node looks for blocks.
    let layers = match config.cooperation.mode {
        CooperationMode::Solo => 1,
        CooperationMode::Hierarchy | CooperationMode::Directory => config.cooperation.layers.len(),
    };
    let secrets = config.cooperation.secrets();
    let channel = Channel::new(&node.name, secrets, config.limits.connections());
    Cooperation::new(&node.name, &node.topology, layers, Arc::new(channel))
}
