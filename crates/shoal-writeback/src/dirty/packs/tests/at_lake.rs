//! Requests about packs and tables, and what their answers mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use shoal_base::send_permit::SendPermit;
use shoal_net::endpoint::s3::SendOptions;
use shoal_s3::object::ObjectName;
use shoal_s3::range::ByteRange;
use ulid::Ulid;

use super::lab::{BUCKET, Lab};
use crate::dirty::packs::NotRead;
use crate::dirty::packs::at_lake::{ListedPack, get_range, size};
use crate::tier::tests::scripted::Answer;

const PIECES: [&[u8]; 3] = [b"first ", b"second ", b"third"];

fn pieces() -> Vec<Bytes> {
    PIECES.map(Bytes::from_static).to_vec()
}

#[tokio::test]
async fn a_pack_is_written_in_pieces_and_read_in_ranges() {
    let (lab, id) = (Lab::new().await, Ulid(5));
    let (packs, client) = (lab.at_lake(), lab.client());
    let name = packs.pack(id);
    assert_eq!(size(&client, &name).await.unwrap(), None);
    packs
        .put_pack(&client, id, pieces(), SendOptions::default())
        .await
        .unwrap();
    assert_eq!(size(&client, &name).await.unwrap(), Some(18));
    let headers = HeaderMap::from_iter([(http::header::REFERER, "here".parse().unwrap())]);
    let read = get_range(&client, &name, ByteRange::new(4, 9), headers)
        .await
        .unwrap();
    assert_eq!(*read, *b"t sec");
    let requests = lab.lake.requests();
    let put = requests.iter().find(|asked| asked.method == "PUT").unwrap();
    assert_eq!(put.path(), format!("/b/data/.shoal-pack/{id}.zip"));
    assert_eq!(put.header("content-type").as_deref(), Some("application/zip"));
    assert_eq!(
        requests.last().unwrap().header("referer").as_deref(),
        Some("here")
    );
}

#[tokio::test]
async fn a_refusal_is_no_unknown_outcome_and_an_error_of_the_lake_is_one() {
    let lab = Lab::new().await;
    let packs = lab.at_lake();
    for (status, may_exist) in [(403, false), (503, false), (400, false), (500, true), (502, true)] {
        lab.lake.fails(move |_| Some(Answer::new(status)));
        let put = packs.put_table(1, pieces(), SendOptions::default()).await;
        assert_eq!(put.unwrap_err().may_exist, may_exist, "{status}");
        let removed = packs.remove(&packs.table(1), SendOptions::default()).await;
        assert_eq!(removed.unwrap_err().may_exist, may_exist, "{status}");
    }
}

#[tokio::test]
async fn nothing_is_sent_without_the_right_to_send() {
    let lab = Lab::new().await;
    let packs = lab.at_lake();
    let may_send = Arc::new(AtomicBool::new(false));
    let permit = {
        let may_send = Arc::clone(&may_send);
        SendPermit::new(move || may_send.load(Ordering::Relaxed))
    };
    let options = SendOptions::permitted_by(Some(&permit));
    let put = packs.put_pack(&lab.client(), Ulid(5), pieces(), options).await;
    assert!(!put.unwrap_err().may_exist);
    let removed = packs.remove(&packs.table(1), options).await;
    assert!(!removed.unwrap_err().may_exist);
    assert!(lab.lake.requests().is_empty());
}

