//! The table of a node's metrics: the name, the help, the labels, and how each is read from a snapshot.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use shoal_cache::peer::PeerTraffic;
use shoal_directory::guard::{Counts, Kind};
use shoal_net::conditions::ConditionName;
use shoal_net::endpoint::EndpointCounters;
use shoal_net::fair::in_flight::PayerUsage;
use shoal_net::link::{ClassFigures, LaneFigures};
use shoal_net::metrics::usage::{Usage, UsageByName};
use shoal_net::metrics::{Sample, Value, WordCounts, each, one};
use shoal_net::observed;
use shoal_orders::tasks::{KindTotals, TaskKind, TaskState};
use shoal_plan::execution::JobStatus;
use shoal_store::Health;

use super::snapshot::Snapshot;
use crate::admin::status::QuotaPage;

observed! {
    /// Every metric of a node, but for those of objects that are written back.
    TABLE of Snapshot:

    // Clients.
    Counter requests{operation, status} "Requests answered." => |s| each(s.core.metrics.requests());
    Histogram request_duration_seconds{operation} "Time from a request's head to the end of its answer."
        => |s| each(s.core.metrics.durations());
    Gauge requests_in_flight{} "Requests being answered." => |s| one(s.core.metrics.requests_in_flight());
    Counter object_reads{blocks, found}
        "Reads of objects, by the number of blocks that they wanted (one or several) and by how much of these was near, on this node or another one or in a tier: complete, partial or none."
        => |s| each(object_reads(s));
    Counter read_bytes{source} "Bytes of objects sent to clients, by source."
        => |s| each(s.core.metrics.read_bytes());
    Counter coalesced_requests{} "Reads that joined a fetch in progress."
        => |s| one(s.core.single_flight.coalesced());
    Counter uncached{reason} "Reads whose object was not cached."
        => |s| each(s.core.metrics.uncached.counts());
    Gauge connections{} "Open client connections." => |s| one(s.core.metrics.connections.open());
    Counter refusals{reason} "Connections and requests turned away." => |s| each(refusals(s));

    // Buckets.
    Counter bucket_requests{bucket}
        "Requests that were admitted, by bucket: 100 buckets that answered with success, and other."
        => |s| usage(&s.core.metrics.buckets, |usage| usage.requests);
    Counter bucket_sent_bytes{bucket} "Bytes of answers sent to clients, by bucket."
        => |s| usage(&s.core.metrics.buckets, |usage| usage.sent_bytes);
    Counter bucket_lake_bytes{bucket} "Bytes of answers sent to clients that came from the lake, by bucket."
        => |s| usage(&s.core.metrics.buckets, |usage| usage.lake_bytes);

    // Identities.
    Counter identity_requests{identity}
        "Requests that were admitted, by identity: 100 identities that the lake has allowed a request, and other."
        => |s| usage(&s.core.metrics.identities, |usage| usage.requests);
    Counter identity_sent_bytes{identity} "Bytes of answers sent to clients, by identity."
        => |s| usage(&s.core.metrics.identities, |usage| usage.sent_bytes);
    Counter identity_lake_bytes{identity} "Bytes of answers sent to clients that came from the lake, by identity."
        => |s| usage(&s.core.metrics.identities, |usage| usage.lake_bytes);
    Gauge identity_requests_in_flight{identity} "Requests of an identity in progress."
        => |s| payers(s, |payer| payer.in_flight.load(Ordering::Relaxed));
    Gauge lake_waiting_requests{identity} "Requests of an identity that wait for their turn at the lake."
        => |s| payers(s, |payer| s.core.lake.turns().map_or(0, |turns| turns.waiting_of(payer.id)));
    Gauge waiting_requests{identity} "Requests of an identity that wait to be admitted."
        => |s| payers(s, |payer| payer.waiting.load(Ordering::Relaxed));
    Counter slowed_requests{identity}
        "Requests of an identity answered 503 SlowDown: too many were in flight or waiting."
        => |s| payers(s, |payer| payer.refused.load(Ordering::Relaxed));
    Gauge temporary_keys{} "Temporary keys of clients that this node knows."
        => |s| one(s.core.identities.temporary_keys().len());
    Counter temporary_key_requests{outcome}
        "Requests of clients for temporary keys, by outcome: given, unlisted (a role that [sts] roles does not list), foreign (the key of the asker is not its own at the lake), refused (by STS), unanswered (by STS), or crowded (too many requests or keys)."
        => |s| each(s.core.metrics.temporary_keys.counts());
    Gauge lake_turns{} "Concurrent requests to the lake that the node allows, adapted to the lake."
        => |s| one(s.core.lake.turns().map_or(0, |turns| turns.limit()));

    // The lake.
    Gauge lake_up{} "0 while the lake does not answer." => |s| one(!s.core.lake.health.is_silent());
    Counter lake_requests{operation} "Requests sent to the lake." => |s| each(lake(s).requests.counts());
    Counter lake_answers{operation, status}
        "Answers of the lake, by status; statuses without a meaning of their own are counted by class."
        => |s| each(lake(s).answers.counts().into_iter().map(|((operation, status), count)| ([operation, status], count)));
    Counter lake_failures{failure} "Requests to the lake without an answer, and answers that broke off."
        => |s| each(lake(s).failures.counts());
    Histogram lake_first_byte_seconds{class}
        "Time from a request to the lake to the head of its answer, including the upload of the body."
        => |s| each(lake(s).first_byte());
    Counter retries{} "Requests to the lake that were tried again." => |s| one(lake(s).retries.get());
    Counter lake_resumes{} "Bodies from the lake that broke off and were resumed at that offset."
        => |s| one(lake(s).resumes.get());
    Counter lake_bytes{} "Bytes of objects received from the lake." => |s| one(lake(s).bytes_received.get());
    Counter lake_account_refusals{reason}
        "Requests that the lake refused because of the account that signed them."
        => |s| each(s.core.lake.health.refusals.by_word());

    Counter access_log_lines{outcome}
        "Lines of [log] access = \"s3\" by outcome: written, overflowed (too many waited to be written), or failed (the file did not take them)."
        => |s| each(s.core.access_log.lines.by_word());
    Counter trace_spans{outcome}
        "Spans by outcome: sent to the collector, crowded (too many began in one second), overflowed (too many waited for the collector), or failed (the collector did not accept them)."
        => |s| each(s.core.collector.iter().flat_map(|collector| collector.tracer.outcomes.by_word()));

    // The link.
    Counter link_bytes{direction, class}
        "Bytes of bodies over the metered link to the lake, by direction and class."
        => |s| classes(s, |class| class.bytes);
    Gauge link_rate_bytes_per_second{direction, class}
        "Bytes a second over the link, averaged over about a second."
        => |s| classes(s, |class| class.rate_bytes_per_second);
    Counter link_waits{direction, class} "Times that a transfer waited for room on the link."
        => |s| classes(s, |class| class.waits);
    Counter link_wait_seconds{direction, class} "Time that transfers waited for room on the link."
        => |s| classes(s, |class| class.waited_ms as f64 / 1e3);
    Gauge link_waiting{direction, class} "Transfers that wait for room on the link."
        => |s| classes(s, |class| class.waiting);
    Counter link_promised_bytes{}
        "Bytes from the lake that clients got by the promise of a plan, before other clients."
        => |s| one(lanes(s).map(|(_, lane)| lane.promised_bytes).sum::<u64>());
    Gauge link_share_bytes_per_second{direction} "Bytes a second that this node may move over the link now."
        => |s| each(lanes(s).map(|(direction, lane)| (direction, lane.share_bytes_per_second)));
    Gauge link_bandwidth_bytes_per_second{}
        "Bandwidth of the link in each direction, in bytes a second, as configured."
        => |s| one(s.link.as_ref().map_or(0, |link| link.bandwidth_bytes_per_second));

    // The disk.
    Gauge resident_bytes{} "Bytes of blocks on this node's disk." => |s| one(s.store.resident_bytes);
    Gauge capacity_bytes{} "Capacity of this node's disk for blocks, in bytes."
        => |s| one(s.store.capacity_bytes);
    Gauge fill_bytes{} "Bytes fetched or being fetched, not yet on disk."
        => |s| one(s.core.fetcher.memory.used_bytes());
    Counter evictions{reason} "Blocks that left the disk."
        => |s| each(s.store.evictions.clone());
    Counter corrupt_blocks{} "Blocks with a wrong checksum; each was fetched again."
        => |s| one(s.store.corrupt_blocks);
    Gauge store_paused{} "1 while the disk takes no new blocks."
        => |s| one(s.core.store.health() != Health::Serving);
    Counter layer_requests{layer, result} "Lookups of blocks in each layer, hits and misses."
        => |s| each(layer_requests(s));
    Gauge layer_bytes{layer} "Bytes of blocks on this node's disk, by layer."
        => |s| each(s.core.store.layers.rooms().iter().map(|room| (room.layer.to_string(), room.used_bytes)));
    Gauge layer_target_bytes{layer} "Room of each layer, in bytes."
        => |s| each(s.core.store.layers.rooms().iter().map(|room| (room.layer.to_string(), room.target_bytes)));

    // Quotas.
    Gauge quota_bytes{quota} "Bytes of blocks on this node's disk that count in a quota of room, by the name of its identity or its prefix."
        => |s| quotas(s, |quota| quota.room_bytes.map(|_| quota.used_bytes));
    Gauge quota_room_bytes{quota} "The most bytes of this node's disk that the blocks of a quota may take."
        => |s| quotas(s, |quota| quota.room_bytes);
    Counter quota_lake_bytes{quota} "Bytes that this node has read from the lake for a quota of bandwidth."
        => |s| quotas(s, |quota| quota.bandwidth_bytes_per_second.map(|_| quota.lake_bytes));
    Counter quota_lake_waits{quota} "Times that bytes from the lake had to wait for a quota."
        => |s| quotas(s, |quota| quota.bandwidth_bytes_per_second.map(|_| quota.lake_waits));
    Gauge quota_bandwidth_bytes_per_second{quota} "The most bytes that this node reads from the lake for a quota in a second."
        => |s| quotas(s, |quota| quota.bandwidth_bytes_per_second);

    // Other nodes.
    Counter hops{result} "Requests for blocks to other nodes, by outcome."
        => |s| in_cluster(s, s.core.fetcher.hops());
    Counter peer_requests{peer} "Requests to another node." => |s| peers(s, |peer| peer.requests);
    Counter peer_failures{peer} "Requests to another node without a complete answer."
        => |s| peers(s, |peer| peer.failures);
    Counter peer_bytes{peer} "Bytes of blocks received from another node." => |s| peers(s, |peer| peer.bytes);
    Gauge peer_reachable{peer}
        "1 while this node sends requests to another node, 0 while it avoids that node after failures."
        => |s| each(s.peers.iter().flatten().map(|peer| (peer.name.as_str(), peer.is_reachable())));
    Counter peer_answers{result} "Requests of other nodes, by outcome."
        => |s| in_cluster(s, s.node.block_server.counts.by_word());
    Counter peer_mistrusted{reason} "Connections from and to other nodes that failed authentication."
        => |s| in_cluster(s, s.core.cooperation.channel.auth_failures.counts.by_word());
    Counter gossip_rejected{reason} "Datagrams of other nodes that this node rejected, by reason."
        => |s| each(s.core.cooperation.notices.rejected.counts.by_word());
    Counter messages{kind, outcome}
        "Messages between nodes, by kind and outcome: sent, overflowed (too many events at once), dropped (the queue of a node was full), lost (the peer did not accept them), received, or malformed."
        => |s| each(messages(s));
    Counter message_batches{outcome}
        "Batches of messages, by outcome: sent, failed, or unsupported (the other node does not support messages); of those received accepted, malformed, non-member (of the cluster), or rate-limited."
        => |s| each(s.messages.batches.clone());
    Counter message_bytes{direction} "Bytes of batches of messages, without the heads of requests."
        => |s| each([("sent", s.messages.bytes_sent), ("received", s.messages.bytes_received)]);

    // The directory.
    Counter directory_requests{request, outcome}
        "Requests to the directory of blocks, by kind (look, report, mark, leave, exchange, token, change, attend) and outcome: answered, silent, or held-back (not sent, because earlier ones were not answered)."
        => |s| each(s.directory.iter().flat_map(directory_requests));
    Counter directory_answer_microseconds{request} "Time that answers of the directory took, all together."
        => |s| each(s.directory.iter().map(|(kind, it)| (kind.as_str(), it.answer_time.as_micros() as u64)));
    Gauge directory_answers{}
        "1 if the directory answered the last time; 0 if it did not, or the node has none."
        => |s| one(s.core.directory.as_ref().is_some_and(|directory| directory.answers()));
    Counter gwf_kept{}
        "Last copies that stayed while room was short, because of what they are worth to all nodes."
        => |s| one(s.gwf.as_ref().map_or(0, |gwf| gwf.kept));
    Counter gwf_pushes{outcome}
        "Blocks that left this node for one whose blocks are worth less, by outcome: taken, refused, failed, or gone (room was needed at once)."
        => |s| each(s.gwf.iter().flat_map(|gwf| gwf.pushes.clone()));
    Gauge gwf_age{} "The greatest rank of a block that left a node, as far as this node knows."
        => |s| one(s.gwf.as_ref().map_or(0, |gwf| gwf.age));
    Gauge gwf_average_rank{} "The average rank of the blocks here."
        => |s| one(s.gwf.as_ref().map_or(0, |gwf| gwf.average_rank));
    Counter coherent_looks{outcome}
        "Looks of reads at the directory for changes of a coherent object, by outcome: settled, unsettled (it may be changing), silent, or node-absent (a node cannot report its changes)."
        => |s| each(s.coherence.iter().flat_map(|coherence| coherence.looks.clone()));
    Counter coherent_waits{}
        "Writes of coherent objects that waited because the directory did not answer."
        => |s| one(s.coherence.as_ref().map_or(0, |coherence| coherence.waits));
    Gauge coherent_changes{} "Writes of coherent objects through this node that may still take effect."
        => |s| one(s.coherence.as_ref().map_or(0, |coherence| coherence.changes_under_way));
    Gauge coherent_attached{}
        "1 if this node tells the directory of its writes of coherent objects; 0 if it cannot, or has none."
        => |s| one(s.coherence.as_ref().is_some_and(|coherence| coherence.attached));

    // Tasks and pins.
    Gauge tasks{state} "Tasks of the cluster that are remembered, by state. Each node shows all of them."
        => |s| each(TaskState::ALL.map(|state| (state.as_str(), s.tasks.in_state(state))));
    Gauge tasks_at_risk{} "Tasks of the cluster that may miss their deadline." => |s| one(s.tasks.at_risk);
    Gauge tasks_running_here{} "Tasks that this node runs." => |s| one(s.tasks.running_here);
    Counter tasks_ended{kind, state} "Tasks that ended on this node, by kind and state."
        => |s| totals(s, TaskState::ALL.map(TaskState::as_str), |kind| kind.ended);
    Counter task_objects{kind, outcome} "Objects of tasks that this node ran, by kind and outcome."
        => |s| totals(s, KindTotals::OBJECTS, |kind| kind.objects);
    Counter task_bytes{kind, source}
        "Bytes of tasks that this node ran, by kind, and by where they came from (lake, peer, cached) or what became of them (pinned, removed)."
        => |s| totals(s, KindTotals::BYTES, |kind| kind.bytes);
    Gauge records{} "Small records that all nodes know, as far as this node has them."
        => |s| one(s.tasks.records);
    Gauge record_bytes{} "Bytes of these records." => |s| one(s.tasks.record_bytes);
    Gauge pinned_objects{} "Objects that are pinned on this node." => |s| one(s.store.pins.objects);
    Gauge pinned_bytes{} "Bytes of pinned blocks on this node's disk." => |s| one(s.store.pins.bytes);
    Gauge pinned_bytes_max{} "The most bytes that pinned blocks may take on this node's disk."
        => |s| one(s.store.pins.bytes_max);

    // Hints, and what tasks brought before its readers.
    Counter hint_events{outcome}
        "Events of engines by outcome: taken, ignored (about no run), malformed, unmapped (no rule allows the namespace), refused (no room, or too many)."
        => |s| each(s.node.hints.events.by_word());
    Counter early_bytes{outcome}
        "Bytes that pins and hints brought to this node before a reader asked for them (brought), that a reader found (used), and that had been evicted when a reader came (evicted)."
        => |s| {
            let early = s.core.early.totals();
            each([
                ("brought", early.brought_bytes),
                ("used", early.used_bytes),
                ("evicted", early.evicted_bytes),
            ])
        };
    Counter early_blocks_used{} "Blocks of these that a reader found." => |s| one(s.core.early.totals().used_blocks);
    Counter early_seconds{} "Sum over these blocks of the time between arrival and first use, in seconds."
        => |s| one(s.core.early.totals().early_ms as f64 / 1e3);

    // The plan.
    Gauge plan_in_force{} "1 if the cluster has a plan in force." => |s| one(s.plan.in_force);
    Gauge plan_carried_here{} "1 if this node carries it out." => |s| one(s.plan.carried_here);
    Gauge plan_jobs{status}
        "Jobs of the plan in force by status (waiting, running, at-risk, met, missed, unread, unplanned). Each node shows all of them."
        => |s| each(JobStatus::ALL.map(JobStatus::as_str).into_iter().zip(s.plan.jobs));
    Gauge plan_bytes{of}
        "Bytes of the plan in force: all that it fetches (total), what it was to have fetched by now (planned), what is here (done)."
        => |s| each(["total", "planned", "done"].into_iter().zip(s.plan.bytes));
    Gauge plan_reading_jobs{} "Jobs of plans whose reads from the lake have a rate at this node."
        => |s| one(s.core.lake.promises().jobs() as u64);
    Counter plan_read_bytes{} "Bytes from the lake for reads that name a job of a plan, at the job's rate."
        => |s| one(s.core.lake.promises().bytes());
    Counter plan_deadlines{outcome} "Deadlines of plans while this node carried them out, by outcome."
        => |s| each(["met", "missed", "unread"].into_iter().zip(plan_totals(s)));
    Counter plan_replans{} "New plans that this node made because the world was not as planned."
        => |s| one(plan_totals(s)[3]);

    // The node.
    Gauge condition{condition} "Instances of a condition that needs an operator; 0 while it does not hold."
        => |s| each(conditions(s));
    Counter config_reloads{result}
        "Reloads of the configuration, by outcome: ok, or failed (the old one stays in force)."
        => |s| each(reloads(s));
    Gauge config_reload_ok{}
        "0 if the latest reload failed, so that the configuration in force differs from the files."
        => |s| one(s.node.reloads.lock().error.is_none());
    Gauge config_reload_timestamp_seconds{} "Time at which the configuration in force was read."
        => |s| one(s.node.reloads.lock().read_at);
}

