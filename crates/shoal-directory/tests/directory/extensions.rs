//! The contract about extensions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use shoal_directory::extensions::{EXTENSIONS_MAX, Extension, VALUE_BYTES_MAX};
use shoal_directory::{Directory, Group};
use shoal_policy::VersionId;

const LIFE: Duration = Duration::from_mins(1);

fn group(number: u32) -> Group {
    Group {
        version: VersionId([0x5a; 16]),
        number,
    }
}

fn extension(name: &str, value: &[u8]) -> Extension {
    Extension::new(name, value).unwrap()
}

async fn extensions(directory: &Arc<dyn Directory>, number: u32) -> Vec<Extension> {
    let mut extensions = directory.extensions(group(number)).await.unwrap();
    extensions.sort();
    extensions
}

pub(crate) async fn an_extension_stays_until_it_is_replaced(directory: &Arc<dyn Directory>) {
    // All bytes of a value count, spaces and line ends too.
    let value: Vec<u8> = (0..=u8::MAX).cycle().take(VALUE_BYTES_MAX).collect();
    let (short, pin) = (extension("short", b""), extension("pin.a1", &value));
    for noted in [&short, &pin] {
        assert!(directory.extend(group(0), noted, LIFE).await.unwrap());
    }
    assert_eq!(extensions(directory, 0).await, [pin, short.clone()]);
    assert_eq!(extensions(directory, 1).await, []);
    let shorter = extension("pin.a1", b"\r\n 1 ");
    assert!(directory.extend(group(0), &shorter, LIFE).await.unwrap());
    assert_eq!(extensions(directory, 0).await, [shorter, short]);
}

pub(crate) async fn a_group_has_a_bounded_number_of_extensions(directory: &Arc<dyn Directory>) {
    let noted = (0..=EXTENSIONS_MAX).map(|number| {
        let directory = Arc::clone(directory);
        async move {
            let extension = extension(&format!("n{number}"), b"");
            directory.extend(group(0), &extension, LIFE).await.unwrap()
        }
    });
    let kept = join_all(noted).await.into_iter().filter(|kept| *kept).count();
    assert_eq!(kept, EXTENSIONS_MAX);
    let all = extensions(directory, 0).await;
    assert_eq!(all.len(), EXTENSIONS_MAX);
    let again = extension(all[0].name(), b"again");
    assert!(directory.extend(group(0), &again, LIFE).await.unwrap());
    assert_eq!(extensions(directory, 0).await[0], again);
}

pub(crate) async fn an_extension_lasts_for_its_own_time(directory: &Arc<dyn Directory>) {
    let (brief, long) = (extension("brief", b""), extension("long", b""));
    directory.extend(group(0), &long, LIFE).await.unwrap();
    let moment = Duration::from_millis(1);
    directory.extend(group(0), &brief, moment).await.unwrap();
    while extensions(directory, 0).await != [long.clone()] {
        tokio::time::sleep(moment).await;
    }
}