#[tokio::test]
async fn what_is_removed_is_gone_and_may_be_removed_again() {
    let lab = Lab::new().await;
    let packs = lab.at_lake();
    packs
        .put_table(1, pieces(), SendOptions::default())
        .await
        .unwrap();
    for _ in 0..2 {
        packs
            .remove(&packs.table(1), SendOptions::default())
            .await
            .unwrap();
    }
    assert!(lab.lake.objects.lock().is_empty());
    lab.lake.fails(|_| Some(Answer::new(404)));
    packs
        .remove(&packs.table(1), SendOptions::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn lists_have_all_packs_and_tables_and_no_other_objects() {
    let lab = Lab::new().await;
    let (packs, client) = (lab.at_lake(), lab.client());
    let numbers = [1, 2, 9, 10, 11, u64::MAX];
    for number in numbers {
        packs
            .put_table(number, pieces(), SendOptions::default())
            .await
            .unwrap();
    }
    for id in [3, 7, u128::MAX] {
        let put = packs.put_pack(&client, Ulid(id), pieces(), SendOptions::default());
        put.await.unwrap();
    }
    for other in [
        "",
        "x.zip",
        "map/",
        "map/1",
        "map/00000000000000000001x",
        "map/x",
        "00.zip",
        "map.zip",
    ] {
        lab.lake
            .objects
            .lock()
            .insert(format!("data/.shoal-pack/{other}"), Vec::new());
    }
    lab.lake
        .objects
        .lock()
        .insert("data/00000000000000000003".into(), Vec::new());
    assert_eq!(packs.tables().await.unwrap(), numbers);
    let listed = packs.packs().await.unwrap();
    let ids: Vec<_> = listed.iter().map(|pack| pack.id.0).collect();
    assert_eq!(ids, [3, 7, u128::MAX]);
    let ListedPack { size_bytes, age, .. } = listed[0];
    assert!(size_bytes == 18 && age > Duration::from_hours(24 * 365));
}

#[tokio::test]
async fn an_age_is_never_made_up() {
    let lab = Lab::new().await;
    let page = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>data/.shoal-pack/\
                00000000000000000000000005.zip</Key><Size>1</Size>TIME</Contents></ListBucketResult>";
    let time = "<LastModified>2020-01-01T00:00:00.000Z</LastModified>";
    let without_date = page.replace("TIME", time);
    lab.lake
        .fails(move |_| Some(Answer::new(200).body(&*without_date)));
    assert!(lab.at_lake().packs().await.is_err());
    let without_time = page.replace("TIME", "");
    lab.lake.fails(move |_| {
        let date = "Wed, 01 Jan 2025 00:00:00 GMT";
        Some(Answer::new(200).header("date", date).body(&*without_time))
    });
    assert!(lab.at_lake().packs().await.is_err());
}

#[tokio::test]
async fn only_the_wanted_bytes_of_a_pack_are_read() {
    let lab = Lab::new().await;
    let (packs, client) = (lab.at_lake(), lab.client());
    packs
        .put_pack(&client, Ulid(5), pieces(), SendOptions::default())
        .await
        .unwrap();
    let name = packs.pack(Ulid(5));
    let read =
        async |start, end| get_range(&client, &name, ByteRange::new(start, end), HeaderMap::new()).await;
    assert!(
        matches!(read(10, 30).await, Err(NotRead::Wrong(_))),
        "it is shorter"
    );
    lab.lake
        .fails(|_| Some(Answer::new(200).body("first second third")));
    assert!(
        matches!(read(4, 9).await, Err(NotRead::Wrong(_))),
        "it sent all of it"
    );
    lab.lake.fails(|_| {
        Some(
            Answer::new(206)
                .header("content-range", "bytes 5-9/18")
                .body("secon"),
        )
    });
    assert!(
        matches!(read(4, 9).await, Err(NotRead::Wrong(_))),
        "it sent another range"
    );
    lab.lake.fails(|_| {
        Some(
            Answer::new(206)
                .header("content-range", "bytes 4-8/18")
                .body("seconds"),
        )
    });
    assert!(matches!(read(4, 9).await, Err(NotRead::Wrong(_))), "it sent more");
    lab.lake.fails(|_| Some(Answer::new(403)));
    assert!(matches!(read(4, 9).await, Err(NotRead::Refused(status)) if status == 403));
    assert!(matches!(size(&client, &name).await, Err(NotRead::Refused(status)) if status == 403));
    lab.lake.works();
    lab.lake.objects.lock().clear();
    assert!(matches!(read(4, 9).await, Err(NotRead::Gone)));
    let no_bucket = "<Error><Code>NoSuchBucket</Code><Message/></Error>";
    lab.lake.fails(move |_| Some(Answer::new(404).body(no_bucket)));
    assert!(matches!(read(4, 9).await, Err(NotRead::Refused(status)) if status == 404));
}

#[tokio::test]
async fn the_folder_of_packs_is_below_the_prefix() {
    let packs = Lab::new().await.at_lake();
    let covers = |bucket: &str, key: &str| {
        packs.covers(&ObjectName {
            bucket: bucket.into(),
            key: key.as_bytes().into(),
            version: None,
        })
    };
    assert!(covers(BUCKET, "data/.shoal-pack/") && covers(BUCKET, "data/.shoal-pack/map/1"));
    for (bucket, key) in [
        (BUCKET, "data/.shoal-pack"),
        (BUCKET, ".shoal-pack/map/1"),
        (BUCKET, "data/a/.shoal-pack/map/1"),
        ("other", "data/.shoal-pack/map/1"),
    ] {
        assert!(!covers(bucket, key), "{bucket}/{key}");
    }
    assert!(packs.covers(&packs.pack(Ulid(5))) && packs.covers(&packs.table(7)));
}