fn object_reads(s: &Snapshot) -> impl Iterator<Item = ([String; 2], u64)> {
    [("one", false), ("several", true)]
        .into_iter()
        .flat_map(|(blocks, are_several)| {
            let reads = s.core.metrics.reads(are_several);
            reads
                .into_iter()
                .map(move |(found, count)| ([blocks.to_owned(), found], count))
        })
}

/// Returns the connections, requests and blocks that were turned away.
fn refusals(s: &Snapshot) -> WordCounts {
    let mut refusals = s.store.refusals.clone();
    for (reason, count) in s.core.metrics.connections.refusals.counts() {
        *refusals.entry(reason.to_owned()).or_default() += count;
    }
    refusals
}

/// Returns an amount for each name that is counted separately, and for all others together.
fn usage(names: &UsageByName, read: fn(&Usage) -> u64) -> Vec<Sample> {
    let usages = names.by_name().into_iter();
    each(usages.map(|(name, usage)| (name, read(&usage))))
}

/// Returns an amount for each identity. An identity that was removed and added again is one.
fn payers(s: &Snapshot, read: impl Fn(&PayerUsage) -> usize) -> Vec<Sample> {
    let mut amounts = BTreeMap::<_, u64>::new();
    for payer in s.core.in_flight.by_payer() {
        *amounts.entry(payer.name.clone()).or_default() += read(&payer) as u64;
    }
    each(amounts)
}

