//! Stories of clients with temporary keys: they get them from STS by way of a node, and all nodes know them.

mod expiry;
mod sts;

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::Value;
use shoal_base::secret::Secret;
use shoal_net::clock;
use shoal_node::config::{Config, FreshnessMode, WriteMode, WriteRule};

use self::sts::{Sts, TemporaryKey};
use crate::client::{Call, Client, Reply};
use crate::cluster::{Cluster, SECRET, Wire};
use crate::gate::refused;
use crate::lake::{ACCESS_KEY, Access, Lake, Request, SECRET_KEY};
use crate::node::{Node, OTHER_KEY, OTHER_SECRET, lake};
use crate::tasks::{carry_out, order, post};
use crate::waiting::{until, value};

const ETL: &str = "arn:aws:iam::1:role/etl";
const ADHOC: &str = "arn:aws:iam::1:role/adhoc";

/// Lets clients get keys of all roles of one account.
fn with(sts: &Sts) -> impl Fn(usize, &mut Config) {
    let url = sts.url();
    move |_, config| {
        config.sts.roles = vec!["arn:aws:iam::1:role/*".into()];
        config.sts.listen = "127.0.0.1:0".parse().unwrap();
        config.sts.endpoint = Some(url.clone());
        config.cooperation.secret_key = Some(Secret::new(SECRET));
    }
}

/// A node of its own with an STS.
async fn node(change: impl Fn(&mut Config)) -> (Node, Sts, Lake) {
    let lake = lake().await;
    let sts = Sts::start(&lake).await;
    let node = Node::in_front_of(&lake, |config| {
        with(&sts)(0, config);
        change(config);
    });
    (node.await, sts, lake)
}

/// A node that signs for its identities with an account of its own.
async fn node_of_account() -> (Node, Sts, Lake) {
    let change = |config: &mut Config| {
        config.lake.access_key = Some(ACCESS_KEY.into());
        config.lake.secret_key = Some(Secret::new(SECRET_KEY));
    };
    node(change).await
}

/// Three nodes with an STS.
async fn cluster() -> (Cluster, Sts) {
    let lake = lake().await;
    let sts = Sts::start(&lake).await;
    (Cluster::in_front_of(lake, 3, with(&sts)).await, sts)
}

/// Asks a node for a key as SDKs in containers do.
async fn ask(node: &Node, role: &str, token: &str) -> Reply {
    let client = Client::anonymous(node.sts_address());
    let role = role.replace(':', "%3A");
    client
        .get(&format!("/v1/credentials?role={role}"))
        .header("authorization", token)
        .send()
        .await
}

/// The key that a node gets for a token.
async fn key(node: &Node, role: &str, token: &str) -> TemporaryKey {
    TemporaryKey::of(&ask(node, role, token).await)
}

impl TemporaryKey {
    /// The key of an answer.
    fn of(reply: &Reply) -> Self {
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        let document: Value = serde_json::from_slice(&reply.body).unwrap();
        let text = |name: &str| document[name].as_str().unwrap().to_owned();
        assert!(text("Expiration").ends_with('Z'), "{document}");
        Self {
            access_key: text("AccessKeyId"),
            secret_key: text("SecretAccessKey"),
            token: text("Token"),
        }
    }

    /// The key that STS made of its request with this number.
    fn numbered(number: usize) -> Self {
        Self {
            access_key: format!("ASIA{number}"),
            secret_key: format!("secret-of-{number}"),
            token: format!("session/token+of={number}"),
        }
    }

    fn client(&self, node: &Node) -> Client {
        Client::signing(node.address(), &self.access_key, &self.secret_key)
    }

    fn with_token(&self, call: Call) -> Call {
        call.header("x-amz-security-token", &self.token)
    }

    async fn get(&self, node: &Node, target: &str) -> Reply {
        self.with_token(self.client(node).get(target)).send().await
    }
}

