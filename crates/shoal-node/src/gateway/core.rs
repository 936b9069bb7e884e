//! The parts of a node that other parts share: built once, and passed to the others by reference.

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_cache::cache_events::EventExchange;
use shoal_cache::coherence::Coherence;
use shoal_cache::cooperation::{Cooperation, CooperationMode};
use shoal_cache::directory::BlockDirectory;
use shoal_cache::fetch::{Fetcher, FetcherParts};
use shoal_cache::grants::Grants;
use shoal_cache::gwf::Keeper;
use shoal_cache::messages::Messages;
use shoal_cache::peer::PeerConnector;
use shoal_cache::single_flight::SingleFlight;
use shoal_cache::split::{Split, SplitConfig};
use shoal_cache::write::{WriteRules, WriteThrough, WriteThroughSizes};
use shoal_net::channel::Channel;
use shoal_net::clock;
use shoal_net::endpoint::Endpoint;
use shoal_net::fair::in_flight::InFlight;
use shoal_net::metrics::Metrics;
use shoal_orders::bulletin::Bulletin;
use shoal_orders::tasks::Manifests;
use shoal_s3::identity::Identities;
use shoal_store::Store;

use crate::admin::auth::AdminAuth;
use crate::admin::reloads::Reloads;
use crate::config::Config;
use crate::reload;

/// The parts that several other parts of a node share.
pub(super) struct Core {
    pub(super) config: Arc<Config>,
    /// Address for clients.
    pub(super) s3_address: SocketAddr,
    /// Address for operators.
    pub(super) admin_address: SocketAddr,
    pub(super) lake: Arc<Endpoint>,
    pub(super) store: Arc<Store>,
    pub(super) identities: Arc<Identities>,
    pub(super) grants: Arc<Grants>,
    pub(super) single_flight: Arc<SingleFlight>,
    pub(super) split: Arc<Split>,
    pub(super) cooperation: Arc<Cooperation>,
    /// Sends and receives messages between nodes.
    pub(super) messages: Arc<Messages>,
    pub(super) directory: Option<Arc<BlockDirectory>>,
    /// Tracks changes to coherent objects; `None` if no object is coherent.
    pub(super) coherence: Option<Arc<Coherence>>,
    /// Exchanges cache events with other nodes; `None` unless the store uses C2P.
    pub(super) events: Option<Arc<EventExchange>>,
    /// Evicts blocks by worth; `None` unless the store uses GWF.
    pub(super) keeper: Option<Arc<Keeper>>,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) write_rules: WriteRules,
    pub(super) write_through: Arc<WriteThrough>,
    /// Client requests in flight.
    pub(super) in_flight: Arc<InFlight>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) reloads: Arc<Reloads>,
    /// The records that all nodes share.
    pub(super) bulletin: Arc<Bulletin>,
    /// Authorizes requests of operators.
    pub(super) admin_auth: Arc<AdminAuth>,
    /// Object lists uploaded with orders.
    pub(super) manifests: Arc<Manifests>,
}

/// The parts that are opened first and may fail.
pub(super) struct Opened {
    pub(super) lake: Arc<Endpoint>,
    pub(super) store: Arc<Store>,
    pub(super) directory: Option<Arc<BlockDirectory>>,
    pub(super) bulletin: Arc<Bulletin>,
    pub(super) manifests: Manifests,
    pub(super) admin_auth: Arc<AdminAuth>,
}

impl Core {
    /// Builds the shared parts of a node that listens for clients and operators at these addresses.
    pub(super) fn new(
        config: Arc<Config>,
        (s3_address, admin_address): (SocketAddr, SocketAddr),
        opened: Opened,
    ) -> Self {
        let Opened {
            lake,
            store,
            directory,
            bulletin,
            manifests,
            admin_auth,
        } = opened;
        let limits = &config.limits;
        let (grants, single_flight) = (Arc::<Grants>::default(), Arc::<SingleFlight>::default());
        let split = Split::new(
            Arc::clone(&store),
            &SplitConfig::from(&config.cooperation),
            config.store.block_bytes,
        );
        let split = Arc::new(split);
        let cooperation = Arc::new(cooperation(&config));
        let fetching = FetcherParts {
            lake: Arc::clone(&lake),
            grants: Arc::clone(&grants),
            cooperation: Arc::clone(&cooperation),
            directory: directory.clone(),
            split: Arc::clone(&split),
            store: Arc::clone(&store),
            single_flight: Arc::clone(&single_flight),
        };
        let fetcher = Fetcher::new(fetching, limits.fill_bytes, limits.read_ahead_blocks);
        let fetcher = Arc::new(fetcher);
        let coherence = directory
            .as_ref()
            .and_then(|directory| Coherence::new(&config.freshness, lake.url(), directory, &cooperation));
        let keeper = directory.as_ref();
        let keeper = keeper.and_then(|directory| Keeper::new(&store, directory, &cooperation, &fetcher));
        let messages = Messages::new(&cooperation);
        let events = EventExchange::new(config.cooperation.mode, &store, &cooperation, &messages);
        let write_through = WriteThrough::new(
            Arc::clone(&store),
            Arc::clone(&fetcher),
            Arc::clone(&cooperation),
            Arc::clone(&grants),
            WriteThroughSizes::from(&config.store),
        );
        Self {
            s3_address,
            admin_address,
            lake,
            store,
            identities: Arc::new(Identities::new(reload::identities(&config))),
            grants,
            single_flight,
            split,
            messages,
            events,
            cooperation,
            directory,
            coherence,
            keeper,
            fetcher,
            write_rules: WriteRules::new(&config.write, &config.tier_names()),
            write_through: Arc::new(write_through),
            in_flight: InFlight::new(
                limits.requests,
                limits.requests_per_identity(),
                limits.connections(),
            ),
            metrics: Arc::new(Metrics::default()),
            reloads: Arc::new(Reloads::since(clock::utc_now())),
            bulletin,
            manifests: Arc::new(manifests),
            admin_auth,
            config,
        }
    }
}

/// Returns the number of layers in which a node looks for blocks; one if it does not cooperate.
fn layers(config: &Config) -> usize {
    match config.cooperation.mode {
        CooperationMode::Solo => 1,
        CooperationMode::Hierarchy | CooperationMode::Directory => config.cooperation.layers.len(),
    }
}

/// Returns the number of layers that share the disk of a node. With a directory there is only one, because a
/// block is kept wherever it is read.
pub(super) fn layers_of_room(config: &Config) -> usize {
    match config.cooperation.mode {
        CooperationMode::Solo | CooperationMode::Directory => 1,
        CooperationMode::Hierarchy => config.cooperation.layers.len(),
    }
}

fn cooperation(config: &Config) -> Cooperation {
    let node = &config.node;
    let secrets = config.cooperation.secrets();
    let channel = Channel::new(&node.name, secrets, config.limits.connections());
    let peers = PeerConnector::new(Arc::new(channel));
    Cooperation::new(&node.name, &node.topology, layers(config), peers)
}
