//! A registry in a folder.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use shoal_registry::engine::EngineError;
use shoal_registry::engine::embedded::Embedded;
use tempfile::TempDir;

use crate::conformance::{Shared, commit, counter, increment, keys_of, range, value};
use crate::transactions::{Building, delete, put, put_with};

/// A registry in a folder of its own.
pub(crate) struct Fixture {
    engine: Shared,
    _folder: TempDir,
}

impl Fixture {
    pub(crate) fn engine(&self) -> Shared {
        Arc::clone(&self.engine)
    }
}

#[expect(clippy::unused_async, reason = "other engines have to wait")]
pub(crate) async fn start() -> Option<Fixture> {
    let folder = tempfile::tempdir().unwrap();
    let engine = Arc::new(Embedded::open(folder.path()).unwrap());
    Some(Fixture {
        engine,
        _folder: folder,
    })
}

/// A test that runs in a process of its own, with a folder.
fn run_alone(test: &str, folder: &Path, shell: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    Command::new("sh")
        .args(["-c", shell])
        .arg(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

const FOLDER: &str = "SHOAL_TEST_REGISTRY";
const EXEC: &str = r#"exec "$0" "$@""#;

/// The process that the next test kills; does nothing where no folder is named.
#[tokio::test]
async fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let engine: Shared = Arc::new(Embedded::open(Path::new(&folder)).unwrap());
    let life = counter(&engine).await;
    let writers = (0..16).map(|writer| {
        let engine = Arc::clone(&engine);
        async move {
            for number in 0.. {
                let key = format!("{life}/{writer}/{number}");
                // Both or none.
                let both = put(key.as_bytes(), b"1").and(put(format!("+{key}").as_bytes(), b"2"));
                commit(&engine, both).await;
                println!("\nacknowledged {key}");
                let _ = increment(&engine).await;
            }
        }
    });
    futures_util::future::join_all(writers).await;
}

#[tokio::test]
async fn a_killed_process_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for life in 0..6 {
        let mut child = run_alone("embedded::writes_until_it_is_killed", folder.path(), EXEC);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let before = acknowledged.len();
        for line in lines.map_while(Result::ok) {
            if let Some(key) = line.strip_prefix("acknowledged ") {
                acknowledged.push(key.to_owned());
            }
            if acknowledged.len() == before + 1 {
                let refused = Embedded::open(folder.path()).unwrap_err();
                let process = format!("process {}\n", child.id());
                assert!(refused.to_string().contains(" is in use by "), "{refused}");
                assert!(refused.to_string().contains(&process), "{refused}");
            }
            if acknowledged.len() == before + 100 + 37 * life {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(acknowledged.len() > before + 37 * life);

        let engine: Shared = Arc::new(Embedded::open(folder.path()).unwrap());
        for key in &acknowledged {
            assert!(value(&engine, key.as_bytes()).await.is_some(), "{key} is lost");
        }
        let halves = engine.count(b"+").await.unwrap();
        let keys = engine.count(b"").await.unwrap() - 1;
        assert_eq!(keys, 2 * halves, "a transaction happened in part");
    }
}

/// The process of the next tests; does nothing where no folder is named.
#[tokio::test]
async fn fills_its_disk() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let engine: Shared = Arc::new(Embedded::open(Path::new(&folder)).unwrap());
    let large = vec![1; 256 << 10];
    let mut taken = 0_u16;
    let full = loop {
        match engine.commit(put(&taken.to_be_bytes(), &large)).await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 1000, "the disk is not small");
    };
    assert!(matches!(full, EngineError::Full(_)), "{full}");
    assert!(taken > 4, "{taken}: {full}");
    assert_eq!(engine.get(&taken.to_be_bytes()).await, Ok(None));
    assert_eq!(engine.count(b"").await, Ok(u64::from(taken)));
    for number in 0..taken {
        assert_eq!(
            value(&engine, &number.to_be_bytes())
                .await
                .map(|value| value.len()),
            Some(large.len())
        );
        commit(&engine, delete(&number.to_be_bytes())).await;
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    drop(engine);
    let engine: Shared = Arc::new(Embedded::open(Path::new(&folder)).unwrap());
    assert_eq!(engine.count(b"").await, Ok(0));
    commit(&engine, put(b"again", b"1")).await;
}

#[test]
fn a_limit_on_the_size_of_files_is_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    // In blocks of 512 bytes; the kernel's signal would end the process.
    let limited = r#"trap "" XFSZ; ulimit -f 16384; exec "$0" "$@""#;
    assert!(ends_well(run_alone(
        "embedded::fills_its_disk",
        folder.path(),
        limited
    )));
}

#[test]
fn a_small_disk_keeps_room_for_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let small = format!(r#"mount -t tmpfs -o size=28m none "${FOLDER}" && exec "$0" "$@""#);
    let mount = format!("exec unshare --mount sh -c '{small}' \"$0\" \"$@\"");
    let can_mount = Command::new("unshare").args(["--mount", "true"]).status();
    if !can_mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this user cannot mount a small disk");
        return;
    }
    assert!(ends_well(run_alone(
        "embedded::fills_its_disk",
        folder.path(),
        &mount
    )));
}

#[tokio::test]
async fn sessions_of_an_earlier_process_are_over() {
    let folder = tempfile::tempdir().unwrap();
    let engine: Shared = Arc::new(Embedded::open(folder.path()).unwrap());
    let session = engine.open_session(Duration::from_mins(10)).await.unwrap();
    let last = commit(&engine, put_with(b"node", session).and(put(b"other", b""))).await;
    drop(engine);
    let engine: Shared = Arc::new(Embedded::open(folder.path()).unwrap());
    let page = engine.range(range(b"", 9)).await.unwrap();
    assert_eq!(keys_of(&page), [b"other"]);
    assert!(commit(&engine, put(b"next", b"")).await.0 > last.0 + 1);
    assert_eq!(
        engine.renew_session(session).await,
        Err(EngineError::SessionEnded)
    );
}

#[tokio::test]
async fn a_folder_serves_one_registry_even_within_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Embedded::open(folder.path()).unwrap();
    let refused = Embedded::open(folder.path()).unwrap_err();
    assert!(
        refused.to_string().contains("in use by this process\nhint: "),
        "{refused}"
    );
    drop(engine);
    Embedded::open(folder.path()).unwrap();
}

fn ends_well(child: Child) -> bool {
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}");
    output.status.success() && told.contains("1 passed")
}
