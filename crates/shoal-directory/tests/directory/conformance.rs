//! The contract of every directory.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::join_all;
use shoal_directory::embedded::Embedded;
use shoal_directory::{
    Directory, Entry, GROUP_BLOCKS, Group, HOLDERS_MAX, Left, Located, NodeState, WEIGHT_MAX,
};
use shoal_policy::{BlockId, NodeId, VersionId};
use tokio::sync::OnceCell;

use crate::extensions::{
    a_group_has_a_bounded_number_of_extensions, an_extension_lasts_for_its_own_time,
    an_extension_stays_until_it_is_replaced,
};
use crate::names::{
    a_name_settles_and_every_change_replaces_its_token, a_node_is_present_from_when_it_said_so,
};
use crate::servers;

/// A directory, and the servers that it needs until the test ends.
struct Opened {
    directory: Arc<dyn Directory>,
    _servers: Option<servers::Servers>,
}

macro_rules! conforms {
    ($module:ident, $open:path) => {
        mod $module {
            conforms! { $open:
                one_asker_gets_a_block_that_no_node_holds_and_others_are_sent_there
                the_holders_of_a_block_are_told_to_all_others
                a_node_that_drops_a_block_is_told_no_more
                a_claim_is_stolen_from_the_node_that_is_named_only
                copies_and_claims_of_nodes_that_were_tried_do_not_count
                blocks_and_groups_are_apart
                blocks_of_a_group_are_looked_for_together
                answers_tell_which_blocks_of_the_group_other_nodes_hold
                of_many_askers_at_once_one_gets_the_block
                an_entry_names_a_bounded_number_of_holders
                a_marker_is_there_once_it_was_set
                an_entry_shows_holders_claimant_and_weight
                a_copy_that_leaves_others_leaves_its_weight_to_them
                the_last_copy_leaves_the_global_weight_where_it_is_until_its_node_takes_it
                of_all_holders_that_leave_at_once_one_has_the_last_copy
                a_weight_has_a_bound
                nodes_hear_of_each_others_state
                names_settle_and_nodes_are_present_in_their_time
                an_extension_stays_until_it_is_replaced
                a_group_has_a_bounded_number_of_extensions
                an_extension_lasts_for_its_own_time
            }
        }
    };
    ($open:path: $($scenario:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $scenario() {
            let Some(opened) = $open().await else {
                eprintln!("skipped: redis-server is not installed");
                return;
            };
            super::$scenario(&opened.directory).await;
        }
    )*};
}

conforms!(embedded, super::embedded);
conforms!(single, super::single);
conforms!(secured, super::secured);
conforms!(cluster, super::cluster);

fn embedded() -> Ready<Option<Opened>> {
    ready(Some(Opened {
        directory: Arc::<Embedded>::default(),
        _servers: None,
    }))
}

async fn single() -> Option<Opened> {
    open(servers::Servers::single()?).await
}

async fn secured() -> Option<Opened> {
    open(servers::Servers::secured()?).await
}

/// One cluster for all scenarios, each with keys of its own: six servers take a while to find each other.
async fn cluster() -> Option<Opened> {
    static CLUSTER: OnceCell<Option<servers::Servers>> = OnceCell::const_new();
    static OPENED: AtomicU32 = AtomicU32::new(0);
    let servers = CLUSTER
        .get_or_init(|| async { servers::Servers::cluster() })
        .await;
    let mut settings = servers.as_ref()?.settings.clone();
    settings.prefix = format!("shoal-{}", OPENED.fetch_add(1, Ordering::Relaxed));
    Some(Opened {
        directory: Arc::new(servers::connected(&settings).await),
        _servers: None,
    })
}

async fn open(servers: servers::Servers) -> Option<Opened> {
    Some(Opened {
        directory: Arc::new(servers::connected(&servers.settings).await),
        _servers: Some(servers),
    })
}

type Shared = Arc<dyn Directory>;

fn node(number: u64) -> NodeId {
    // All bytes of an id count, zeros and line ends too.
    NodeId(number << 56 | 0x0d_0a_00 << 16 | number)
}

fn block(index: u32) -> BlockId {
    BlockId {
        version: VersionId([0xa5; 16]),
        index,
    }
}

async fn locate(directory: &Shared, asker: u64, index: u32) -> Located {
    locate_without(directory, asker, block(index), &[]).await
}

async fn locate_without(directory: &Shared, asker: u64, block: BlockId, without: &[NodeId]) -> Located {
    let indexes = [block.index];
    let located = directory.locate(node(asker), Group::containing(block), &indexes, without);
    let [located] = located.await.unwrap().each.try_into().expect("one answer");
    located
}

async fn held(directory: &Shared, holder: u64, indexes: &[u32]) {
    let group = Group::containing(block(indexes[0]));
    directory.held(node(holder), group, indexes).await.unwrap();
}

