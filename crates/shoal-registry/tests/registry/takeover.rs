//! A node that was killed takes its own session over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shoal_registry::engine::{Engine, EngineError};
use shoal_registry::session::Session;
use tempfile::TempDir;

use crate::support::{Fault, Memory};

const NODE: u64 = 7;
const SESSION: Duration = Duration::from_secs(10);

fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("life");
    (folder, file)
}

/// A process of the node that has the file.
fn process(engine: &Arc<Memory>, file: &Path) -> Session {
    let engine = Arc::clone(engine) as Arc<dyn Engine>;
    Session::new(engine, NODE, SESSION).kept_in(file.into())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_killed_has_a_session_at_once_and_nothing_renews_the_old_one() {
    let (engine, (_folder, file)) = (Arc::new(Memory::default()), file());
    let killed = process(&engine, &file);
    killed.keep().await.unwrap();
    let before = killed.owner().unwrap();
    let next = process(&engine, &file);
    next.keep().await.unwrap();
    assert_ne!(next.owner(), Some(before));
    let lasts = next.earlier_lasts_until().unwrap() - tokio::time::Instant::now();
    assert_eq!(lasts, SESSION, "it may act for so long if it is only frozen");
    // It was frozen and thaws.
    assert!(matches!(killed.keep().await, Err(EngineError::Refused(_))));
    assert_eq!(killed.owner(), None);
    next.keep().await.unwrap();
    assert!(next.owner().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_node_takes_over_no_session_but_its_own() {
    let (engine, (_folder, file)) = (Arc::new(Memory::default()), file());
    let (_other_folder, other_file) = self::file();
    let other = process(&engine, &other_file);
    other.keep().await.unwrap();
    for content in [
        None,
        Some("01ARZ3NDEKTSV4RRFFQ69G5FAV 1\n"),
        Some("nothing of the kind"),
    ] {
        content.inspect(|content| std::fs::write(&file, content).unwrap());
        let refused = process(&engine, &file).keep().await;
        assert!(matches!(refused, Err(EngineError::Refused(_))), "{content:?}");
    }
    other.keep().await.unwrap();
    assert!(other.owner().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_takeover_whose_answer_is_lost_goes_on_at_the_next_try() {
    for fault in [Fault::AnswerLost, Fault::RequestLost, Fault::Unreached] {
        let (engine, (_folder, file)) = (Arc::new(Memory::default()), file());
        let killed = process(&engine, &file);
        killed.keep().await.unwrap();
        let next = process(&engine, &file);
        engine.fail(&[fault]);
        next.keep().await.unwrap_err();
        assert_eq!(next.owner(), None);
        next.keep().await.unwrap();
        assert!(next.owner().is_some() && next.earlier_lasts_until().is_some());
        assert!(matches!(killed.keep().await, Err(EngineError::Refused(_))));
    }
}
