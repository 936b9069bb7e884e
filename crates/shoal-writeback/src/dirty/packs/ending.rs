//! The end of a map whose objects are all unpacked.

use std::collections::BTreeSet;
use std::time::Duration;

use shoal_net::endpoint::s3::CallError;
use shoal_policy::packing::UNNAMED_STAYS;
use shoal_registry::age_of;
use shoal_registry::engine::EngineError;
use tokio::time::sleep;
use ulid::Ulid;

use super::map::PackMap;

/// Pause before a registry that does not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Packs or tables of a map that has ended stay at the lake.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Remaining {
    #[error(transparent)]
    Registry(#[from] EngineError),
    #[error("the lake does not list packs and tables: {0}")]
    Unlisted(#[from] CallError),
    #[error("all objects were unpacked, and the rule packs again: take `pack` from it, and unpack once more")]
    Again,
    #[error("the lake has table {0}, which the registry has not given out; run `shoal pack rebuild` first")]
    Lost(u64),
    #[error(
        "all objects were unpacked, but {0} obsolete packs and tables are still at the lake: repeat the order, or remove \
         them by hand"
    )]
    NotRemoved(usize),
    #[error("the session of this node has ended: repeat the order")]
    SessionOver,
}

impl PackMap {
    /// Lets a map that has ended begin again, when a node starts whose rule packs. Until then nothing is
    /// packed, so that operators can take `pack` from the rule.
    pub(crate) async fn begin_again(&self) {
        while let Err(error) = self.roots.begin_again(self.name()).await {
            tracing::debug!(%error, "a map that may have ended has not begun again");
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Returns false if the map is ending, or has ended. If the registry does not answer, the next commit
    /// decides.
    pub(crate) async fn takes_objects(&self) -> bool {
        let takes_objects = self.roots.takes_objects(self.name()).await;
        takes_objects.unwrap_or(true)
    }

    /// Ends the map: nothing is packed any more.
    ///
    /// # Errors
    ///
    /// The map may be ending.
    pub(crate) async fn end(&self) -> Result<(), EngineError> {
        self.roots.end(self.name()).await
    }

    /// Removes the root of a map that finds no object as of table `number`. Returns false if it may find one
    /// since.
    ///
    /// # Errors
    ///
    /// The root may be gone.
    pub(crate) async fn remove_root(&self, number: u64) -> Result<bool, EngineError> {
        self.roots.remove(self.name(), number).await
    }

    /// Removes the tables of a map that has ended, the packs that it named, and those that nothing has named
    /// for a day. Nodes may use an older map until twice FENCE has passed.
    ///
    /// # Errors
    ///
    /// Some of them stay.
    pub(crate) async fn remove_remains(&self, named: BTreeSet<Ulid>) -> Result<(), Remaining> {
        let (packs, tables) = (self.at_lake.packs().await?, self.at_lake.tables().await?);
        if let Some(table) = tables.last()
            && !self.roots.has_given_out(self.name(), *table).await?
        {
            return Err(Remaining::Lost(*table));
        }
        // Others may be on their way into a map that begins again.
        let is_obsolete = |pack: &Ulid| named.contains(pack) || age_of(*pack) >= UNNAMED_STAYS;
        let packs = packs.iter().map(|pack| pack.id).filter(is_obsolete);
        let packs = packs.map(|pack| self.at_lake.pack(pack));
        let tables = tables.iter().map(|number| self.at_lake.table(*number));
        let names: Vec<_> = packs.chain(tables).collect();
        if names.is_empty() {
            return Ok(());
        }
        sleep(self.fence * 2).await;
        if self.roots.read(self.name()).await?.is_some() {
            return Err(Remaining::Again);
        }
        let permit = self.roots.session().permit().ok_or(Remaining::SessionOver)?;
        match self.at_lake.remove_all(&names, &permit).await {
            0 => Ok(()),
            left => Err(Remaining::NotRemoved(left)),
        }
    }
}
