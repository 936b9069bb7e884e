//! `shoal tier recover`: the repair of a tier whose registry is lost.

use clap::{Args, Subcommand};
use shoal_node::config::Config;
use shoal_node::recovery::{Listed, Recovery, recover_tier};

use super::block_on;
use super::failure::{Failure, print_warnings};
use super::output::{counted, print_result};
use super::settings::ConfiguredNode;

/// Repair a tier
#[derive(Debug, Args)]
pub(crate) struct Tier {
    #[command(subcommand)]
    verb: TierVerb,
}

#[derive(Debug, Subcommand)]
enum TierVerb {
    Recover(Recover),
}

/// Recover the lost registry of a tier
///
/// The registry must be empty: a new etcd, or a new folder. The receipts in the store of the tier say which
/// objects are dirty and which are removed; a tier has receipts if its settings have `receipts = true`. Until
/// this is done, nodes answer 503 below the rules of the tier, and they go on by themselves afterwards. It
/// takes a minute and longer: first, requests of nodes that have lost the registry come to their ends. A
/// recovery that breaks off can be run again.
///
/// Writes whose outcome their clients do not know may happen by it. Uploads that were not completed are lost.
/// Packed objects need `shoal pack rebuild` afterwards.
#[derive(Debug, Args)]
struct Recover {
    /// The tier
    #[arg(value_name = "NAME")]
    tier: String,
    /// Leave out receipts that cannot be read: their objects are lost
    #[arg(long)]
    skip_unreadable: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    configured: ConfiguredNode,
}

impl Tier {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let TierVerb::Recover(recover) = self.verb;
        recover.run()
    }
}

impl Recover {
    fn run(self) -> Result<(), Failure> {
        let loaded = Config::load(&self.configured.sources())?;
        print_warnings(&loaded.warnings);
        let tiers = &loaded.config.tiers;
        let Some(tier) = tiers.iter().find(|tier| tier.name == self.tier) else {
            let names: Vec<_> = tiers.iter().map(|tier| &*tier.name).collect();
            let hint = match &names[..] {
                [] => "name the file of a node with --config".into(),
                names => format!("name one of {}", names.join(", ")),
            };
            return Err(Failure::misused(
                format!("the configuration has no tier {}", self.tier),
                hint,
            ));
        };
        block_on(async {
            let recovered = recover_tier(&loaded.config, tier, self.skip_unreadable).await;
            let recovery = recovered.map_err(|error| Failure::new("nothing is recovered yet", &error))?;
            print_result(self.json, &recovery, || as_text(&recovery));
            conclude(&recovery)
        })
    }
}

fn as_text(recovery: &Recovery) -> String {
    let Recovery {
        receipts,
        objects,
        removals,
        damaged,
        unreadable,
        is_whole,
    } = recovery;
    let mut text = format!(
        "{} read: {} and {} that the lake does not have yet\n",
        counted(*receipts, "receipt"),
        counted(*objects, "object"),
        counted(*removals, "removal"),
    );
    text += &listed(damaged, "without all of its pieces");
    text += &listed(unreadable, "unreadable");
    if *is_whole {
        text += "nodes use the registry from now on\n";
    }
    text
}

fn listed(Listed { count, first }: &Listed, what: &str) -> String {
    let rest = count - first.len() as u64;
    let rest = (rest > 0).then(|| format!("{rest} more"));
    let lines = first.iter().chain(&rest);
    lines.flat_map(|each| [what, ": ", each, "\n"]).collect()
}

fn conclude(recovery: &Recovery) -> Result<(), Failure> {
    if !recovery.is_whole {
        let unreadable = counted(recovery.unreadable.count, "receipt");
        let why = format!("{unreadable} cannot be read, so the registry is not used yet");
        return Err(Failure::failed(why).hinting(
            "bring these pieces back and run this again; or give --skip-unreadable, and their objects are lost",
        ));
    }
    if recovery.damaged.count > 0 {
        let damaged = counted(recovery.damaged.count, "object");
        return Err(
            Failure::failed(format!("{damaged} lack pieces in the store of the tier"))
                .hinting("reads of them fail; bring the pieces back, or write or remove the objects again"),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use shoal_node::recovery::{Listed, Recovery};

    use super::{as_text, conclude};

    #[test]
    fn a_recovery_says_what_is_there_what_is_lost_and_what_to_do() {
        let whole = Recovery {
            receipts: 4,
            objects: 2,
            removals: 1,
            is_whole: true,
            ..Recovery::default()
        };
        assert_eq!(
            as_text(&whole),
            "4 receipts read: 2 objects and 1 removal that the lake does not have yet\nnodes use the registry from now on\n"
        );
        assert!(conclude(&whole).is_ok());
        let some = |first: &str| Listed {
            count: 2,
            first: vec![first.into()],
        };
        let damaged = Recovery {
            damaged: some("s3://b/k"),
            ..whole.clone()
        };
        assert!(
            as_text(&damaged)
                .contains("without all of its pieces: s3://b/k\nwithout all of its pieces: 1 more\n")
        );
        assert_eq!(
            conclude(&damaged).unwrap_err().message().0,
            "2 objects lack pieces in the store of the tier"
        );
        let unreadable = Recovery {
            unreadable: some("receipt-1-2"),
            is_whole: false,
            ..whole
        };
        assert!(!as_text(&unreadable).contains("from now on"));
        assert!(
            conclude(&unreadable)
                .unwrap_err()
                .message()
                .1
                .contains("--skip-unreadable")
        );
    }
}