async fn dropped(directory: &Shared, holder: u64, indexes: &[u32]) {
    let group = Group::containing(block(indexes[0]));
    directory.dropped(node(holder), group, indexes).await.unwrap();
}

fn sorted(located: Located) -> Vec<NodeId> {
    let Located::Held(mut nodes) = located else {
        panic!("{located:?}")
    };
    nodes.sort_unstable();
    nodes
}

async fn one_asker_gets_a_block_that_no_node_holds_and_others_are_sent_there(directory: &Shared) {
    assert_eq!(locate(directory, 1, 0).await, Located::Yours);
    assert_eq!(locate(directory, 2, 0).await, Located::Claimed(node(1)));
    assert_eq!(
        locate(directory, 1, 0).await,
        Located::Yours,
        "the claim is its own"
    );
    held(directory, 1, &[0]).await;
    assert_eq!(locate(directory, 2, 0).await, Located::Held(vec![node(1)]));
}

async fn the_holders_of_a_block_are_told_to_all_others(directory: &Shared) {
    for holder in [3, 1, 2, 2] {
        held(directory, holder, &[5]).await;
    }
    let all = [node(1), node(2), node(3)];
    assert_eq!(sorted(locate(directory, 9, 5).await), all);
    assert_eq!(sorted(locate(directory, 2, 5).await), [node(1), node(3)]);
    held(directory, 4, &[6]).await;
    assert_eq!(
        locate(directory, 4, 6).await,
        Located::Yours,
        "no other node holds it"
    );
}

async fn a_node_that_drops_a_block_is_told_no_more(directory: &Shared) {
    held(directory, 1, &[0, 1]).await;
    held(directory, 2, &[0]).await;
    dropped(directory, 1, &[0, 1]).await;
    assert_eq!(locate(directory, 3, 0).await, Located::Held(vec![node(2)]));
    assert_eq!(locate(directory, 3, 1).await, Located::Yours);
    dropped(directory, 3, &[1]).await;
    assert_eq!(
        locate(directory, 2, 1).await,
        Located::Yours,
        "the claim is given back"
    );
    dropped(directory, 7, &[0, 1]).await;
    assert_eq!(locate(directory, 3, 1).await, Located::Claimed(node(2)));
}

async fn a_claim_is_stolen_from_the_node_that_is_named_only(directory: &Shared) {
    assert_eq!(locate(directory, 1, 0).await, Located::Yours);
    let steal = async |from| locate_without(directory, 2, block(0), &[node(from)]).await;
    assert_eq!(steal(3).await, Located::Claimed(node(1)));
    assert_eq!(steal(1).await, Located::Yours);
    assert_eq!(locate(directory, 1, 0).await, Located::Claimed(node(2)));
}

async fn copies_and_claims_of_nodes_that_were_tried_do_not_count(directory: &Shared) {
    for holder in [1, 2] {
        held(directory, holder, &[0]).await;
    }
    let located = async |asker, without: &[u64]| {
        let without: Vec<_> = without.iter().copied().map(node).collect();
        locate_without(directory, asker, block(0), &without).await
    };
    assert_eq!(located(3, &[1]).await, Located::Held(vec![node(2)]));
    assert_eq!(located(3, &[2, 1]).await, Located::Yours);
    assert_eq!(
        located(4, &[1, 2]).await,
        Located::Claimed(node(3)),
        "only one fetches it"
    );
    assert_eq!(located(4, &[1, 2, 3]).await, Located::Yours);
    assert_eq!(
        sorted(located(5, &[]).await),
        [node(1), node(2)],
        "their entries stay"
    );
}

async fn blocks_and_groups_are_apart(directory: &Shared) {
    let last = GROUP_BLOCKS - 1;
    held(directory, 1, &[0, last]).await;
    held(directory, 2, &[GROUP_BLOCKS]).await;
    assert_eq!(locate(directory, 3, 0).await, Located::Held(vec![node(1)]));
    assert_eq!(locate(directory, 3, last).await, Located::Held(vec![node(1)]));
    assert_eq!(locate(directory, 3, 1).await, Located::Yours);
    assert_eq!(
        locate(directory, 3, GROUP_BLOCKS).await,
        Located::Held(vec![node(2)])
    );
    let other = BlockId {
        version: VersionId([0; 16]),
        index: 0,
    };
    assert_eq!(locate_without(directory, 3, other, &[]).await, Located::Yours);
}

