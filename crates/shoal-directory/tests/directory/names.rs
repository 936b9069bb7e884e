//! The contract of every directory about names.

use std::sync::Arc;
use std::time::Duration;

use shoal_directory::Directory;
use shoal_directory::names::{Change, DirectoryTime, PRESENCE_LIFE, Presence, SETTLING, Token};
use shoal_policy::{NodeId, ObjectId};

type Shared = Arc<dyn Directory>;

const SLACK: Duration = Duration::from_millis(500);

pub(crate) fn name(number: u8) -> ObjectId {
    ObjectId([number; 16])
}

/// Asks for the token of a name. If the name is new to the directory, its token is `fresh`.
pub(crate) async fn token(directory: &dyn Directory, number: u8, fresh: u64) -> Option<Token> {
    directory.token(name(number), Token(fresh)).await.unwrap()
}

async fn begin(directory: &Shared, number: u8, change: u64, fresh: u64) {
    let begun = directory.begin(name(number), Change(change), Token(fresh));
    assert_eq!(begun.await.unwrap(), None, "no server was promoted");
}

async fn end(directory: &Shared, number: u8, change: u64) {
    directory.end(name(number), Change(change)).await.unwrap();
}

pub(crate) async fn a_name_settles_and_every_change_replaces_its_token(directory: &Shared) {
    assert_eq!(token(&**directory, 1, 10).await, None);
    assert_eq!(token(&**directory, 1, 11).await, None, "it settles in its time");
    begin(directory, 2, 1, 20).await;
    end(directory, 2, 1).await;
    assert_eq!(
        token(&**directory, 2, 21).await,
        None,
        "another change may be forgotten"
    );
    tokio::time::sleep(SETTLING + SLACK).await;
    for fresh in [12, 13] {
        assert_eq!(token(&**directory, 1, fresh).await, Some(Token(10)));
    }
    assert_eq!(token(&**directory, 2, 22).await, Some(Token(20)));

    begin(directory, 1, u64::MAX, 14).await;
    begin(directory, 1, 2, 15).await;
    assert_eq!(token(&**directory, 1, 16).await, None);
    end(directory, 1, u64::MAX).await;
    assert_eq!(token(&**directory, 1, 16).await, None, "another one is under way");
    begin(directory, 1, 2, 17).await;
    end(directory, 1, 3).await;
    assert_eq!(token(&**directory, 1, 18).await, None, "it was renewed");
    end(directory, 1, 2).await;
    assert_eq!(token(&**directory, 1, 19).await, Some(Token(17)));
    assert_eq!(
        token(&**directory, 2, 23).await,
        Some(Token(20)),
        "names are apart"
    );
    end(directory, 2, 1).await;
    assert_eq!(
        token(&**directory, 2, 24).await,
        Some(Token(20)),
        "it had ended before"
    );
}

pub(crate) async fn a_node_is_present_from_when_it_said_so(directory: &Shared) {
    let said = async |number, rules, at: Option<u64>| {
        let presence = Presence {
            node: NodeId(number),
            rules,
        };
        let roll = directory.attend(presence, at.map(DirectoryTime)).await.unwrap();
        let mut present = roll.present;
        present.sort_unstable_by_key(|presence| presence.node);
        let present: Vec<_> = present
            .iter()
            .map(|presence| (presence.node.0, presence.rules))
            .collect();
        (roll.at.0, present)
    };
    let (began, present) = said(1, 7, None).await;
    assert_eq!(present, [], "it only asked");
    let life = u64::try_from(PRESENCE_LIFE.as_millis()).unwrap();
    // The embedded directory counts from its own beginning.
    tokio::time::sleep(PRESENCE_LIFE + SLACK).await;
    let (now, present) = said(1, 7, Some(began)).await;
    assert_eq!(present, [], "it said so too long ago");
    assert!(now >= began + life, "{began} {now}");

    assert_eq!(said(1, u64::MAX, Some(now)).await.1, [(1, u64::MAX)]);
    assert_eq!(said(2, 8, Some(now + life)).await.1, [(1, u64::MAX), (2, 8)]);
    assert_eq!(
        said(1, 9, Some(now - 1)).await.1,
        [(1, u64::MAX), (2, 8)],
        "a newer word has arrived before"
    );
    assert_eq!(said(1, 0, Some(now + life)).await.1, [(1, 0), (2, 8)]);
    tokio::time::sleep(PRESENCE_LIFE + SLACK).await;
    assert_eq!(said(3, 1, None).await.1, [], "no word counts for longer");
}