fn quotas(s: &Snapshot, figure: impl Fn(&QuotaPage) -> Option<u64>) -> Vec<Sample> {
    let quotas = s.quotas.iter();
    each(quotas.filter_map(|quota| Some((quota.name.clone(), figure(quota)?))))
}

fn lake(s: &Snapshot) -> &EndpointCounters {
    s.core.lake.counters()
}

fn lanes(s: &Snapshot) -> impl Iterator<Item = (&'static str, &LaneFigures)> {
    s.link
        .iter()
        .flat_map(|link| [("down", &link.down), ("up", &link.up)])
}

fn classes<V: Into<Value>>(s: &Snapshot, read: fn(&ClassFigures) -> V) -> Vec<Sample> {
    each(lanes(s).flat_map(|(direction, lane)| {
        let classes = lane.classes.iter();
        classes.map(move |(class, figures)| ([direction, class.as_str()], read(figures)))
    }))
}

fn layer_requests(s: &Snapshot) -> impl Iterator<Item = ([String; 2], u64)> {
    s.core.split.requests().into_iter().flat_map(|requests| {
        [("hit", requests.hits), ("miss", requests.misses)]
            .map(|(result, count)| ([requests.layer.to_string(), result.to_owned()], count))
    })
}

/// Returns no samples on a node that does not cooperate.
fn in_cluster(s: &Snapshot, counts: WordCounts) -> Vec<Sample> {
    each(s.peers.as_ref().map(|_| counts).into_iter().flatten())
}