async fn blocks_of_a_group_are_looked_for_together(directory: &Shared) {
    held(directory, 1, &[3]).await;
    held(directory, 2, &[3, 4]).await;
    assert_eq!(locate(directory, 1, 5).await, Located::Yours);
    let look = async |asker, without: &[NodeId]| {
        let group = Group::containing(block(0));
        let located = directory.locate(node(asker), group, &[6, 5, 4, 3, 4], without);
        located.await.unwrap().each
    };
    let holder = || Located::Held(vec![node(2)]);
    let mut located = look(3, &[]).await;
    assert_eq!(sorted(located.remove(3)), [node(1), node(2)]);
    assert_eq!(
        located,
        [Located::Yours, Located::Claimed(node(1)), holder(), holder()]
    );
    assert_eq!(
        look(4, &[node(1), node(3)]).await,
        [Located::Yours, Located::Yours, holder(), holder(), holder()]
    );
    let nothing = directory
        .locate(node(3), Group::containing(block(0)), &[], &[])
        .await;
    assert_eq!(nothing.unwrap().each, Vec::new());
}

async fn answers_tell_which_blocks_of_the_group_other_nodes_hold(directory: &Shared) {
    let first = 2 * GROUP_BLOCKS;
    held(directory, 1, &[first, first + 1, first + 31]).await;
    held(directory, 2, &[first + 1, first + 2]).await;
    held(directory, 1, &[0]).await;
    let group = Group::containing(block(first));
    let elsewhere = async |asker| {
        let located = directory.locate(node(asker), group, &[first + 9], &[]).await;
        located.unwrap().elsewhere
    };
    assert_eq!(elsewhere(1).await, 0b110);
    assert_eq!(elsewhere(2).await, 1 << 31 | 0b11);
    assert_eq!(elsewhere(3).await, 1 << 31 | 0b111);
    let left = directory
        .leave(node(2), group, &[(first + 1, 0), (first + 2, 0)])
        .await;
    let left = left.unwrap();
    assert_eq!(left.each, [Left::Copied, Left::Last(0)]);
    assert_eq!(left.elsewhere, 1 << 31 | 0b11);
    dropped(directory, 2, &[first + 2]).await;
    assert_eq!(elsewhere(1).await, 0, "copies that left and were dropped");
}

async fn of_many_askers_at_once_one_gets_the_block(directory: &Shared) {
    for index in 0..8 {
        let askers = (1..=64).map(|asker| {
            let directory = Arc::clone(directory);
            tokio::spawn(async move { locate(&directory, asker, index).await })
        });
        let located: Vec<_> = join_all(askers).await.into_iter().map(Result::unwrap).collect();
        let lucky = located
            .iter()
            .position(|located| *located == Located::Yours)
            .unwrap();
        let claimant = Located::Claimed(node(lucky as u64 + 1));
        let others = located.iter().enumerate().filter(|(at, _)| *at != lucky);
        assert!(
            others.into_iter().all(|(_, located)| *located == claimant),
            "{located:?}"
        );
    }
}

async fn an_entry_names_a_bounded_number_of_holders(directory: &Shared) {
    for holder in 1..=HOLDERS_MAX as u64 + 3 {
        held(directory, holder, &[0]).await;
    }
    assert_eq!(sorted(locate(directory, 200, 0).await).len(), HOLDERS_MAX);
    held(directory, 1, &[0]).await;
    assert_eq!(sorted(locate(directory, 200, 0).await).len(), HOLDERS_MAX);
}

async fn a_marker_is_there_once_it_was_set(directory: &Shared) {
    for (asker, marker) in [(1, 0), (1, 1), (2, 0)] {
        assert!(!directory.mark(node(asker), marker).await.unwrap());
        assert!(directory.mark(node(asker), marker).await.unwrap());
    }
}

async fn used(directory: &Shared, uses: &[(u32, u64)]) {
    directory
        .used(Group::containing(block(uses[0].0)), uses)
        .await
        .unwrap();
}

async fn leave(directory: &Shared, holder: u64, leaving: &[(u32, u64)]) -> Vec<Left> {
    let group = Group::containing(block(leaving[0].0));
    directory.leave(node(holder), group, leaving).await.unwrap().each
}

async fn take(directory: &Shared, weights: &[(u32, u64)]) {
    directory
        .take(Group::containing(block(weights[0].0)), weights)
        .await
        .unwrap();
}

async fn entry(directory: &Shared, index: u32) -> Entry {
    let mut entry = directory.entry(block(index)).await.unwrap();
    entry.holders.sort_unstable();
    entry
}

