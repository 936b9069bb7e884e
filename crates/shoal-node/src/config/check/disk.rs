//! Warnings about the file systems of a node's folders: one in memory, or one that is too small.

use std::path::Path;

use rustix::fs::statvfs;
use shoal_base::amount::human_bytes;
use shoal_writeback::tier::{TierStoreConfig, is_in_memory};

use super::Check;
use crate::config::problem::Provenance;

impl Check<'_> {
    pub(super) fn advise_on_disks(&mut self) {
        let draft = self.draft;
        let store = &self.config.store;
        // The default folder may be on a disk that is mounted before the node starts.
        let is_named = *draft.provenance("store", "path") != Provenance::Default;
        if is_named || store.path.exists() {
            let folder = made(&store.path);
            if is_in_memory(folder).unwrap_or_default() {
                let path = store.path.display();
                let what = format!(
                    "[store] path ({path}) is in memory: cached blocks take room that the machine needs for \
                     other work, and are gone when it restarts"
                );
                let hint = "name a folder on a disk of this machine";
                self.warn(draft.provenance("store", "path"), what, hint);
            }
            if let Some(what) = beyond(folder, store.capacity_bytes) {
                let what = format!("[store] capacity {what}");
                let hint = "write less than the file system holds: when it is full, the node stores no block";
                self.warn(draft.provenance("store", "capacity"), what, hint);
            }
        }
        for (tier, entry) in self.list("[[tier]]", &self.config.tiers) {
            let TierStoreConfig::Folder(folder) = &tier.store else {
                continue;
            };
            // A tier in memory is rejected when it is opened.
            if let Some(what) = beyond(made(folder), tier.capacity_bytes) {
                let what = format!("capacity of [[tier]] {} {what}", tier.name);
                let hint = "write less than the file system holds: when it is full, writes are answered 503";
                self.warn(entry.origin("capacity"), what, hint);
            }
        }
    }
}

/// Returns the folder, or its nearest existing ancestor.
fn made(folder: &Path) -> &Path {
    let mut ancestors = folder.ancestors();
    ancestors.find(|ancestor| ancestor.exists()).unwrap_or(folder)
}

/// Returns a message if a capacity exceeds the size of the folder's file system.
fn beyond(folder: &Path, capacity_bytes: u64) -> Option<String> {
    let disk = statvfs(folder).ok()?;
    let in_all = disk.f_blocks.saturating_mul(disk.f_frsize);
    // Some file systems report a size of zero.
    let is_beyond = in_all > 0 && capacity_bytes > in_all;
    is_beyond.then(|| {
        format!(
            "({}) is more than its file system has: {}",
            human_bytes(capacity_bytes),
            human_bytes(in_all)
        )
    })
}