#[tokio::test]
async fn a_key_of_a_role_is_known_to_all_nodes_before_its_client_has_it() {
    let (cluster, sts) = cluster().await;
    sts.accept("pod-token", "system:serviceaccount:ns:etl");
    cluster.lake.put("b", "k", "bytes");
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let key = key(&cluster.nodes[from], ETL, "pod-token").await;
        let reply = key.get(&cluster.nodes[to], "/b/k").await;
        assert_eq!((reply.status, reply.text()), (StatusCode::OK, "bytes"));
        let put = key.client(&cluster.nodes[from]).put("/b/other", "written");
        assert_eq!(key.with_token(put).send().await.status, StatusCode::OK);
        // The lake gets the same key and token.
        let asked = cluster.lake.last_request();
        assert_eq!(asked.header("x-amz-security-token"), Some(&*key.token));
        assert!(asked.header("authorization").unwrap().contains(&key.access_key));
    }
    let asked = &sts.asked()[0];
    assert_eq!(
        (&*asked["RoleArn"], &*asked["WebIdentityToken"]),
        (ETL, "pod-token")
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_role_that_is_not_listed_and_a_token_that_sts_refuses_get_no_key() {
    let (node, sts, _lake) = node(|_| ()).await;
    sts.accept("pod-token", "s");
    let reply = ask(&node, "arn:aws:iam::2:role/etl", "pod-token").await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert!(
        reply.text().contains("[sts] roles does not list it"),
        "{}",
        reply.text()
    );
    assert_eq!(ask(&node, "", "pod-token").await.status, StatusCode::FORBIDDEN);
    assert_eq!(sts.asked().len(), 0, "STS is not asked for it");
    let reply = ask(&node, ETL, "forged").await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let document: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(document["code"], "InvalidIdentityToken");
    assert_eq!(ask(&node, ETL, " ").await.status, StatusCode::UNAUTHORIZED);
    node.stop().await;
}

#[tokio::test]
async fn sts_itself_is_answered_in_its_own_form() {
    let (node, sts, lake) = node(|_| ()).await;
    sts.accept("pod-token", "s");
    lake.put("b", "k", "bytes");
    let client = Client::anonymous(node.sts_address());
    let form = |role: &str, token: &str| {
        format!(
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={role}&RoleSessionName=x&WebIdentityToken={token}"
        )
    };
    let reply = client.post("/", form(ETL, "pod-token")).send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    assert!(
        reply.text().contains("<AccessKeyId>ASIA0</AccessKeyId>"),
        "{}",
        reply.text()
    );
    assert_eq!(TemporaryKey::numbered(0).get(&node, "/b/k").await.text(), "bytes");
    // `object_store` sends the parameters in the query.
    let in_query = format!("/?{}", form(ETL, "pod-token"));
    let reply = client.post(&in_query, "").send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    for (form, code) in [
        (form("arn:aws:iam::2:role/x", "pod-token"), "AccessDenied"),
        (form(ETL, "forged"), "InvalidIdentityToken"),
        (
            "Action=GetCallerIdentity&Version=2011-06-15".into(),
            "InvalidAction",
        ),
        (String::new(), "InvalidParameterValue"),
    ] {
        let reply = client.post("/", form).send().await;
        assert!(reply.status.is_client_error(), "{}", reply.text());
        assert!(
            reply.text().contains(&format!("<Code>{code}</Code>")),
            "{}",
            reply.text()
        );
    }
    assert_eq!(
        client.get("/").send().await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
    assert_eq!(client.get("/b/k").send().await.status, StatusCode::NOT_FOUND);
    node.stop().await;
}

#[tokio::test]
async fn a_key_needs_its_own_token_and_ends_at_its_time() {
    let (node, sts, lake) = node(|config| config.freshness.default = FreshnessMode::Immutable).await;
    sts.accept("pod-token", "s");
    lake.put("b", "k", "bytes");
    let (one, other) = (
        key(&node, ETL, "pod-token").await,
        key(&node, ETL, "pod-token").await,
    );
    assert_eq!(one.get(&node, "/b/k").await.status, StatusCode::OK);
    let swapped = TemporaryKey {
        token: other.token.clone(),
        ..one.clone()
    };
    refused(
        &swapped.get(&node, "/b/k").await,
        StatusCode::BAD_REQUEST,
        "InvalidToken",
    );
    let without = one.client(&node).get("/b/k").send().await;
    refused(&without, StatusCode::FORBIDDEN, "InvalidAccessKeyId");
    let forged = TemporaryKey {
        secret_key: "guessed".into(),
        ..one.clone()
    };
    refused(
        &forged.get(&node, "/b/k").await,
        StatusCode::FORBIDDEN,
        "SignatureDoesNotMatch",
    );

    // A clock of STS that is an hour ahead does not lengthen a key.
    sts.put_ahead(Duration::from_hours(1));
    sts.keys_live(Duration::ZERO);
    let ended = key(&node, ETL, "pod-token").await;
    // STS gives the time in whole seconds.
    until("it has ended", async || {
        let reply = ended.get(&node, "/b/k").await;
        reply.status != StatusCode::OK
    })
    .await;
    refused(
        &ended.get(&node, "/b/k").await,
        StatusCode::BAD_REQUEST,
        "ExpiredToken",
    );
    assert_eq!(one.get(&node, "/b/k").await.status, StatusCode::OK);
    node.stop().await;
}

#[tokio::test]
async fn two_roles_with_different_rights_share_the_bytes_and_not_the_permission() {
    let (node, sts, lake) = node(|config| config.freshness.default = FreshnessMode::Immutable).await;
    sts.accept("etl-token", "etl");
    sts.accept("adhoc-token", "adhoc");
    lake.put("b", "k", "bytes");
    let (etl, adhoc) = (
        key(&node, ETL, "etl-token").await,
        key(&node, ADHOC, "adhoc-token").await,
    );
    lake.deny(&adhoc.access_key, Access::Read, "b/k");
    assert_eq!(etl.get(&node, "/b/k").await.text(), "bytes");
    assert_eq!(etl.get(&node, "/b/k").await.header("x-cache"), Some("HIT"));
    for _ in 0..2 {
        refused(
            &adhoc.get(&node, "/b/k").await,
            StatusCode::FORBIDDEN,
            "AccessDenied",
        );
    }
    lake.allow(&adhoc.access_key, Access::Read, "b/k");
    let sent = lake.body_bytes_sent();
    assert_eq!(adhoc.get(&node, "/b/k").await.text(), "bytes");
    assert_eq!(lake.body_bytes_sent(), sent, "the bytes crossed once");
    node.stop().await;
}

#[tokio::test]
async fn keys_outlive_sts_and_a_restart_of_all_nodes_and_lie_sealed_on_the_disk() {
    let (node, sts, lake) = node(|_| ()).await;
    sts.accept("pod-token", "s");
    lake.put("b", "k", "bytes");
    let key = key(&node, ETL, "pod-token").await;
    sts.stop();
    let node = node.restart_after(|store| {
        let journal = std::fs::read(store.join("node/keys")).unwrap();
        assert!(!journal.is_empty());
        for secret in [&key.access_key, &key.secret_key, &key.token] {
            assert!(
                memchr::memmem::find(&journal, secret.as_bytes()).is_none(),
                "{secret}"
            );
        }
    });
    let node = node.await;
    assert_eq!(key.get(&node, "/b/k").await.text(), "bytes");
    let reply = ask(&node, ETL, "pod-token").await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{}", reply.text());
    node.stop().await;
}

#[tokio::test]
async fn a_key_that_expired_while_the_node_was_down_leaves_its_disk() {
    let (node, sts, _lake) = node(|_| ()).await;
    sts.accept("pod-token", "s");
    sts.keys_live(Duration::from_secs(1));
    key(&node, ETL, "pod-token").await;
    let stopped = node.halt().await;
    let end = clock::utc_now() + Duration::from_secs(2);
    until("the key has expired", async || clock::utc_now() > end).await;
    let node = stopped.start().await;
    let journal = std::fs::metadata(node.store_path().join("node/keys")).unwrap();
    assert_eq!(journal.len(), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_was_away_asks_the_others_for_a_key_that_it_does_not_know() {
    let (cluster, sts) = cluster().await;
    sts.accept("pod-token", "s");
    cluster.lake.put("b", "k", "bytes");
    cluster.ways.iter().for_each(|way| way.becomes(Wire::Cut));
    let key = key(&cluster.nodes[0], ETL, "pod-token").await;
    for members in [3, 1] {
        // Another node may know the key, whether the others are members just now or not.
        let reply = key.get(&cluster.nodes[2], "/b/k").await;
        refused(&reply, StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
        if members == 3 {
            cluster.sees(1).await;
        }
    }
    cluster.ways.iter().for_each(|way| way.becomes(Wire::Whole));
    // The first question is one to its STS.
    let assume = format!("Action=AssumeRole&Version=2011-06-15&RoleArn={ADHOC}&RoleSessionName=x");
    sts.knows(&key.access_key);
    let client = Client::signing(cluster.nodes[2].sts_address(), &key.access_key, &key.secret_key);
    until("the node knows the key", async || {
        let call = client.post("/", assume.clone()).of_service("sts");
        let reply = key.with_token(call).send().await;
        let is_unsure = reply.status == StatusCode::SERVICE_UNAVAILABLE;
        assert!(is_unsure || reply.status == StatusCode::OK, "{}", reply.text());
        !is_unsure
    })
    .await;
    let reply = key.get(&cluster.nodes[2], "/b/k").await;
    assert_eq!(reply.text(), "bytes");
    cluster.sees(3).await;
    let nobody = TemporaryKey {
        access_key: "ASIANOBODY".into(),
        ..key
    };
    let reply = nobody.get(&cluster.nodes[1], "/b/k").await;
    refused(&reply, StatusCode::FORBIDDEN, "InvalidAccessKeyId");
    assert!(reply.text().contains("[sts]"), "{}", reply.text());
    cluster.stop().await;
}

#[tokio::test]
async fn a_conflict_at_sts_is_tried_once_more() {
    let (node, sts, _lake) = node(|_| ()).await;
    sts.accept("pod-token", "s");
    sts.conflict(1);
    key(&node, ETL, "pod-token").await;
    sts.conflict(2);
    assert_eq!(ask(&node, ETL, "pod-token").await.status, StatusCode::CONFLICT);
    assert_eq!(sts.asked().len(), 4);
    node.stop().await;
}

#[tokio::test]
async fn many_pods_with_one_token_cost_sts_one_request_at_a_time() {
    let (node, sts, _lake) = node(|_| ()).await;
    sts.accept("pod-token", "s");
    sts.answer_after(Duration::from_millis(200));
    let replies = join_all((0..200).map(|_| ask(&node, ETL, "pod-token"))).await;
    assert!(replies.iter().all(|reply| reply.status == StatusCode::OK));
    assert!(sts.asked().len() < 200, "{}", sts.asked().len());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pods_with_tokens_of_their_own_get_keys_a_few_at_a_time() {
    let (cluster, sts) = cluster().await;
    cluster.lake.put("b", "k", "bytes");
    let pods = (0..1000).map(async |pod: usize| {
        let token = format!("token-{pod}");
        sts.accept(&token, &format!("pod-{pod}"));
        // On a busy machine, STS and the other nodes may need longer than a node waits.
        let is_answered = |reply: &Reply| reply.status != StatusCode::SERVICE_UNAVAILABLE;
        let asked = async || ask(&cluster.nodes[pod % 3], ETL, &token).await;
        let key = TemporaryKey::of(&value("STS has a place", asked, is_answered).await);
        for other in [pod + 1, pod + 2] {
            let read = async || key.get(&cluster.nodes[other % 3], "/b/k").await;
            let reply = value("the key is known", read, is_answered).await;
            assert_eq!(reply.text(), "bytes", "{pod} at {other}");
        }
    });
    join_all(pods).await;
    assert_eq!(sts.asked().len(), 1000);
    assert!(sts.most_at_a_time() <= 3 * 32, "{}", sts.most_at_a_time());
    for node in 0..3 {
        assert_eq!(cluster.metric(node, "shoal_temporary_keys").await, 1000);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_identity_assumes_a_role_with_its_own_key_pair_and_never_with_that_of_the_node() {
    const ASSUME: &str =
        "Action=AssumeRole&Version=2011-06-15&RoleArn=arn:aws:iam::1:role/etl&RoleSessionName=x";
    const SESSION: &str = "Action=GetSessionToken&Version=2011-06-15";
    let (node, sts, lake) = node(|config| config.lake.access_key = None).await;
    lake.put("b", "k", "bytes");
    sts.knows(ACCESS_KEY);
    let signed = |client: &Client, form: &'static str| client.post("/", form).of_service("sts");
    let client = Client::signing(node.sts_address(), ACCESS_KEY, SECRET_KEY);
    for (form, number) in [(ASSUME, 0), (SESSION, 1)] {
        let reply = signed(&client, form).send().await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        assert_eq!(
            TemporaryKey::numbered(number).get(&node, "/b/k").await.text(),
            "bytes"
        );
    }
    // A role by way of a role.
    let key = TemporaryKey::numbered(0);
    sts.knows(&key.access_key);
    let client = Client::signing(node.sts_address(), &key.access_key, &key.secret_key);
    let reply = key.with_token(signed(&client, ASSUME)).send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());

    let stranger = Client::signing(node.sts_address(), "nobody", SECRET_KEY);
    let forger = Client::signing(node.sts_address(), ACCESS_KEY, "guessed");
    let client = Client::signing(node.sts_address(), ACCESS_KEY, SECRET_KEY);
    let asked = sts.asked().len();
    for (call, code) in [
        (signed(&stranger, ASSUME), "InvalidClientTokenId"),
        (signed(&forger, ASSUME), "SignatureDoesNotMatch"),
        (
            signed(&client, ASSUME).of_service("s3"),
            "AuthorizationHeaderMalformed",
        ),
        (
            Client::anonymous(node.sts_address()).post("/", SESSION),
            "AccessDenied",
        ),
    ] {
        let reply = call.send().await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{}", reply.text());
        assert!(
            reply.text().contains(&format!("<Code>{code}</Code>")),
            "{}",
            reply.text()
        );
    }
    node.stop().await;

    // An identity whose requests the node signs with its own account gets no key of that.
    let (node, sts, _lake) = node_of_account().await;
    let client = Client::signing(node.sts_address(), OTHER_KEY, OTHER_SECRET);
    for form in [ASSUME, SESSION] {
        let reply = signed(&client, form).send().await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{}", reply.text());
    }
    assert_eq!((asked, sts.asked().len()), (3, 0));
    node.stop().await;
}

#[tokio::test]
async fn a_task_runs_in_the_name_of_a_role_by_its_latest_key() {
    let (node, sts, lake) = node(|_| ()).await;
    lake.put("b", "k", "bytes");
    let mut prefetch = order("prefetch", "s3://b/");
    prefetch["identity"] = ETL.into();
    let refused = post(&node, &prefetch).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
    sts.accept("pod-token", "s");
    key(&node, ETL, "pod-token").await;
    sts.keys_live(Duration::from_hours(2));
    let latest = key(&node, ETL, "pod-token").await;
    lake.forget_requests();
    let done = carry_out(&node, &prefetch).await;
    assert_eq!(done["state"], "done", "{done:#}");
    let asked = lake.requests();
    let in_name = |request: &Request| request.header("x-amz-security-token") == Some(&*latest.token);
    assert!(!asked.is_empty() && asked.iter().all(in_name), "{asked:#?}");
    node.stop().await;
}

#[tokio::test]
async fn a_later_key_of_the_role_flushes_what_an_expired_one_wrote() {
    let (node, sts, lake) = node(|config| {
        config.write.rules = vec![WriteRule::new("s3://b/", WriteMode::Back)];
        config.write.age = Duration::from_hours(1);
    })
    .await;
    lake.create_bucket("b");
    sts.accept("one-token", "one");
    sts.accept("two-token", "two");
    let one = key(&node, ETL, "one-token").await;
    let put = one
        .with_token(one.client(&node).put("/b/k", "written"))
        .send()
        .await;
    assert_eq!(put.header("x-shoal-write"), Some("back"), "{}", put.text());
    // The same principal reads what is dirty with its next key, and another principal of the role does not.
    let (next, two) = (
        key(&node, ETL, "one-token").await,
        key(&node, ETL, "two-token").await,
    );
    assert_eq!(next.get(&node, "/b/k").await.text(), "written");
    assert!(lake.object("b", "k").is_none());
    assert_eq!(two.get(&node, "/b/k").await.text(), "written");
    assert!(
        lake.object("b", "k").is_some(),
        "it is flushed before the lake decides"
    );
    node.stop().await;
}

#[tokio::test]
async fn what_nobody_of_a_role_can_flush_any_more_stays_readable_until_the_rule_names_who_does() {
    let (node, sts, lake) = node(|config| {
        config.write.rules = vec![WriteRule {
            readers: vec![ACCESS_KEY.into()],
            ..WriteRule::new("s3://b/", WriteMode::Back)
        }];
        config.write.age = Duration::from_hours(1);
    })
    .await;
    lake.put("b", "gone", "at the lake");
    lake.put("b", "first", "at the lake");
    sts.accept("one-token", "one");
    let one = key(&node, ETL, "one-token").await;
    let put = one
        .with_token(one.client(&node).put("/b/k", "written"))
        .send()
        .await;
    assert_eq!(put.header("x-shoal-write"), Some("back"), "{}", put.text());
    // The lake decides about the first removal; its yes is remembered.
    let first = one.with_token(one.client(&node).delete("/b/first"));
    assert_eq!(first.send().await.status, StatusCode::NO_CONTENT);
    let delete = one.with_token(one.client(&node).delete("/b/gone")).send().await;
    assert_eq!(delete.status, StatusCode::NO_CONTENT, "{}", delete.text());
    assert!(
        lake.object("b", "gone").is_some(),
        "the removal is written back, too"
    );
    let stopped = node.halt().await;
    let stopped = stopped.with(|config| {
        std::fs::remove_file(config.store.path.join("node/keys")).unwrap();
        config.write.age = Duration::from_secs(1);
    });
    let node = stopped.start().await;
    until("the node says what to do", async || {
        let troubled = node.status().await["write_back"]["troubled"].to_string();
        troubled.contains("flush_as")
    })
    .await;
    assert_eq!(node.client().get("/b/k").send().await.text(), "written");
    let stopped = node.halt().await;
    let stopped = stopped.with(|config| config.write.rules[0].flush_as = Some(ACCESS_KEY.into()));
    let node = stopped.start().await;
    until("nothing is dirty", async || {
        let page = node.status().await;
        page["write_back"]["objects"] == 0 && page["write_back"]["removals"] == 0
    })
    .await;
    assert!(lake.object("b", "gone").is_none() && lake.object("b", "k").is_some());
    node.stop().await;
}
