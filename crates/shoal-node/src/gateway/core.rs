//! The parts of a node that others work with: built once, and handed to every other part by reference.

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_s3::identity::Identities;
use shoal_s3::operation::Operation;
use shoal_store::Store;

use crate::admin::auth::AdminAuth;
use crate::admin::reloads::Reloads;
use crate::ahead::FetchAhead;
use crate::bulletin::Bulletin;
use crate::cache_events::EventExchange;
use crate::channel::{Channel, ChannelConfig};
use crate::clock;
use crate::coherence::Coherence;
use crate::config::Config;
use crate::cooperation::{Cooperation, CooperationMode};
use crate::directory::BlockDirectory;
use crate::endpoint::Endpoint;
use crate::fair::in_flight::InFlight;
use crate::fetch::{Fetcher, FetcherParts};
use crate::grants::Grants;
use crate::gwf::Keeper;
use crate::messages::Messages;
use crate::metrics::Metrics;
use crate::peer::PeerConnector;
use crate::reload;
use crate::single_flight::SingleFlight;
use crate::split::{Split, SplitConfig};
use crate::tasks::Manifests;
use crate::write::{WriteRules, WriteThrough, WriteThroughSizes};

/// The parts that several other parts of a node share.
pub(super) struct Core {
    pub(super) config: Arc<Config>,
    /// Where clients reach this node.
    pub(super) s3_address: SocketAddr,
    /// Where operators reach this node.
    pub(super) admin_address: SocketAddr,
    pub(super) lake: Arc<Endpoint>,
    pub(super) store: Arc<Store>,
    pub(super) identities: Arc<Identities>,
    pub(super) grants: Arc<Grants>,
    pub(super) single_flight: Arc<SingleFlight>,
    pub(super) split: Arc<Split>,
    pub(super) cooperation: Arc<Cooperation>,
    /// Tells other nodes small news.
    pub(super) messages: Arc<Messages>,
    pub(super) directory: Option<Arc<BlockDirectory>>,
    /// Knows of the changes of coherent objects, if there are any.
    pub(super) coherence: Option<Arc<Coherence>>,
    /// Keeps objects complete together with other nodes, if the store follows C2P.
    pub(super) events: Option<Arc<EventExchange>>,
    /// Fetches what objects lack here, if the configuration says so.
    pub(super) fetch_ahead: Option<Arc<FetchAhead>>,
    /// Makes room by the worth of blocks, if the store follows GWF.
    pub(super) keeper: Option<Arc<Keeper>>,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) write_rules: WriteRules,
    pub(super) write_through: Arc<WriteThrough>,
    /// Requests of clients.
    pub(super) in_flight: Arc<InFlight>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) reloads: Arc<Reloads>,
    /// The records that all nodes know.
    pub(super) bulletin: Arc<Bulletin>,
    /// Which requests operators may make.
    pub(super) admin_auth: Arc<AdminAuth>,
    /// Lists of objects that came with orders.
    pub(super) manifests: Arc<Manifests>,
    /// Documents of plans.
    pub(super) documents: Arc<Manifests>,
}

/// The parts that are opened before all others, and may fail.
pub(super) struct Opened {
    pub(super) lake: Arc<Endpoint>,
    pub(super) store: Arc<Store>,
    pub(super) directory: Option<Arc<BlockDirectory>>,
    pub(super) bulletin: Arc<Bulletin>,
    pub(super) manifests: Manifests,
    pub(super) documents: Manifests,
    pub(super) admin_auth: Arc<AdminAuth>,
}

impl Core {
    /// Builds the shared parts of a node that listens at these addresses for clients and for operators.
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
            documents,
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
        let events_to_follow = events.as_ref().filter(|_| config.cooperation.fetch_missing);
        let fetch_ahead = events_to_follow.map(|events| {
            let ahead = FetchAhead::new(&store, &fetcher, &cooperation);
            let considering = Arc::clone(&ahead);
            events.listen(move |event| considering.consider(event));
            ahead
        });
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
            fetch_ahead,
            cooperation,
            directory,
            coherence,
            keeper,
            fetcher,
            write_rules: WriteRules::new(&config.write, &config.tiers),
            write_through: Arc::new(write_through),
            in_flight: InFlight::new(limits.requests, limits.requests_per_identity, limits.connections),
            metrics: Arc::new(Metrics::new(&Operation::ALL.map(Operation::as_str))),
            reloads: Arc::new(Reloads::since(clock::utc_now())),
            bulletin,
            manifests: Arc::new(manifests),
            documents: Arc::new(documents),
            admin_auth,
            config,
        }
    }
}

/// The number of layers in which a node looks for blocks. One that does not cooperate has one layer: its own.
fn layers(config: &Config) -> usize {
    match config.cooperation.mode {
        CooperationMode::Solo => 1,
        CooperationMode::Hierarchy | CooperationMode::Directory => config.cooperation.layers.len(),
    }
}

/// The number of layers that share the room of a node. Nodes with a directory keep blocks for themselves: a
/// block is at home where it is read.
pub(super) fn layers_of_room(config: &Config) -> usize {
    match config.cooperation.mode {
        CooperationMode::Solo | CooperationMode::Directory => 1,
        CooperationMode::Hierarchy => config.cooperation.layers.len(),
    }
}

fn cooperation(config: &Config) -> Cooperation {
    let node = &config.node;
    let channel_config = ChannelConfig::from(&config.cooperation);
    let channel = Channel::new(&node.name, &channel_config, config.limits.connections);
    let peers = PeerConnector::new(Arc::new(channel), &config.limits);
    Cooperation::new(&node.name, &node.topology, layers(config), peers)
}