/// Returns an amount for each peer, also for those that have left.
fn peers(s: &Snapshot, read: fn(&PeerTraffic) -> u64) -> Vec<Sample> {
    let traffic = s.core.cooperation.traffic().into_iter();
    each(traffic.map(|(peer, traffic)| (peer, read(&traffic))))
}

fn messages(s: &Snapshot) -> impl Iterator<Item = ([&str; 2], u64)> {
    s.messages.kinds.iter().flat_map(|(kind, outcomes)| {
        let outcomes = outcomes.iter();
        outcomes.map(move |(outcome, count)| ([&**kind, &**outcome], *count))
    })
}

fn directory_requests((kind, counts): &(Kind, Counts)) -> [([&'static str; 2], u64); 3] {
    let kind = kind.as_str();
    [
        ([kind, "answered"], counts.answered),
        ([kind, "silent"], counts.silent),
        ([kind, "held-back"], counts.held_back),
    ]
}

/// Returns the totals of each kind of task, without those that are zero.
fn totals<const N: usize>(
    s: &Snapshot,
    words: [&'static str; N],
    read: fn(&KindTotals) -> [u64; N],
) -> Vec<Sample> {
    let kinds = TaskKind::ALL.into_iter().zip(&s.tasks.totals);
    let totals = kinds.flat_map(|(kind, totals)| {
        let totals = words.into_iter().zip(read(totals));
        totals.map(move |(word, total)| ([kind.as_str(), word], total))
    });
    each(totals.filter(|(_, total)| *total > 0))
}

/// Returns the jobs of plans that met their deadlines, those that missed them, those that read nothing, and
/// the new plans.
fn plan_totals(s: &Snapshot) -> [u64; 4] {
    s.tasks.totals[TaskKind::Plan as usize].plan
}

fn reloads(s: &Snapshot) -> [(&'static str, u64); 2] {
    let history = s.node.reloads.lock();
    [("ok", history.reloads), ("failed", history.failed_reloads)]
}

fn conditions(s: &Snapshot) -> impl Iterator<Item = (&'static str, usize)> {
    let holding = s.node.conditions();
    ConditionName::ALL.iter().map(move |name| {
        let name = name.as_str();
        let instances = holding.iter().filter(|held| held.condition == name);
        (name, instances.count())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::TABLE;
    use shoal_net::metrics::Observed;
    use shoal_writeback::observed;

    const REFERENCE: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/metrics.md"
    ));

    #[test]
    fn the_reference_lists_every_metric_with_its_labels_and_no_other() {
        let (nodes, _lookup) = REFERENCE.split_once("\n## Name server").unwrap();
        let rows = nodes.lines().filter_map(|line| line.strip_prefix("| `"));
        let names = rows
            .filter_map(|row| row.split_once(" | "))
            .flat_map(|(names, _)| names.split('`'));
        let listed: BTreeSet<_> = names
            .filter(|name| name.starts_with("shoal_"))
            .map(str::to_owned)
            .collect();
        let mut known: BTreeSet<_> = TABLE.iter().map(Observed::series).collect();
        known.extend(observed::TABLE.iter().map(Observed::series));
        known.insert("shoal_build_info".into());
        assert_eq!(listed, known);
    }
}