async fn an_entry_shows_holders_claimant_and_weight(directory: &Shared) {
    assert_eq!(entry(directory, 3).await, Entry::default());
    assert_eq!(locate(directory, 1, 3).await, Located::Yours);
    let claimed = Entry {
        claimant: Some(node(1)),
        ..Entry::default()
    };
    assert_eq!(entry(directory, 3).await, claimed);
    held(directory, 1, &[3]).await;
    held(directory, 2, &[3]).await;
    used(directory, &[(3, 4), (2, 1)]).await;
    used(directory, &[(3, 1)]).await;
    let known = Entry {
        holders: vec![node(1), node(2)],
        claimant: None,
        global_weight: 5,
    };
    assert_eq!(entry(directory, 3).await, known);
    let nothing = "a block that no node holds has no weight";
    assert_eq!(entry(directory, 2).await, Entry::default(), "{nothing}");
}

async fn a_copy_that_leaves_others_leaves_its_weight_to_them(directory: &Shared) {
    held(directory, 1, &[0, 1]).await;
    held(directory, 2, &[0]).await;
    used(directory, &[(0, 2), (1, 6)]).await;
    let left = leave(directory, 1, &[(1, 5), (0, 3)]).await;
    assert_eq!(left, [Left::Last(6), Left::Copied], "in the order of the copies");
    let known = Entry {
        holders: vec![node(2)],
        claimant: None,
        global_weight: 5,
    };
    assert_eq!(entry(directory, 0).await, known);
    assert_eq!(
        leave(directory, 1, &[(0, 9)]).await,
        [Left::Copied],
        "a node that is unknown there holds its copy unseen"
    );
}

async fn the_last_copy_leaves_the_global_weight_where_it_is_until_its_node_takes_it(directory: &Shared) {
    held(directory, 1, &[0, 1]).await;
    used(directory, &[(0, 7), (1, 2)]).await;
    for _ in 0..2 {
        let left = leave(directory, 1, &[(0, 1), (1, 1)]).await;
        assert_eq!(left, [Left::Last(7), Left::Last(2)]);
    }
    // Another node has used it since.
    used(directory, &[(0, 2)]).await;
    take(directory, &[(0, 7)]).await;
    let known = |global_weight| Entry {
        holders: vec![node(1)],
        claimant: None,
        global_weight,
    };
    assert_eq!(entry(directory, 0).await, known(2));
    assert_eq!(entry(directory, 1).await, known(2), "nothing was taken of it");
    take(directory, &[(0, 3), (1, 2)]).await;
    assert_eq!(
        entry(directory, 0).await,
        known(0),
        "there is no weight below zero"
    );
    used(directory, &[(0, 2)]).await;
    dropped(directory, 1, &[0]).await;
    take(directory, &[(0, 1)]).await;
    held(directory, 2, &[0]).await;
    assert_eq!(
        entry(directory, 0).await.global_weight,
        0,
        "it went with the last copy"
    );
}

async fn of_all_holders_that_leave_at_once_one_has_the_last_copy(directory: &Shared) {
    const HOLDERS: u64 = 16;
    for index in 0..8 {
        for holder in 1..=HOLDERS {
            held(directory, holder, &[index]).await;
        }
        let leaving = (1..=HOLDERS).map(|holder| {
            let directory = Arc::clone(directory);
            tokio::spawn(async move { leave(&directory, holder, &[(index, 1)]).await[0] })
        });
        let left: Vec<_> = join_all(leaving).await.into_iter().map(Result::unwrap).collect();
        let last: Vec<_> = left.iter().filter(|left| **left != Left::Copied).collect();
        assert_eq!(last, [&Left::Last(HOLDERS - 1)], "it has the weight of all");
        assert_eq!(entry(directory, index).await.holders.len(), 1);
    }
}

async fn a_weight_has_a_bound(directory: &Shared) {
    held(directory, 1, &[0]).await;
    for weight in [WEIGHT_MAX, 1, u64::MAX >> 1] {
        used(directory, &[(0, weight)]).await;
        assert_eq!(entry(directory, 0).await.global_weight, WEIGHT_MAX);
    }
    assert_eq!(leave(directory, 1, &[(0, 1)]).await, [Left::Last(WEIGHT_MAX)]);
}

async fn nodes_hear_of_each_others_state(directory: &Shared) {
    let state = |number, age| NodeState {
        node: node(number),
        age,
        average_rank: u64::MAX - number,
        takes_pushes: number == 1,
    };
    let told = async |number, age| {
        let mut all = directory.exchange(state(number, age)).await.unwrap();
        all.sort_unstable_by_key(|state| state.node);
        all
    };
    assert_eq!(told(1, 5).await, [state(1, 5)]);
    assert_eq!(told(2, 6).await, [state(1, 5), state(2, 6)]);
    assert_eq!(told(1, 7).await, [state(1, 7), state(2, 6)]);
}

/// Both take a while, in which nothing happens.
async fn names_settle_and_nodes_are_present_in_their_time(directory: &Shared) {
    tokio::join!(
        a_name_settles_and_every_change_replaces_its_token(directory),
        a_node_is_present_from_when_it_said_so(directory)
    );
}
