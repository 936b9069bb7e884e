//! Measures what temporary keys cost: memory, and the time to verify a request.
//!
//! `cargo run --release -p shoal-s3 --example temporary_keys -- [KEYS]`

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use shoal_base::clock;
use shoal_base::secret::Secret;
use shoal_s3::auth::Gate;
use shoal_s3::identity::{Account, Identities, Identity};
use shoal_s3::sigv4::{KeyCache, PayloadHash, Signer};
use shoal_s3::temporary_key::{Principal, TemporaryKey};

const REGION: &str = "us-east-1";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// A token of AWS is about this long.
const TOKEN_BYTES: usize = 1_000;

/// The number of identities, and of keys that are used all the time.
const FEW: usize = 64;

const ROUNDS: usize = 7;
const REQUESTS: u32 = 100_000;

fn main() {
    let keys = std::env::args().nth(1);
    let keys = keys.map_or(10_000, |keys| keys.parse().expect("a number of keys"));
    let now = clock::utc_now();
    let lasting = (0..FEW).map(|number| Account::new(&format!("AKIA{number:016}"), SECRET));
    let lasting: Vec<Account> = lasting.collect();
    let identities = lasting
        .iter()
        .map(|account| Identity::new(&account.access_key, SECRET));
    let identities = Identities::new(identities);
    let before = resident_bytes();
    let temporary: Vec<Arc<Account>> = (0..keys).map(account).collect();
    let accounts_bytes = resident_bytes() - before;
    for (number, account) in temporary.iter().enumerate() {
        let subject = format!("pod-{number}");
        let learned = identities.learn(TemporaryKey {
            account: Arc::clone(account),
            expires: now + Duration::from_hours(1),
            principal: Arc::new(Principal::of_role(
                "arn:aws:iam::1234:role/etl",
                &subject,
                number as u64,
            )),
        });
        assert!(learned, "there is a place for each key");
    }
    let bytes = (resident_bytes() - before) / keys;
    let secret_bytes = accounts_bytes / keys;
    println!("{keys} keys: {bytes} bytes each, {secret_bytes} of them key, secret and token");

    let gate = Gate::new(Arc::new(identities), REGION);
    let of = |accounts: &mut dyn Iterator<Item = &Account>| -> Vec<Parts> {
        accounts.map(|account| signed(account, now)).collect()
    };
    let cases = [
        ("identities of the configuration", of(&mut lasting.iter())),
        (
            "temporary keys",
            of(&mut temporary.iter().take(FEW).map(|account| &**account)),
        ),
        (
            "all temporary keys in turn",
            of(&mut temporary.iter().map(|account| &**account)),
        ),
    ];
    let mut times = [const { Vec::new() }; 3];
    // In turns, so that all see the same machine.
    for _ in 0..ROUNDS {
        for (time, (_, requests)) in times.iter_mut().zip(&cases) {
            time.push(verify(&gate, requests, now));
        }
    }
    for ((name, requests), time) in cases.iter().zip(&mut times) {
        time.sort_unstable();
        let (least, median, greatest) = (time[0], time[ROUNDS / 2], time[ROUNDS - 1]);
        let count = requests.len();
        println!("{count} {name}: {median:?} a request ({least:?} to {greatest:?})");
    }
}

fn account(number: usize) -> Arc<Account> {
    Arc::new(Account {
        session_token: Some(Secret::new(format!("{number:0>TOKEN_BYTES$}"))),
        ..Account::new(&format!("ASIA{number:016}"), SECRET)
    })
}

/// Returns the mean time to verify a request.
fn verify(gate: &Gate, requests: &[Parts], now: SystemTime) -> Duration {
    let began = clock::instant();
    for parts in requests.iter().cycle().take(REQUESTS as usize) {
        gate.verify(parts, now).expect("the request is signed right");
    }
    began.elapsed() / REQUESTS
}

fn signed(account: &Account, now: SystemTime) -> Parts {
    let keys = KeyCache::default();
    let signer = Signer {
        account,
        region: REGION,
        keys: &keys,
    };
    let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("shoal:9000"))]);
    let target = "/bucket/a/key".parse().expect("a target");
    let signed = signer.sign(&Method::GET, &target, &mut headers, PayloadHash::empty(), now);
    signed.expect("the account can sign");
    let mut request = Request::get("/bucket/a/key").body(()).expect("a request");
    *request.headers_mut() = headers;
    request.into_parts().0
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = status.split_whitespace().nth(1).expect("resident pages");
    pages.parse::<usize>().expect("a number") * 4096
}
